"""Rows of several partitions with event times out of order, and what a window step is to make of them.

The model looks at one row at a time, knows nothing of batches, and decides lateness by the row's own partition. Time is
in milliseconds, `m` is the watermark of a partition before a row: the highest time so far, less the delay, less 1.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from tests.operators.driven import Collected
from tidegate.datatypes import BIGINT, BOOLEAN, STRING, TIMESTAMP
from tidegate.expressions.expression import AggregateCall, ColumnReference
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import CheckpointId, OperatorName
from tidegate.operators.keyed import REASONS
from tidegate.operators.kinds.window import WindowOperator
from tidegate.operators.kinds.window.settings import Windowing
from tidegate.operators.runtime import END_OF_TIME, LOWEST, OperatorRuntime
from tidegate.operators.spec import Columns, Slot
from tidegate.state.backends import choose_backend
from tidegate.state.base import Share
from tidegate.state.keygroups import key_groups_of_keys
from tidegate.task.elements import CatchUpMarker, StreamStatus, Watermark

GROUPS = 8


@dataclass(frozen=True)
class Record:
    """A row as its partition has it. `m`: its partition's watermark when it was read."""

    key: str | None
    value: int | None
    time: int
    m: int


@dataclass(frozen=True)
class Step:
    """Rows that arrive together, or a watermark."""

    rows: tuple[Record, ...] = ()
    watermark: int | None = None


def make_partitions(
    seed: int, partitions: int, rows: int, delay: int, spread: int, step: int, keys: int = 3
) -> list[list[Record]]:
    """Rows by partition: times grow by up to `step`, and are up to `spread` out of order."""
    chance = random.Random(seed)
    made: list[list[Record]] = []
    for _ in range(partitions):
        now, highest, part = chance.randrange(step * 3), -(1 << 62), []
        for _ in range(rows):
            now += chance.randrange(step + 1)
            time = now - (chance.randrange(spread + 1) if chance.random() < 0.5 else 0)
            key = None if chance.random() < 0.05 else f"k{chance.randrange(keys)}"
            value = None if chance.random() < 0.1 else chance.randrange(-50, 50)
            part.append(Record(key, value, time, highest - delay - 1))
            highest = max(highest, time)
        made.append(part)
    return made


def make_steps(seed: int, partitions: Sequence[Sequence[Record]], delay: int) -> Iterator[Step]:
    """One of the ways in which they may arrive: any batches, any interleaving, watermarks when it pleases."""
    chance = random.Random(seed)
    places = [0] * len(partitions)
    highest = [-(1 << 62)] * len(partitions)
    sent = LOWEST
    while any(place < len(part) for place, part in zip(places, partitions, strict=True)):
        rows: list[Record] = []
        for _ in range(chance.randrange(1, 4)):
            one = chance.choice([i for i, part in enumerate(partitions) if places[i] < len(part)] or [0])
            taken = partitions[one][places[one] : places[one] + chance.randrange(1, 6)]
            places[one] += len(taken)
            highest[one] = max([highest[one], *(row.time for row in taken)])
            rows += taken
        yield Step(tuple(rows))
        known = min(highest) - delay - 1
        if chance.random() < 0.6 and known > sent and known > -(1 << 61):
            sent = known if chance.random() < 0.7 else max(sent + 1, known - chance.randrange(20))
            yield Step(watermark=sent)
    yield Step(watermark=END_OF_TIME)


def frame_of(rows: Sequence[Record]) -> pl.DataFrame:
    """Rows as they arrive at the step: `__tidegate_behind` as the source measures it."""
    return pl.DataFrame(
        {
            "k": pl.Series([row.key for row in rows], dtype=pl.String),
            "x": pl.Series([row.value for row in rows], dtype=pl.Int64),
            "__tidegate_time": pl.Series([row.time for row in rows], dtype=pl.Int64),
            "__tidegate_behind": pl.Series([max(0, row.m - row.time + 1) for row in rows], dtype=pl.Int64),
        }
    )


LATE = (("k", STRING), ("x", BIGINT), *REASONS)


def make_window(windowing: Windowing, lateness: int = 0, late: Columns = ()) -> WindowOperator:
    """Counts, sums and finds the first `x` per `k`."""
    x = ColumnReference("x", BIGINT)
    calls = (
        ("n", AggregateCall("count", None, BIGINT)),
        ("total", AggregateCall("sum", x, BIGINT)),
        ("low", AggregateCall("min", x, BIGINT)),
    )
    output = (("k", STRING), ("window_start", TIMESTAMP), ("window_end", TIMESTAMP), *((n, c.type) for n, c in calls))
    if windowing.session and (lateness or windowing.early_ms):
        output = (*output, ("_deleted", BOOLEAN))
    return WindowOperator(OperatorName("w"), ("k",), calls, windowing, lateness, output, BadRecordPolicy.FAIL, late)


_made: list[Subtasks] = []


