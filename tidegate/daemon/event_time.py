"""Derives the event-time progress of operators, and the partition that holds back a stalled watermark. Pure.

Monotonic seconds are passed as arguments. The input about one operator is its `OperatorCounts` by slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from tidegate.config.fields.counts import render_seconds
from tidegate.ids import OperatorName
from tidegate.operators.runtime import END_OF_TIME, LOWEST
from tidegate.task.report import OperatorCounts

STALL_S: Final = 30.0
"""A watermark that has not advanced for this long although rows arrive is reported."""


class Stall(msgspec.Struct, frozen=True):
    """A source whose watermark does not advance although rows arrive."""

    source: OperatorName
    watermark_ms: int | None
    since_s: float
    """When the watermark last advanced."""
    partition: str
    """The partition that holds it back."""

    def text(self, now_s: float) -> str:
        """Renders the log line."""
        age = render_seconds(now_s - self.since_s)
        what = "no watermark"
        if self.watermark_ms is not None:
            what = f"the watermark stands at {render_moment(self.watermark_ms)}"
        return (
            f"source {self.source}: {what} for {age} although rows arrive: it waits for {self.partition}, whose event "
            "times do not advance; check its producers, or leave it out while it is silent: `watermark: {idle: "
            "caught-up}` of the source"
        )


class _Mark(msgspec.Struct, frozen=True):
    """A watermark, when it was first seen, and how many rows had been read by then."""

    watermark_ms: int | None
    since_s: float
    rows: int


class StallWatch:
    """Detects stalled watermarks. Only sources are examined, because later operators wait for them."""

    def __init__(self) -> None:
        self._marks: dict[OperatorName, _Mark] = {}

    def begin_attempt(self) -> None:
        """Forgets all watermarks: each attempt starts without any."""
        self._marks.clear()

    def observe(self, source: OperatorName, per_slot: Mapping[int, OperatorCounts], now_s: float) -> None:
        """Takes the counts of a source, after every report."""
        watermark_ms, mark = derive_watermark(per_slot), self._marks.get(source)
        if mark is None or mark.watermark_ms != watermark_ms:
            self._marks[source] = _Mark(watermark_ms, now_s, _rows(per_slot))

    def find(self, source: OperatorName, per_slot: Mapping[int, OperatorCounts], now_s: float) -> Stall | None:
        """Returns the current stall; None if the watermark advances, or if no row has arrived since it did."""
        mark, partition = self._marks.get(source), derive_holder(per_slot)
        if mark is None or not partition or now_s - mark.since_s < STALL_S or _rows(per_slot) <= mark.rows:
            return None
        return Stall(source, mark.watermark_ms, mark.since_s, partition)


def _rows(per_slot: Mapping[int, OperatorCounts]) -> int:
    return sum(counts.rows_in for counts in per_slot.values())


def derive_watermark(per_slot: Mapping[int, OperatorCounts]) -> int | None:
    """Returns the lowest watermark of the slots that are not idle; None if one of those has none.

    If all slots are idle, it is the highest. It is END_OF_TIME if all slots that are not idle have ended.
    """
    waited_for = [counts.watermark_ms for counts in per_slot.values() if not counts.idle]
    known = [watermark for watermark in waited_for if watermark is not None]
    if waited_for:
        return min(known) if len(known) == len(waited_for) else None
    return max((one.watermark_ms for one in per_slot.values() if one.watermark_ms is not None), default=None)


def derive_holder(per_slot: Mapping[int, OperatorCounts]) -> str:
    """Returns the partition that holds back the lowest watermark of a source; empty if there is none."""
    holding = [one for one in per_slot.values() if one.held_back_by and not one.idle]
    lowest = min(holding, key=lambda one: LOWEST if one.watermark_ms is None else one.watermark_ms, default=None)
    return lowest.held_back_by if lowest is not None else ""


def as_shown(watermark_ms: int | None) -> int | None:
    """Converts a watermark for display and metrics: ms since 1970, None at the end of event time."""
    return None if watermark_ms == END_OF_TIME else watermark_ms


def render_moment(time_ms: int) -> str:
    """Renders a time like `2026-05-01T10:00:00.000Z`; a time outside the calendar is rendered as a number."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
