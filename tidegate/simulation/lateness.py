"""Which records of the input are late for their windows, derived from the input alone.

A record is late for a window whose end the watermark of its own partition had passed when the record was read. That
watermark is the highest event time before the record in its partition, minus the delay; it is a property of the log.

If a partition may have been idle, the others may have closed the window before, so such a record may be counted or
late. If all partitions that have been idle resumed level with the others, a record is only late because of records that
arrived before it, never because of later ones (ADR 52).

Sessions are derived record by record, in the order of the watermarks of their partitions when they were read. Each
record closes the sessions that had ended by then and joins the open sessions that it touches. A record whose own
session would already have ended is late.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import accumulate
from typing import Final

import msgspec

from tidegate.ids import TopicPartition
from tidegate.simulation.kernel import START_S
from tidegate.simulation.timing import Timing, derive_ms
from tidegate.simulation.workload import InputRecord, Workload

NEVER: Final = -1
"""Lower than any event time."""
FOREVER: Final = 1 << 62
"""Higher than any event time."""
IDLE_S: Final = 0.95
"""A partition becomes idle only after about this long without records."""


class RowOutcome(Enum):
    """The outcome of a record in a window."""

    COUNTED = "counted"
    LATE = "late"
    EITHER = "either"


class ObservedWatermark(msgspec.Struct, frozen=True):
    """The observer's knowledge of how the input was read."""

    arrived: Sequence[InputRecord]
    """All records in the order of their arrival. A record's number is its index."""
    skipped: frozenset[int]
    """Records before the start."""
    settled: Mapping[int, int]
    """Record -> the number of records that had arrived when a checkpoint without rows in flight had it in its state."""
    clocks_set: bool = False
    """A clock has been set meanwhile."""

    @property
    def records(self) -> list[InputRecord]:
        """The records that are to be processed."""
        return [record for record in self.arrived if record.id not in self.skipped]


class LatenessBounds(msgspec.Struct, frozen=True):
    """Times up to which windows had ended when a record was processed."""

    surely_ms: int
    """According to its own partition."""
    perhaps_ms: int
    """According to other partitions."""

    def outcome(self, last_ms: int) -> RowOutcome:
        """Returns the outcome of the record in a window that stays open up to this time."""
        if last_ms <= self.surely_ms:
            return RowOutcome.LATE
        return RowOutcome.EITHER if last_ms <= self.perhaps_ms else RowOutcome.COUNTED


def derive_limits(
    workload: Workload, timing: Timing, reading: ObservedWatermark, size_ms: int
) -> dict[int, LatenessBounds]:
    """Derives the bounds of every record that is to be processed.

    `size_ms`: size of the windows that the end of a bounded read closes.
    """
    highest: dict[TopicPartition, int] = {}
    bounds = _Bounds(timing, reading, size_ms)
    idle = _derive_idle(workload, timing, reading.arrived, bounds)
    certain = 0 if workload.noisy else workload.backlog
    limits = {}
    for record in reading.records:
        before = highest.get(record.place)
        perhaps_ms = NEVER
        if record.id in idle:
            surely_known = not workload.noisy and record.place.partition < workload.partitions
            level = surely_known and idle[record.id]
            perhaps_ms = bounds.watermark_before(record) if level else bounds.watermark(record)
            perhaps_ms = FOREVER if timing.by_clock else perhaps_ms
        if workload.bounded and record.id >= certain:
            perhaps_ms = max(perhaps_ms, bounds.end(record))
        limits[record.id] = LatenessBounds(NEVER if before is None else before - timing.delay_ms - 1, perhaps_ms)
        highest[record.place] = max(before if before is not None else record.event_ms, record.event_ms)
    return limits


def derive_limits_by_arrival(timing: Timing, reading: ObservedWatermark) -> dict[int, LatenessBounds]:
    """Derives the same bounds where a step gives records their event time.

    Its watermark goes by the records that have arrived, in any partition, before the record or in the same millisecond.
    """
    newest: dict[int, int] = {}
    for record in reading.arrived:
        at_ms = derive_ms(record.arrived_s)
        newest[at_ms] = max(newest.get(at_ms, NEVER), record.event_ms)
    reached = dict(zip(sorted(newest), accumulate((newest[at_ms] for at_ms in sorted(newest)), max), strict=True))
    highest: dict[TopicPartition, int] = {}
    limits = {}
    for record in reading.records:
        before = highest.get(record.place)
        lag_ms = timing.delay_ms + 1
        surely_ms = NEVER if before is None else before - lag_ms
        limits[record.id] = LatenessBounds(surely_ms, reached[derive_ms(record.arrived_s)] - lag_ms)
        highest[record.place] = max(before if before is not None else record.event_ms, record.event_ms)
    return limits


def passed_by(records: Sequence[InputRecord], done: frozenset[int], timing: Timing) -> tuple[int | None, int | None]:
    """Returns the lowest and the highest possible watermark after `done` has been read; None if there may be none."""
    highest: dict[TopicPartition, int] = {}
    for record in records:
        if record.id in done:
            highest[record.place] = max(highest.get(record.place, record.event_ms), record.event_ms)
    if not highest:
        return None, None
    watermarks = [time_ms - timing.delay_ms - 1 for time_ms in highest.values()]
    everywhere = highest.keys() >= {record.place for record in records}
    return min(watermarks) if everywhere else None, max(watermarks)


