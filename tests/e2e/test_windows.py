"""Windows as users run them: Kafka, Spark, records out of order and late, a kill, and another number of slots. Next to
them totals of a table's changes, and a step in Python, which share the slots and the kill. RocksDB holds the state
until the kill.
"""

from __future__ import annotations

import json
import math
import os
import random
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.conftest import SessionBroker, TopicMaker
from tests.support import clients
from tests.support.daemon_process import DaemonProcess
from tests.support.tables import SINKS, SOURCE, STEPS, draw_history, expected_view, make_sinks, newest
from tests.user_code.made_wheels import make_wheel
from tests.waiting import wait_until
from tidegate.dev.demo.verify import read_topic

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SEED: Final = 17
PARTITIONS, COUNT = 3, 4000
CHANGES: Final = 2000
DELAY_MS: Final = 2_000
START_MS: Final = 1_767_225_600_000
TUMBLING_MS, SLIDING_MS, EVERY_MS = 10_000, 30_000, 10_000
SLOW_SINK: Final = {"queue.buffering.max.messages": "100", "linger.ms": "50"}
"""About 2,000 records a second and subtask, so that the kill finds work to do."""
CHEAP: Final = 1.0
"""The step in Python raises for prices below this, after it has written its state. It reads the limit from a data file,
with the module of a wheel.
"""
WHEEL: Final = "limits-1-py3-none-any.whl"
MODULE: Final = """
from datetime import timedelta

from limits import read
from tidegate.python import Step, Timer, Value


class Counts(Step):
    orders = Value("bigint", default=0)
    ends = Timer("event-time")

    def open(self, settings):
        self.cheap = read(self.file("cheap.txt"))

    def process(self, row, out):
        self.orders.set(self.orders.get() + 1)
        end, before = row.time + timedelta(hours=1), self.ends.get()
        if before is None or before < end:
            self.ends.set(end)
        out.emit(sku=row["sku"], orders=self.orders.get())
        if row["price"] < self.cheap:
            raise ValueError(f"{row['price']} is too cheap")

    def on_timer(self, name, at, out):
        out.to("ended", sku=self.key[0], orders=self.orders.get(), at=at)
"""
IN_PYTHON: Final = [
    {
        "name": "counts",
        "from": "orders",
        "key": "sku",
        "python": "counts:Counts",
        "output": {"sku": "string", "orders": "bigint"},
        "outputs": {"ended": {"sku": "string", "orders": "bigint", "at": "timestamp"}},
    },
    {"name": "ended", "from": "counts.ended", "select": {"sku": "sku", "orders": "orders", "end": "unix_millis(at)"}},
]

Record = dict[str, Any]
Windows = dict[tuple[str, int], tuple[int, float]]
"""(key, window's end in ms) -> count and sum."""


