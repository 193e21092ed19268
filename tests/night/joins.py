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
from typing import Any, Final, Self

import msgspec

from tests.night.story import TRACE, Night, Result
from tests.support.campaign import GATE_OPENS, Job, Record, deliver_parts, read_rows
from tests.support.daemon_process import DaemonProcess
from tests.support.join_input import DELAY_MS, PARTITIONS, Chunk, JoinInput
from tests.support.join_oracle import JOINS, Expected, check_lookups, compare
from tests.support.processes import kill
from tests.support.rig import restored_checkpoint
from tests.waiting import wait_until
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
                campaign.play()
                campaign.compare(expected)
    return night.close()


class _Campaign:
    """The joins on one backend."""

    def __init__(self, night: Night, broker: DevelopmentBroker, made: JoinInput, backend: str, idle: str) -> None:
        self._night, self._made = night, made
        self._bootstrap = broker.bootstrap
        self._prefix = f"{backend}-"
        self._job = Job(f"{backend}-joins", broker.bootstrap, night.place / backend, _settings(backend, idle))
        self._daemon: DaemonProcess | None = None
        self._outputs = [*JOINS, "late", "looked_up"]
        topics = PARTITIONS | dict.fromkeys(self._outputs, 3)
        broker.create_topics({self._prefix + name: partitions for name, partitions in topics.items()})
        planned = {"slots killed": len(SLOTS), "daemons killed": len(SLOTS) - 1, "restores": len(SLOTS) - 1}
        for what, least in {**planned, "restores of rows in flight": 1, "gates opened": len(SLOTS)}.items():
            night.least(f"{backend}: {what}", least)

    def play(self) -> None:
        """Writes all input, in thirds, each while another daemon runs."""
        self._write([Chunk({}, self._made.customers)])
        for number, (slots, chunks) in enumerate(zip(SLOTS, _thirds(self._made.chunks), strict=True)):
            writer = threading.Thread(target=self._write, args=(chunks,), daemon=True)
            daemon = self._daemon = self._job.daemon(number, slots)
            with self._night.recovery():
                daemon.start().wait_running()
            if number:
                restored_checkpoint(daemon.text())
                self._count("restores")
            writer.start()
            daemon.wait_committed()
            self._night.pause(1.0, 5.0)
            with self._night.recovery():
                attempt = daemon.attempt
                assert kill(self._night.dice.choice(daemon.slots())), "the slot was gone before the kill"
                self._count("slots killed")
                daemon.wait_attempt(attempt)
            writer.join(OUTPUT_S)
            assert not writer.is_alive(), "the writer hangs"
            if number < len(SLOTS) - 1:
                daemon.kill()
                self._count("daemons killed")
                self._read_log(daemon)

    def compare(self, expected: Expected) -> None:
        """Waits for all output, ends the daemon and compares."""
        daemon = self._daemon
        assert daemon is not None
        orders = Counter(entry.id for _, entry in self._made.written("orders"))
        late = Counter((side[:-1], id_) for side, ids in expected.late.items() for id_ in ids)
        wanted = {**expected.sizes(), "late": late.total(), "looked_up": orders.total()}

        def complete() -> bool:
            daemon.assert_alive()
            return all(sum(map(len, self._read(name))) >= count for name, count in wanted.items())

        try:
            wait_until(complete, f"{wanted} rows in the outputs", OUTPUT_S)
        except AssertionError as missing:
            self._night.problem(str(missing))
        if (code := daemon.terminate()) != 0:
            self._night.problem(f"SIGTERM: exit code {code}: {daemon.text()[-1000:]}")
        self._read_log(daemon)
        self._note("late", late, Counter((row["_side"], row[row["_side"]]["id"]) for row in self._rows("late")))
        for name, pairs in expected.pairs.items():
            found = Counter((row.get("order"), row.get("payment")) for row in self._rows(name))
            self._note(name, pairs, Counter({pair: count for pair, count in found.items() if not _closes(pair)}))
        self._note("looked_up", orders, Counter(row["id"] for row in self._rows("looked_up")))
        for problem in check_lookups(self._made, self._read("looked_up"))[:5]:
            self._night.problem(f"{self._prefix}looked_up: {problem}")

    def _note(self, name: str, expected: Counter[Any], found: Counter[Any]) -> None:
        difference, result = compare(expected, found), self._night.result
        result.expected += expected.total()
        result.seen += found.total()
        result.missing += difference.lost
        result.duplicate += difference.doubled
        result.wrong += difference.unexpected
        self._night.count(f"rows of {name}", found.total())
        if difference or not expected:
            self._night.problem(f"{self._prefix}{name}: {difference}")

    def _count(self, what: str, more: int = 1) -> None:
        self._night.count(f"{self._prefix[:-1]}: {what}", more)

    def _read_log(self, daemon: DaemonProcess) -> None:
        """Counts what the daemon has logged, and checks that a gate opened once per attempt at most."""
        text = daemon.text()
        self._count("restores of rows in flight", len(IN_FLIGHT.findall(text)))
        marks = [*(match.start() for match in ATTEMPT.finditer(text)), len(text)]
        opened = [text[begin:end].count(GATE_OPENS) for begin, end in pairwise(marks)]
        self._count("gates opened", sum(opened))
        if max(opened) > 1:
            self._night.problem(f"{daemon.log.name}: a gate opened more than once in an attempt: {opened}")
        if TRACE in text:
            self._night.problem(f"{daemon.log.name}: {text[text.index(TRACE) :][:1000]}")

    def _read(self, name: str) -> list[list[dict[str, Any]]]:
        return read_rows(self._bootstrap, self._prefix + name)

    def _rows(self, name: str) -> list[dict[str, Any]]:
        return [row for part in self._read(name) for row in part]

    def _write(self, chunks: Sequence[Chunk]) -> None:
        """Writes the chunks at the rate of the campaign; each is delivered before the next one."""
        deliver_parts(self._bootstrap, map(self._paced, chunks))

    def _paced(self, chunk: Chunk) -> Iterator[Record]:
        yield from _records(self._prefix, chunk)
        threading.Event().wait(sum(map(len, chunk.entries.values())) / RATE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._daemon is not None:
            self._daemon.destroy()


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
