"""Joins of every kind on 200,000 rows equal DuckDB's, through kills and restores at another parallelism.

Both state backends, each with daemons of 1, 4 and 2 slots in turn. In each daemon a slot is killed; the first two
daemons are killed, too. Barriers overtake rows, and a slow sink sees to it that there are rows to overtake.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
from typing_extensions import override

from tests.night.parts import Campaign
from tests.night.story import Night, Result
from tests.support.campaign import GATE_OPENS, Job, Record, deliver_parts, read_rows
from tests.support.daemon_process import DaemonProcess
from tests.support.join_input import DELAY_MS, PARTITIONS, Chunk, JoinInput
from tests.support.join_oracle import JOINS, Expected, check_lookups
from tidegate.dev.broker import DevelopmentBroker

ROWS: Final = 200_000
"""In a night of full length."""
RATE: Final = 4_000
"""Rows of both sides a second."""
SLOTS: Final = (1, 4, 2)
BACKENDS: Final = {"memory": "caught-up", "rocksdb": "never"}
"""By backend, whether idle partitions hold back the watermark."""
SLOW_SINK: Final = {"queue.buffering.max.messages": "100", "linger.ms": "50"}
OUTPUT_S: Final = 900.0
IN_FLIGHT: Final = re.compile(r"([1-9]\d*) rows? in flight towards \S+ restored")
ATTEMPT: Final = re.compile(r"attempt \d+ is running")


def run(night: Night) -> Result:
    """See the module."""
    made = JoinInput(night.seed, max(20_000, round(ROWS * night.scale)))
    expected = Expected(made)
    with DevelopmentBroker(night.place / "broker") as broker:
        for backend, idle in BACKENDS.items():
            with _Campaign(night, broker, made, backend, idle) as campaign:
                campaign.write([Chunk({}, made.customers)])
                campaign.play()
                campaign.compare(expected)
    return night.close()


class _Campaign(Campaign[Chunk]):
    """The joins on one backend."""

    def __init__(self, night: Night, broker: DevelopmentBroker, made: JoinInput, backend: str, idle: str) -> None:
        super().__init__(night, _thirds(made.chunks), OUTPUT_S)
        self._made = made
        self._bootstrap = broker.bootstrap
        self._prefix = f"{backend}-"
        self.prefix = f"{backend}: "
        self._job = Job(f"{backend}-joins", broker.bootstrap, night.place / backend, _settings(backend, idle))
        self._outputs = [*JOINS, "late", "looked_up"]
        topics = PARTITIONS | dict.fromkeys(self._outputs, 3)
        broker.create_topics({self._prefix + name: partitions for name, partitions in topics.items()})
        planned = {"slots killed": len(SLOTS), "daemons killed": len(SLOTS) - 1, "restores": len(SLOTS) - 1}
        for what, least in {**planned, "restores of rows in flight": 1, "gates opened": len(SLOTS)}.items():
            night.least(f"{backend}: {what}", least)

    def compare(self, expected: Expected) -> None:
        """Waits for all output, ends the daemon and compares."""
        orders = Counter(entry.id for _, entry in self._made.written("orders"))
        late = Counter((side[:-1], id_) for side, ids in expected.late.items() for id_ in ids)
        wanted = {**expected.sizes(), "late": late.total(), "looked_up": orders.total()}

        self.finish(wanted)
        self.note("late", late, Counter((row["_side"], row[row["_side"]]["id"]) for row in self._rows("late")))
        for name, pairs in expected.pairs.items():
            found = Counter((row.get("order"), row.get("payment")) for row in self._rows(name))
            self.note(name, pairs, Counter({pair: count for pair, count in found.items() if not _closes(pair)}))
        self.note("looked_up", orders, Counter(row["id"] for row in self._rows("looked_up")))
        for problem in check_lookups(self._made, self._read("looked_up"))[:5]:
            self.night.problem(f"{self.prefix}looked_up: {problem}")

    @override
    def make_daemon(self, number: int) -> DaemonProcess:
        return self._job.daemon(number, SLOTS[number])

    @override
    def count_rows(self, output: str) -> int:
        return sum(map(len, self._read(output)))

    @override
    def read_log(self, daemon: DaemonProcess) -> None:
        """Counts what the daemon has logged, and checks that a gate opened once per attempt at most."""
        text = daemon.text()
        self.count("restores of rows in flight", len(IN_FLIGHT.findall(text)))
        marks = [*(match.start() for match in ATTEMPT.finditer(text)), len(text)]
        opened = [text[begin:end].count(GATE_OPENS) for begin, end in pairwise(marks)]
        self.count("gates opened", sum(opened))
        if max(opened) > 1:
            self.night.problem(f"{daemon.log.name}: a gate opened more than once in an attempt: {opened}")
        super().read_log(daemon)

    def _read(self, name: str) -> list[list[dict[str, Any]]]:
        return read_rows(self._bootstrap, self._prefix + name)

    def _rows(self, name: str) -> list[dict[str, Any]]:
        return [row for part in self._read(name) for row in part]

    @override
    def write(self, chunks: Sequence[Chunk]) -> None:
        deliver_parts(self._bootstrap, map(self._paced, chunks))

    def _paced(self, chunk: Chunk) -> Iterator[Record]:
        yield from _records(self._prefix, chunk)
        threading.Event().wait(sum(map(len, chunk.entries.values())) / RATE)


def _settings(backend: str, idle: str) -> dict[str, Any]:
    """Returns the sections of the pipeline file."""
    prefix = f"{backend}-"
    columns = {"id": "bigint", "account": "bigint", "amount": "bigint", "at": "bigint"}
    timed = {"event_time": "at", "watermark": {"delay": f"{DELAY_MS}ms", "idle": idle}}
    sources: dict[str, Any] = {
        "orders": {"schema": {**columns, "customer": "string"}, **timed},
        "payments": {"schema": {**columns, "account": "int"}, **timed},
        "customers": {
            "schema": {"version": "bigint", "segment": "string"},
            "metadata": {"key": "id"},
            "on_null": "tombstone",
        },
    }
    add = {"version": "customer.version", "segment": "customer.segment"}
    steps: list[dict[str, Any]] = [
        {"name": "customer", "from": "customers", "table": {"key": "id"}},
        {"name": "looked_up", "from": "orders", "lookup": "customer", "on": {"customer": "id"}, "add": add},
    ]
    for name, join in JOINS.items():
        inputs = {"join": {"order": "orders", "payment": "payments"}, "on": {"account": "account"}}
        step = {"name": name, **inputs, **join.settings, "select": {side: f"{side}.id" for side in join.sides}}
        steps.append(step | ({"late": "late"} if name == "full_pairs" else {}))
    sinks: dict[str, Any] = {name: {"from": name, "key": "order"} for name in JOINS}
    sinks["inner_pairs"]["kafka"] = SLOW_SINK
    sinks |= {"looked_up": {"from": "looked_up", "key": "customer"}, "late": {}}
    return {
        "checkpoints": {"unaligned": "always"},
        "state": {"backend": backend},
        "sources": {
            name: {"topic": prefix + name, "format": "json", "start": "earliest", **source}
            for name, source in sources.items()
        },
        "steps": steps,
        "sinks": {
            name if name == "late" else f"{name}_out": {"topic": prefix + name, "format": "json", **sink}
            for name, sink in sinks.items()
        },
    }


def _closes(pair: tuple[int | None, int | None]) -> bool:
    """Returns whether a row of an output has one of the last rows of the partitions."""
    return any(id_ is not None and id_ < 0 for id_ in pair)


def _thirds(chunks: Sequence[Chunk]) -> list[Sequence[Chunk]]:
    cuts = [len(chunks) * place // len(SLOTS) for place in range(len(SLOTS) + 1)]
    return [chunks[begin:end] for begin, end in pairwise(cuts)]


def _records(prefix: str, chunk: Chunk) -> Iterator[Record]:
    for side, rows in chunk.entries.items():
        for partition, entry in rows:
            yield Record(prefix + side, partition, None, msgspec.json.encode(entry))
    for name, row in chunk.customers:
        key = name.encode()
        value = None if row is None else msgspec.json.encode(row)
        yield Record(f"{prefix}customers", sum(key) % PARTITIONS["customers"], key, value)