def test_windows_totals_of_changes_and_a_step_in_python_are_exact_after_a_kill_and_with_another_number_of_slots(
    broker: SessionBroker, topics: TopicMaker, tmp_path: Path
) -> None:
    """Lateness is a property of the input, so a plain loop over each partition says what must come out. Totals of
    changes end as the table is. The step in Python has counted all records for which it has not raised.
    """
    print(f"seed {SEED}")
    source, tumbling, sliding, passed = (topics(name, PARTITIONS) for name in ("read", "tumbling", "sliding", "passed"))
    records = make_records()
    produce(broker.bootstrap, source, records)
    targets = {"tumbling": tumbling, "sliding": sliding, "passed": passed}
    targets |= {name: topics(name, PARTITIONS) for name in ("table", "counts", "ended", *SINKS)}
    table, events = draw_history(random.Random(SEED), CHANGES)
    produce_changes(broker.bootstrap, targets["table"], events[: CHANGES // 2])
    name = f"windows-{os.getpid()}-{source}"
    endless = write(tmp_path, broker.bootstrap, name, source, targets, parallelism=2, until="never", backend="rocksdb")
    first = run(tmp_path, "first", endless)  # however late the kill comes
    try:
        first.wait_committed()
        wait_until(lambda: bool(read_newest(broker.bootstrap, targets["regions"])), "totals of the table are out")
        first.assert_alive()
        first.kill()
    finally:
        first.destroy()
    produce_changes(broker.bootstrap, targets["table"], events[CHANGES // 2 :])
    path = write(tmp_path, broker.bootstrap, name, source, targets, parallelism=3)
    second = run(tmp_path, "second", path)
    try:
        assert second.wait() == 0, second.text()[-3000:]
        assert "state of per_sku restored from" in second.text(), "no window was open"
        assert "state of counts restored from" in second.text(), "nothing was counted"
        assert "state of regions restored from" in second.text(), "there were no totals"
    finally:
        second.destroy()
    expected = expect(records, TUMBLING_MS, TUMBLING_MS)
    assert sum(count for count, _ in expected.values()) < PARTITIONS * COUNT, "no record was late"
    assert read_windows(broker.bootstrap, tumbling) == expected
    assert read_windows(broker.bootstrap, sliding) == expect(records, SLIDING_MS, EVERY_MS)
    assert sum(map(len, read_topic(broker.bootstrap, passed))) == PARTITIONS * COUNT
    assert {name: read_newest(broker.bootstrap, targets[name]) for name in SINKS} == expected_view(table)
    check_counts(broker.bootstrap, targets, records)


def make_records() -> list[list[Record]]:
    """For each partition its records: within the delay out of order, and now and then far too old."""
    drawn = random.Random(SEED)
    made = []
    for _ in range(PARTITIONS):
        rows = []
        for number in range(COUNT):
            at_ms = START_MS + number * 40 - drawn.randrange(DELAY_MS)
            if drawn.random() < 0.02:
                at_ms -= drawn.randrange(60_000)
            rows.append({"sku": f"s{drawn.randrange(20)}", "at": at_ms, "price": round(drawn.uniform(0, 100), 2)})
        made.append(rows)
    return made


def expect(records: list[list[Record]], size_ms: int, every_ms: int) -> Windows:
    """Without what is late for each window: its partition's watermark had passed the end when it was read."""
    values = defaultdict(list)
    for rows in records:
        highest_ms = -(2**62)
        for row in rows:
            watermark_ms = highest_ms - DELAY_MS - 1
            end_ms = row["at"] - row["at"] % every_ms + every_ms
            for window_ms in range(end_ms, end_ms + size_ms, every_ms):
                if window_ms - 1 > watermark_ms:
                    values[row["sku"], window_ms].append(row["price"])
            highest_ms = max(highest_ms, row["at"])
    return {key: (len(found), math.fsum(found)) for key, found in values.items()}


def check_counts(bootstrap: str, targets: dict[str, str], records: list[list[Record]]) -> None:
    """The counts of each key have no gap, and its timer, which each record moves, has fired once at the end."""
    times = defaultdict(list)
    for row in (row for rows in records for row in rows if row["price"] >= CHEAP):
        times[row["sku"]].append(row["at"])
    counts = defaultdict(list)
    for row in (msgspec.json.decode(value) for rows in read_topic(bootstrap, targets["counts"]) for _, value in rows):
        counts[row["sku"]].append(row["orders"])
    assert counts == {sku: list(range(1, len(found) + 1)) for sku, found in times.items()}
    ended = [msgspec.json.decode(value) for rows in read_topic(bootstrap, targets["ended"]) for _, value in rows]
    assert sorted((row["sku"], row["orders"], row["end"]) for row in ended) == sorted(
        (sku, len(found), max(found) + 3_600_000) for sku, found in times.items()
    )


def read_windows(bootstrap: str, topic: str) -> Windows:
    """What has come out; each window once, and those of a key in their order."""
    found: Windows = {}
    for rows in read_topic(bootstrap, topic):
        last: dict[str, int] = {}
        for _, value in rows:
            row = msgspec.json.decode(value)
            key = (row["sku"], row["end"])
            assert key not in found, f"{key} came twice"
            assert last.get(row["sku"], 0) < row["end"], f"{key} is out of order"
            last[row["sku"]] = row["end"]
            found[key] = (row["orders"], row["net"])
    return found


def produce_changes(bootstrap: str, topic: str, events: list[tuple[int, dict[str, Any] | None]]) -> None:
    producer = clients.producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
    for key, event in events:
        value = None if event is None else json.dumps(event)
        producer.produce(topic, value, key=str(key), partition=key % PARTITIONS)
    assert producer.flush(60) == 0


def read_newest(bootstrap: str, topic: str) -> dict[str, Any]:
    """The newest record of each key; its records are in one partition."""
    rows = [row for partition in read_topic(bootstrap, topic) for row in partition]
    return newest(((key or b"").decode(), json.loads(value) if value else None) for key, value in rows)


def run(directory: Path, name: str, path: Path) -> DaemonProcess:
    return DaemonProcess(path, directory / f"{name}.log", {"TMPDIR": str(directory)}).start()


def produce(bootstrap: str, topic: str, records: list[list[Record]]) -> None:
    producer = clients.producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
    for partition, rows in enumerate(records):
        for row in rows:
            producer.produce(topic, json.dumps(row), partition=partition)
    assert producer.flush(60) == 0


def write(
    directory: Path,
    bootstrap: str,
    name: str,
    source: str,
    targets: dict[str, str],
    *,
    parallelism: int,
    until: str = "latest",
    backend: str = "memory",
) -> Path:
    """The pipeline file: JSON is YAML."""
    totals = {"orders": "count(*)", "net": "sum(price)"}
    shown = {"sku": "sku", "end": "unix_millis(window_end)", "orders": "orders", "net": "net"}
    sliding = {"sliding": f"{SLIDING_MS}ms", "every": f"{EVERY_MS}ms"}
    document = {
        "version": 1,
        "name": name,
        "kafka": {"bootstrap.servers": bootstrap},
        "parallelism": parallelism,
        "checkpoints": {"directory": f"file://{directory}/checkpoints", "interval": "500ms", "unaligned": "always"},
        "state": {"backend": backend},
        "http": {"port": 0},
        "code": [WHEEL, "cheap.txt"],
        "sources": {
            "orders": {
                "topic": source,
                "schema": {"sku": "string", "at": "bigint", "price": "double"},
                "event_time": "at",
                "watermark": {"delay": f"{DELAY_MS}ms"},
                "until": until,
                "bad_records": "skip",
            },
            "table": {"topic": targets["table"], "until": until, **SOURCE},
        },
        "steps": [
            {"name": "per_sku", "from": "orders", "key": "sku", "window": {"tumbling": "10s"}, "aggregate": totals},
            {"name": "hopping", "from": "orders", "key": "sku", "window": sliding, "aggregate": totals},
            {"name": "tumbling_ends", "from": "per_sku", "select": shown},
            {"name": "sliding_ends", "from": "hopping", "select": shown},
            *IN_PYTHON,
            *STEPS,
        ],
        "sinks": {
            "tumbling": {"from": "tumbling_ends", "topic": targets["tumbling"], "key": "sku"},
            "sliding": {"from": "sliding_ends", "topic": targets["sliding"], "key": "sku"},
            "passed": {"from": "orders", "topic": targets["passed"], "key": "sku", "kafka": SLOW_SINK},
            "counted": {"from": "counts", "topic": targets["counts"], "key": "sku"},
            "ends": {"from": "ended", "topic": targets["ended"], "key": "sku"},
            **make_sinks(targets),
        },
    }
    (directory / "counts.py").write_text(MODULE)
    (directory / "cheap.txt").write_text(f"{CHEAP}")
    make_wheel(directory, {"limits.py": "def read(path):\n    return float(path.read_text())\n"}, WHEEL)
    path = directory / f"pipeline-{parallelism}.yaml"
    path.write_text(json.dumps(document))
    return path
