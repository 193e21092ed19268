"""The sessions that the input makes, derived record by record in plain Python.

Records are processed in the order of their partitions' watermarks when they were read. Each record closes the sessions
that had ended by then and joins the open sessions that it touches. A record whose own session would already have ended
is late.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from tidegate.ids import TopicPartition
from tidegate.simulation.lateness import NEVER
from tidegate.simulation.timing import Timing
from tidegate.simulation.workload import InputRecord


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


_Placed = tuple[int, InputRecord]
"""The watermark of the record's partition before it, and the record."""


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