class _Bounds:
    """Upper bounds of the progress of other partitions when a record was processed."""

    def __init__(self, timing: Timing, reading: ObservedWatermark, size_ms: int) -> None:
        times = [record.event_ms for record in reading.arrived]
        self._watermarks = list(accumulate((time - timing.delay_ms - 1 for time in times), max))
        self._ends = list(accumulate((time + size_ms + timing.allowed_ms for time in times), max))
        self._settled = reading.settled
        self._before_its_moment = _count_before([record.arrived_s for record in reading.arrived])
        self._delay_ms = timing.delay_ms

    def watermark(self, record: InputRecord) -> int:
        """Returns the highest watermark of any partition when the record was processed."""
        return self._watermarks[self._before(record)]

    def watermark_before(self, record: InputRecord) -> int:
        """Returns the highest watermark of any partition before the record arrived, without simultaneous ones."""
        before = self._before_its_moment[record.id]
        return self._watermarks[before - 1] if before else NEVER

    def is_level(self, record: InputRecord) -> bool:
        """Returns whether the record's partition is level with the others before it, or ahead."""
        return record.event_ms - self._delay_ms - 1 >= self.watermark_before(record)

    def end(self, record: InputRecord) -> int:
        """Returns an upper bound of the time up to which the end of a bounded read can have closed windows."""
        return self._ends[self._before(record)]

    def _before(self, record: InputRecord) -> int:
        return self._settled.get(record.id, len(self._ends)) - 1


def _count_before(moments: Sequence[float]) -> list[int]:
    """Returns for each value how many are smaller. The values never decrease."""
    return [bisect_left(moments, moment) for moment in moments]


def _derive_idle(
    workload: Workload, timing: Timing, arrived: Sequence[InputRecord], bounds: _Bounds
) -> dict[int, bool]:
    """Returns the records before which their partition may have been idle, or was not known yet.

    The value is whether all partitions that have been idle resumed level with the others. Then nothing advances ahead
    of them (ADR 52). A partition that resumes late by its own watermark holds nothing back, and may make the other
    partitions of its subtask late.
    """
    newest: dict[TopicPartition, float] = {}
    idle: dict[TopicPartition, bool] = {}
    found = {}
    for record in arrived:
        place = record.place
        grown = place.partition >= workload.partitions
        gap_s = record.arrived_s - newest.get(place, START_S)
        if grown or (timing.idle != "never" and (gap_s >= IDLE_S or workload.noisy)):
            idle[place] = bounds.is_level(record)
        if place in idle:
            found[record.id] = all(idle.values())
        newest[place] = record.arrived_s
    return found


_Placed = tuple[int, InputRecord]
"""The watermark of the record's partition before it, and the record."""


class Session(msgspec.Struct):
    """Records of one key, each within the gap of the next."""

    first_ms: int
    end_ms: int
    records: list[InputRecord]


def derive_sessions(records: Sequence[InputRecord], timing: Timing) -> list[Session]:
    """Derives the sessions of all skus. Nothing is ever idle, and the input has no end."""
    return _join(_placed(records, timing), timing.size_ms)


def derive_early(records: Sequence[InputRecord], timing: Timing) -> list[Session]:
    """Derives the possible early results: the open sessions at each due time, from the records before it."""
    placed, every_ms = _placed(records, timing), timing.early_ms
    dues = [
        (one, after - after % every_ms + every_ms) for one in placed for after in (max(one[1].event_ms, one[0] + 1),)
    ]
    found: list[Session] = []
    for due_ms in sorted({due_ms for _, due_ms in dues}):
        skus = {one.sku for (_, one), first_ms in dues if first_ms == due_ms}
        taken = [one for one, first_ms in dues if first_ms <= due_ms and one[1].sku in skus]
        found += [one for one in _join(taken, timing.size_ms) if one.end_ms >= due_ms]
    return found


def _placed(records: Sequence[InputRecord], timing: Timing) -> list[_Placed]:
    """Returns the records in the order of their partitions' watermarks."""
    highest: dict[TopicPartition, int] = {}
    placed = []
    for record in records:
        before = highest.get(record.place)
        placed.append((NEVER if before is None else before - timing.delay_ms - 1, record))
        highest[record.place] = record.event_ms if before is None else max(before, record.event_ms)
    return sorted(placed, key=lambda one: (one[0], -one[1].event_ms))


def _join(placed: Sequence[_Placed], size_ms: int) -> list[Session]:
    closed: list[Session] = []
    opened: dict[str, list[Session]] = defaultdict(list)
    for passed_ms, record in placed:
        at, sessions = record.event_ms, opened[record.sku]
        closed += [one for one in sessions if one.end_ms <= passed_ms]
        still = [one for one in sessions if one.end_ms > passed_ms]
        touched = [one for one in still if one.first_ms <= at + size_ms and at <= one.end_ms]
        if touched or at + size_ms > passed_ms:
            still = [one for one in still if one not in touched]
            own = Session(at, at + size_ms, [record])
            still.append(_merge([own, *touched]))
        opened[record.sku] = still
    return [*closed, *(one for sessions in opened.values() for one in sessions)]


def _merge(sessions: Sequence[Session]) -> Session:
    return Session(
        min(one.first_ms for one in sessions),
        max(one.end_ms for one in sessions),
        sorted((record for one in sessions for record in one.records), key=lambda record: record.id),
    )
