"""A lookup loads a table of two million rows; the daemon is killed meanwhile, and later a slot.

The gate opens once in each attempt that gets that far, the next daemon continues where a checkpoint was, and every
lookup has the row that the topic ends with.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tests.night.story import Night, Result
from tests.support.campaign import GATE_OPENS, Job, Record, deliver, read_rows, resident_mib
from tests.support.daemon_process import DaemonProcess
from tests.support.processes import kill
from tests.support.rig import read_journal, restored_checkpoint
from tests.waiting import wait_until
from tidegate.coordinator.recovery import merge_positions
from tidegate.dev.broker import DevelopmentBroker

ROWS: Final = 2_000_000
"""Of the table, in a night of full length."""
REWRITTEN, DELETED = 10, 100
"""One of so many rows is written again, or deleted."""
ORDERS: Final = 20_000
PARTITIONS: Final = 4
SLOTS: Final = 2
BOOTSTRAP_S: Final = 900.0


def run(night: Night) -> Result:
    """See the module."""
    rows = max(1_000_000, round(ROWS * night.scale))
    with DevelopmentBroker(night.place / "broker") as broker:
        broker.create_topics({"customers": PARTITIONS, "orders": PARTITIONS, "enriched": PARTITIONS})
        records = deliver(broker.bootstrap, _customers(rows))
        orders = {id_: night.dice.randrange(rows + rows // 50) for id_ in range(ORDERS)}
        half = ORDERS // 2
        deliver(broker.bootstrap, _orders(orders, 0, half))
        job = Job("bootstrap", broker.bootstrap, night.place, SETTINGS)
        daemons = [job.daemon(number, SLOTS) for number in range(2)]
        try:
            _kill_in_the_middle(night, job, daemons[0], records)
            daemon = _continue(night, job, daemons[1], records)
            _wait_rows(daemon, broker.bootstrap, half)
            with night.recovery():
                attempt = daemon.attempt
                assert kill(night.dice.choice(daemon.slots())), "the slot was gone before the kill"
                night.count("slots killed")
                deliver(broker.bootstrap, _orders(orders, half, ORDERS))
                daemon.wait_attempt(attempt)
            _wait_rows(daemon, broker.bootstrap, ORDERS)
            if (opened := daemon.text().count(GATE_OPENS)) != 2:
                night.problem(f"the gate opened {opened} times in two attempts")
            if (code := daemon.terminate()) != 0:
                night.problem(f"SIGTERM: exit code {code}: {daemon.text()[-1000:]}")
        finally:
            for each in daemons:
                each.destroy()
        _compare(night, orders, rows, broker.bootstrap)
    return night.close()


SETTINGS: Final[dict[str, Any]] = {
    "checkpoints": {"interval": "500ms"},
    "state": {"backend": "rocksdb"},
    "sources": {
        "customers": {
            "topic": "customers",
            "format": "json",
            "schema": {"version": "bigint", "segment": "string"},
            "metadata": {"key": "id"},
            "on_null": "tombstone",
            "start": "earliest",
        },
        "orders": {
            "topic": "orders",
            "format": "json",
            "schema": {"id": "bigint", "customer": "string"},
            "start": "earliest",
        },
    },
    "steps": [
        {"name": "customer", "from": "customers", "table": {"key": "id"}},
        {
            "name": "enriched",
            "from": "orders",
            "lookup": "customer",
            "on": {"customer": "id"},
            "add": {"version": "customer.version", "segment": "customer.segment"},
        },
    ],
    "sinks": {"result": {"from": "enriched", "topic": "enriched", "format": "json", "key": "customer"}},
}


def _kill_in_the_middle(night: Night, job: Job, daemon: DaemonProcess, records: int) -> None:
    """Kills the first daemon as soon as a checkpoint has a tenth of the table."""
    night.least("daemons killed")
    night.least("slots killed")
    daemon.start().wait_running()
    began = time.monotonic()
    wait_until(lambda: _restorable(job) >= records // 10, "a tenth of the table is in a checkpoint", BOOTSTRAP_S)
    night.count("slots, MiB at the first kill", sum(map(resident_mib, daemon.slots())))
    daemon.kill()
    night.count("daemons killed")
    night.count("first part of the bootstrap, s", time.monotonic() - began)
    if GATE_OPENS in daemon.text():
        night.problem("the bootstrap was over before the kill")


def _restorable(job: Job) -> int:
    """Returns how many records of the table are in the newest checkpoint."""
    retained = read_journal(job.place / "checkpoints").retained
    positions = merge_positions(retained[-1].checkpoint.positions) if retained else {}
    return sum(sum(offsets.values()) for source, (offsets, _) in positions.items() if source == "customers")


def _records_read(daemon: DaemonProcess) -> int:
    daemon.assert_alive()
    read = daemon.status()["records_in"]
    assert isinstance(read, int)
    return read


def _continue(night: Night, job: Job, daemon: DaemonProcess, records: int) -> DaemonProcess:
    """Starts the second daemon; returns when its gate has opened."""
    kept = _restorable(job)
    night.least("records restored")
    night.count("records restored", kept)
    daemon.start().wait_running()
    restored_checkpoint(daemon.text())
    began = time.monotonic()
    daemon.wait_for(GATE_OPENS, BOOTSTRAP_S)
    seconds = time.monotonic() - began
    read = _records_read(daemon)
    night.count("records read again or first", read)
    night.count("rest of the bootstrap, s", seconds)
    night.count("records a second", round((records - kept) / seconds))
    night.count("slots, MiB when the gate opens", sum(map(resident_mib, daemon.slots())))
    if read > records - kept + ORDERS:
        night.problem(f"{read} records were read although {kept} of {records} were restored")
    return daemon


def _wait_rows(daemon: DaemonProcess, bootstrap: str, count: int) -> None:
    def complete() -> bool:
        daemon.assert_alive()
        return sum(map(len, read_rows(bootstrap, "enriched"))) >= count

    wait_until(complete, f"{count} rows in the output")


def _compare(night: Night, orders: dict[int, int], rows: int, bootstrap: str) -> None:
    found = [row for part in read_rows(bootstrap, "enriched") for row in part]
    seen = Counter(row["id"] for row in found)
    night.result.expected, night.result.seen = len(orders), len(found)
    night.result.missing = len(orders.keys() - seen.keys())
    night.result.duplicate = seen.total() - len(seen)
    wrong = [row for row in found if row["version"] != _newest(orders[row["id"]], rows)]
    night.result.wrong = len(wrong)
    night.count("rows without a customer", sum(row["version"] is None for row in found))
    if night.result.missing or night.result.duplicate or wrong:
        night.problem(f"the output is not exact, wrong are {wrong[:3]}")


def _customers(rows: int) -> Iterator[Record]:
    """All rows, then those written again, then the deleted ones."""
    for version, step in ((1, 1), (2, REWRITTEN)):
        for number in range(0, rows, step):
            value = msgspec.json.encode({"version": version, "segment": f"s{number % 7}"})
            yield Record("customers", number % PARTITIONS, b"c%07d" % number, value)
    for number in range(0, rows, DELETED):
        yield Record("customers", number % PARTITIONS, b"c%07d" % number, None)


def _newest(number: int, rows: int) -> int | None:
    """Returns the version that a lookup of this customer must find."""
    if number >= rows or number % DELETED == 0:
        return None
    return 2 if number % REWRITTEN == 0 else 1


def _orders(orders: dict[int, int], begin: int, end: int) -> Iterator[Record]:
    for id_ in range(begin, end):
        value = msgspec.json.encode({"id": id_, "customer": f"c{orders[id_]:07d}"})
        yield Record("orders", id_ % PARTITIONS, None, value)
