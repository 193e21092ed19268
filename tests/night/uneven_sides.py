"""Half an hour of a left join whose sides are equally long in event time, but one is written ten times faster.

The event time of the orders would soon be hours ahead of that of the payments. The source of the orders is held, so
what is kept for the join stays small: the memory of the slots is flat, and the backlog stays in Kafka.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tests.night.story import Night, Result
from tests.support.campaign import Job, Record, deliver_parts, read_rows, resident_mib
from tests.support.daemon_process import DaemonProcess
from tidegate.dev.broker import DevelopmentBroker

ORDERS_PER_S: Final = 2_000
PAYMENTS_PER_S: Final = 200
STEP_MS: Final = 5
"""Event time from one row of a side to its next row."""
PARTITIONS: Final = 4
SLOTS: Final = 2
SHARE_OF_RUN: Final = 0.91
LOOK_S: Final = 10.0
SETTLED_SHARE: Final = 1 / 3
"""Of the time, before memory is compared."""
GROWTH_MAX: Final = 0.05
"""Of the memory, from the first to the last third of what is compared."""
BASE_MS: Final = 1_767_225_600_000

SETTINGS: Final[dict[str, Any]] = {
    "sources": {
        "orders": {
            "topic": "orders",
            "format": "json",
            "schema": {"id": "bigint", "note": "string", "at": "bigint"},
            "event_time": "at",
            "start": "earliest",
        },
        "payments": {
            "topic": "payments",
            "format": "json",
            "schema": {"order_id": "bigint", "amount": "bigint", "at": "bigint"},
            "event_time": "at",
            "start": "earliest",
        },
    },
    "steps": [
        {
            "name": "settled",
            "join": {"order": "orders", "payment": "payments"},
            "on": {"id": "order_id"},
            "within": {"before": "5s", "after": "20s"},
            "rows": "left",
            "select": {"id": "order.id", "note": "order.note", "paid": "payment.amount"},
        }
    ],
    "sinks": {"result": {"from": "settled", "topic": "settled", "format": "json", "key": "id"}},
}


def run(night: Night) -> Result:
    """See the module."""
    seconds = max(120.0, night.seconds * SHARE_OF_RUN)
    with DevelopmentBroker(night.place / "broker") as broker:
        broker.create_topics(dict.fromkeys(("orders", "payments", "settled"), PARTITIONS))
        daemon = Job("uneven", broker.bootstrap, night.place, SETTINGS).daemon(0, SLOTS)
        try:
            daemon.start().wait_running()
            written = _load(night, broker.bootstrap, daemon, seconds)
            if (code := daemon.terminate()) != 0:
                night.problem(f"SIGTERM: exit code {code}: {daemon.text()[-1000:]}")
        finally:
            daemon.destroy()
        _check_output(night, broker.bootstrap, written)
    return night.close()


def _load(night: Night, bootstrap: str, daemon: DaemonProcess, seconds: float) -> int:
    """Writes both sides and samples the memory of the slots. Returns the number of payments."""
    night.least("looks", round(seconds / LOOK_S / 2))
    samples: list[float] = []
    stop = threading.Event()
    written = {"orders": 0, "payments": 0}

    def look() -> None:
        while not stop.wait(LOOK_S):
            samples.append(sum(map(resident_mib, daemon.slots())))
            night.count("looks")

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    began = time.monotonic()

    def parts() -> Iterator[Iterator[Record]]:
        for second in itertools.count():
            threading.Event().wait(began + second - time.monotonic())
            if time.monotonic() - began > seconds:
                return
            daemon.assert_alive()
            for topic, rate in (("orders", ORDERS_PER_S), ("payments", PAYMENTS_PER_S)):
                yield _rows(topic, written[topic], rate)
                written[topic] += rate

    deliver_parts(bootstrap, parts())
    stop.set()
    watcher.join(60)
    night.count("seconds", round(time.monotonic() - began))
    for topic, count in written.items():
        night.count(topic, count)
    lag = daemon.status()["lag_records"]
    night.least("records left in Kafka", written["orders"] // 2)
    night.count("records left in Kafka", lag if isinstance(lag, int) else 0)
    _compare_memory(night, samples)
    return written["payments"]


def _compare_memory(night: Night, samples: list[float]) -> None:
    settled = samples[round(len(samples) * SETTLED_SHARE) :]
    third = max(1, len(settled) // 3)
    first, last = statistics.median(settled[:third]), statistics.median(settled[-third:])
    night.count("slots, MiB at first", first)
    night.count("slots, MiB at last", last)
    night.count("slots, MiB at most", max(samples))
    if last > first * (1 + GROWTH_MAX):
        night.problem(f"the slots grow from {first:.0f} to {last:.0f} MiB: {[round(one) for one in samples]}")


def _check_output(night: Night, bootstrap: str, payments: int) -> None:
    """Every order that was joined came out once, with its payment: order i has payment i, at the same event time."""
    ids = []
    for row in itertools.chain.from_iterable(read_rows(bootstrap, "settled")):
        ids.append(row["id"])
        if row["paid"] != row["id"] % 1000:
            night.result.wrong += 1
    night.result.seen, night.result.expected = len(ids), payments
    night.result.duplicate = len(ids) - len(set(ids))
    night.result.missing = max(0, int(payments * 0.9) - len(ids))
    if night.result.wrong or night.result.duplicate or night.result.missing:
        night.problem(f"{len(ids)} rows for {payments} payments, {night.result.wrong} of them wrong")


def _rows(topic: str, first: int, count: int) -> Iterator[Record]:
    for number in range(first, first + count):
        row: dict[str, Any] = {"at": BASE_MS + number * STEP_MS}
        if topic == "orders":
            row |= {"id": number, "note": f"order {number} of the longer side"}
        else:
            row |= {"order_id": number, "amount": number % 1000}
        yield Record(topic, number % PARTITIONS, None, msgspec.json.encode(row))
