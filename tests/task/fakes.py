"""Fake sources, operators and sinks that keep the promises of tidegate.task.ports, and a clock that does not move."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from typing import cast

import msgspec
import polars as pl

from tidegate.committable import Committable
from tidegate.coordinator.types import SourcePositions, StateHandle
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.ids import (
    Attempt,
    CheckpointId,
    OperatorName,
    SlotIndex,
    StateName,
    TopicPartition,
    TransactionalId,
)
from tidegate.operators.runtime import ROWS_MAX, OperatorRuntime, OperatorState, Out
from tidegate.state.increments import Capture
from tidegate.task.ports import Prepared, StateCapture

ATTEMPT = Attempt(5)

Row = tuple[int, int]
"""Key and number; every number occurs once in a test."""


def frame_of(rows: Iterable[Row]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema={"k": pl.Int64, "n": pl.Int64}, orient="row")


class VirtualClock:
    """Moves only when a test says so."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def elapsed_ms(self) -> float:
        return float(self.ms)


class Trace:
    """What the fakes and the outputs of one slot did, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []
        self._producers = itertools.count()

    def next_producer(self) -> int:
        """Producer ids are unique in the cluster."""
        return next(self._producers)

    def add(self, *event: object) -> None:
        self.events.append(event)


class FakeSource(OperatorRuntime):
    """Returns the given batches; its position is the number of rows returned."""

    def __init__(self, name: str, slot: int, batches: Iterable[Sequence[Row]] = (), *, bounded: bool = False) -> None:
        self.name = name
        self.slot = slot
        self.batches = deque(batches)
        self.returned: list[Row] = []
        self.added: list[TopicPartition] = []
        self.polls = 0
        self.bounded = bounded
        self.asked_still_idle = False
        self.rows_taken = 0
        self.gathers = False
        """Whether each batch waits for a barrier."""
        self.released = False
        self.left_out = 0
        """Of each batch, as bad records are."""

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        raise AssertionError("nothing arrives at a source")

    def poll(self, rows_max: int, out: Out) -> bool:
        self.polls += 1
        frame = self.take(rows_max)
        if frame is None:
            return False
        out.emit(frame[self.left_out :])
        return True

    def take(self, rows_max: int) -> pl.DataFrame | None:
        if not self.batches or not rows_max or (self.gathers and not self.released):
            return None
        self.released = False
        rows = self.batches.popleft()
        if len(rows) > rows_max:
            self.batches.appendleft(rows[rows_max:])
            rows = rows[:rows_max]
        self.returned += rows
        self.rows_taken = len(rows)
        return frame_of(rows).with_columns(
            pl.lit(self.slot).alias("__tidegate_partition"),
            pl.int_range(len(self.returned) - len(rows), len(self.returned)).alias("__tidegate_offset"),
        )

    def release(self) -> bool:
        self.released = self.gathers and bool(self.batches)
        return self.released

    def positions(self) -> SourcePositions:
        partition = TopicPartition(self.name, self.slot)
        return SourcePositions(OperatorName(self.name), ((partition, len(self.returned)),))

    def add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        self.added += partitions

    @property
    def finished(self) -> bool:
        return self.bounded and not self.batches

    def ask_still_idle(self) -> None:
        self.asked_still_idle = True

    def take_still_idle(self) -> bool:
        asked, self.asked_still_idle = self.asked_still_idle, False
        return asked

    @property
    def held_back_by(self) -> None:
        return None


def overflow(row: int, number: int) -> RecordFailure:
    return RecordFailure(row, FailureKind.ARITHMETIC_OVERFLOW, f"of {number}")


class FakeFilter(OperatorRuntime):
    """Passes everything on except numbers that are said to be bad or unwanted."""

    def __init__(self, bad: Iterable[int] = (), unwanted: Iterable[int] = ()) -> None:
        self.bad = set(bad)
        self.unwanted = set(unwanted)

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        numbers = batch["n"].to_list()
        failures = [overflow(row, n) for row, n in enumerate(numbers) if n in self.bad]
        if failures:
            out.fail(batch, failures)
        out.emit(batch.filter(~pl.col("n").is_in(list(self.bad | self.unwanted))))


class FakeTotals(OperatorRuntime):
    """Keyed state: the numbers seen, per key. The capture sees the state as it was at the barrier (F23)."""

    def __init__(self, trace: Trace) -> None:
        self.states = {StateName("totals"): cast("OperatorState", self)}
        self.seen: list[Row] = []
        self.told: list[tuple[object, ...]] = []
        self.full = False
        self.builds_on: tuple[StateHandle, ...] = ()
        self._trace = trace

    def restore(self, rows: Iterable[Row]) -> None:
        self.seen += rows

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self.seen += batch.select("k", "n").rows()
        out.emit(batch)

    def capture(self, _checkpoint: CheckpointId, *, full: bool) -> StateCapture:
        self._trace.add("capture")
        self.full = full
        held = list(self.seen)
        return Capture(lambda: [msgspec.json.encode(held)], self.builds_on)

    def stored(self, checkpoint: CheckpointId, files: Sequence[StateHandle]) -> None:
        self.told.append(("stored", checkpoint, *(file.path for file in files)))

    def completed(self, checkpoint: CheckpointId) -> None:
        self.told.append(("completed", checkpoint))

    def abandoned(self, checkpoint: CheckpointId) -> None:
        self.told.append(("abandoned", checkpoint))


class FakeSink(OperatorRuntime):
    """Keeps the promises of a transactional sink: one transaction per interval, repeated until confirmed."""

    def __init__(self, name: str, slot: int, trace: Trace, attempt: Attempt = ATTEMPT) -> None:
        self.name = name
        self.slot = slot
        self.attempt = attempt
        self.open: list[Row] = []
        self.transactions: dict[int, list[Row]] = {}
        """Rows by producer id, for every transaction ever prepared."""
        self.free = ROWS_MAX
        self.holds_prepares = False
        self.completed_with: list[tuple[int, frozenset[TransactionalId]]] = []
        self.aborted_with: list[int] = []
        self._unconfirmed: dict[int, list[Committable]] = {}
        self._finished: list[Prepared] = []
        self._trace = trace

    @property
    def room(self) -> int:
        return self.free

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self.open += batch.select("k", "n").rows()

    def turn(self) -> bool:
        return False

    def prepare(self, checkpoint: CheckpointId, *, final: bool = False) -> None:
        self._trace.add("prepare", checkpoint)
        producer = 1000 * self.slot + self._trace.next_producer()
        self.transactions[producer], self.open = self.open, []
        committable = Committable(
            sink=OperatorName(self.name),
            subtask=SlotIndex(self.slot),
            attempt=self.attempt,
            checkpoint=checkpoint,
            transactional_id=TransactionalId(f"p.{self.name}.{self.slot}.{producer}"),
            producer_id=producer,
            producer_epoch=0,
            written=(),
            opened_at_ms=0,
            timeout_ms=60_000,
        )
        self._finished.append(Prepared(checkpoint, (committable,), 2.5))
        self._unconfirmed.setdefault(checkpoint, []).append(committable)

    def poll_prepared(self) -> Sequence[Prepared]:
        if self.holds_prepares:
            return ()
        finished, self._finished = self._finished, []
        return finished

    def unconfirmed(self) -> Sequence[Committable]:
        return [committable for part in self._unconfirmed.values() for committable in part]

    def completed(self, checkpoint: CheckpointId, released: frozenset[TransactionalId]) -> None:
        self.completed_with.append((checkpoint, released))
        self._unconfirmed = {k: part for k, part in self._unconfirmed.items() if k > checkpoint}

    def aborted(self, checkpoint: CheckpointId) -> None:
        self.aborted_with.append(checkpoint)

    @property
    def oldest_age_ms(self) -> int | None:
        return None