def close_all() -> None:
    """Close all that have been made: their state may be in RocksDB."""
    while _made:
        _made.pop().close()


class Subtasks:
    """The step at some parallelism, driven as the loop drives it; it can be stopped and restored at another one."""

    def __init__(self, spec: WindowOperator, parallelism: int = 1, backend: str = "memory") -> None:
        _made.append(self)
        self.spec = spec
        self._open(parallelism, backend, [])
        self.out = Collected()
        self._checkpoint = 0
        self._late = 0

    def _open(self, parallelism: int, backend: str, snapshots: list[dict[Any, list[bytes]]]) -> None:
        self._ranges = [
            range(-(-slot * GROUPS // parallelism), -(-(slot + 1) * GROUPS // parallelism))
            for slot in range(parallelism)
        ]
        self.runtimes: list[OperatorRuntime] = []
        for slot, own in enumerate(self._ranges):
            runtime = self.spec.open(Slot(GROUPS, choose_backend(backend, retained=1), own))
            for name, state in runtime.states.items():
                files = [data for snapshot in snapshots for data in snapshot[name]]
                if files:
                    state.restore(files, Share(own, slot, parallelism))
            self.runtimes.append(runtime)

    def feed(self, step: Step) -> None:
        """One step to all subtasks."""
        if step.watermark is not None:
            for runtime in self.runtimes:
                runtime.on_watermark(step.watermark, self.out)
            return
        keys = [(row.key,) for row in step.rows]
        groups = key_groups_of_keys(keys, [STRING], GROUPS)
        for runtime, own in zip(self.runtimes, self._ranges, strict=True):
            rows = [row for row, group in zip(step.rows, groups, strict=True) if group in own]
            if rows:
                runtime.process(0, frame_of(rows), self.out)

    def poll(self, rows_max: int = 1000) -> bool:
        """A turn of every subtask."""
        moved = [runtime.poll(rows_max, self.out) for runtime in self.runtimes]
        return any(moved)

    def settle(self) -> None:
        """Turns until nothing moves."""
        while self.poll():
            pass

    def restart(self, parallelism: int, backend: str) -> None:
        """A snapshot, and what is restored from it."""
        self._checkpoint += 1
        snapshots = []
        for runtime in self.runtimes:
            runtime.before_snapshot()
            files = {}
            for name, state in runtime.states.items():
                encode = state.capture(CheckpointId(self._checkpoint), full=True).encode
                files[name] = [] if encode is None else list(encode())
            snapshots.append(files)
        self._late = self.late
        self.close()
        self._open(parallelism, backend, snapshots)

    def close(self) -> None:
        """Free what the subtasks hold."""
        for runtime in self.runtimes:
            for state in runtime.states.values():
                state.close()
            runtime.close()
        self.runtimes = []

    @property
    def results(self) -> list[tuple[Any, ...]]:
        """Key, start and end in ms, aggregates, in the order in which they were emitted."""
        found: list[tuple[Any, ...]] = []
        for frame in self.out.batches:
            assert frame.columns == [*(name for name, _ in self.spec.output), "__tidegate_time", "__tidegate_behind"]
            assert (frame["__tidegate_time"] == frame["window_end"].cast(pl.Int64) // 1000 - 1).all()
            times = [pl.col(name).cast(pl.Int64) // 1000 for name in ("window_start", "window_end")]
            found += frame.with_columns(times).drop("__tidegate_time", "__tidegate_behind").rows()
        return found

    @property
    def late(self) -> int:
        """Late rows so far."""
        return self._late + sum(runtime.late_rows for runtime in self.runtimes)

    @property
    def shown_late(self) -> list[tuple[Any, ...]]:
        """Key, value, event time and watermark of the rows of the late output."""
        frames = self.out.sides.get("late", [])
        moment = (pl.col("_watermark").cast(pl.Int64) // 1000).alias("_watermark")
        return [row for frame in frames for row in frame.select("k", "x", "__tidegate_time", moment).rows()]

    @property
    def order(self) -> list[pl.DataFrame | Watermark | StreamStatus]:
        """All rows and event time emitted."""
        return [one for one in self.out.order if not isinstance(one, CatchUpMarker)]


def drive(step: Subtasks, chance: random.Random, steps: Iterable[Step], *, polled: float = 0.5) -> None:
    """Feed all of it, with polls and restarts in between; `polled` is the probability of a poll after each."""
    for one in steps:
        step.feed(one)
        if chance.random() < polled:
            step.poll(3)
        if chance.random() < 0.1:
            step.restart(chance.choice([1, 2, 4]), chance.choice(["memory", "memory", "rocksdb"]))
    step.settle()


def aggregate(rows: Sequence[Record]) -> tuple[int, int | None, int | None]:
    """What `make_window` calculates."""
    values = [row.value for row in rows if row.value is not None]
    return len(rows), sum(values) if values else None, min(values, default=None)
