"""The accounts of every operator and slot, through all attempts of a daemon: counts, rates, event-time progress. Pure.

Slots report cumulative counts of their attempt (tidegate.task.report); `take` adds what is new. Rates and ratios cover
the last few seconds, so that they show which step is slow now. Monotonic seconds are passed as arguments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from tidegate.config.fields.counts import render_seconds
from tidegate.coordinator.types import SourcePositions
from tidegate.daemon.status import OperatorStatus, SlotStatus, SubtaskStatus
from tidegate.ids import OperatorName, TopicPartition
from tidegate.operators.builtin.kafka_source import SourceOperator, derive_early_remedy, describe_early
from tidegate.operators.runtime import END_OF_TIME, LOWEST
from tidegate.operators.waiting import Waiting, add_gauges
from tidegate.plan.graph import Plan
from tidegate.task.report import OperatorCounts, SlotReport

SAMPLE_SECONDS: Final = 0.25
RATE_WINDOW_SECONDS: Final = 5.0
OTHER: Final = "other"


class ReportCounts:
    """The highest value seen of every count of one slot in one attempt, and its positions."""

    def __init__(self) -> None:
        self.positions: tuple[SourcePositions, ...] = ()
        """The positions that it last reported."""
        self.idle: Mapping[OperatorName, tuple[TopicPartition, ...]] = {}
        """The idle partitions that it last reported, by source."""
        self._seen: dict[Hashable, float] = {}

    def advance(self, name: Hashable, value: float) -> float:
        """Returns what `value` adds to the highest value seen so far: never negative."""
        before = self._seen.get(name, 0)
        self._seen[name] = max(before, value)
        return max(0, value - before)


class CounterWindow:
    """A growing total and its rate over the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.total: float = 0
        self._seconds = seconds
        self._samples: deque[tuple[float, float]] = deque(maxlen=int(seconds / SAMPLE_SECONDS) + 2)

    def observe(self, now: float) -> None:
        """Samples the total at `now`, unless the last sample is less than SAMPLE_SECONDS old."""
        if not self._samples or now - self._samples[-1][0] >= SAMPLE_SECONDS:
            self._samples.append((now, self.total))

    def rate(self, now: float) -> float:
        """Returns units per second since the newest sample that is at least a window old, or since the oldest one."""
        while len(self._samples) > 1 and now - self._samples[1][0] >= self._seconds:
            self._samples.popleft()
        if not self._samples:
            return 0.0
        since, before = self._samples[0]
        return (self.total - before) / max(now - since, SAMPLE_SECONDS)


class LabelBound:
    """Passes the first `limit` values of a label; all later ones become `other`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def of(self, value: str) -> str:
        """Returns the label value to export for `value`."""
        if value in self._known:
            return value
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(value)
        return value


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
            what = f"the watermark has been at {render_moment(self.watermark_ms)}"
        return (
            f"source {self.source}: {what} for {age} although rows arrive: it waits for {self.partition}, of which no "
            "newer event time was read; check its lag and its producers, or exclude it while it is silent by "
            "`watermark: {idle: caught-up}` of the source"
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


COUNTERS: Final = (
    "rows_in", "rows_out", "filtered", "failed", "late", "before_1971", "busy_ms", "blocked_ms", "watermarks",
)  # fmt: skip
"""The fields of `OperatorCounts` that only grow within an attempt."""
OPERATOR_COUNTERS: Final[tuple[tuple[str, bool, Callable[[OperatorCounts], float]], ...]] = (
    ("tidegate_operator_rows_in_total", True, lambda new: new.rows_in),
    ("tidegate_operator_rows_out_total", True, lambda new: new.rows_out),
    ("tidegate_operator_rows_filtered_total", False, lambda new: new.filtered),
    ("tidegate_operator_rows_failed_total", False, lambda new: new.failed),
    ("tidegate_operator_rows_late_total", True, lambda new: new.late),
    ("tidegate_operator_busy_seconds_total", True, lambda new: new.busy_ms / 1000),
    ("tidegate_operator_blocked_seconds_total", True, lambda new: new.blocked_ms / 1000),
    ("tidegate_operator_watermarks_total", True, lambda new: new.watermarks),
)
"""Metrics of every operator: whether they have a label for the slot, and what new counts add to them."""
NO_REMEDIES: Final[Mapping[OperatorName, str]] = {}
NO_WAITS: Final[Mapping[OperatorName, Waiting]] = {}


class OperatorAccounts:
    """The accounts of all operators and slots.

    `kinds` maps the operators of the plan, in its order, to the names of their kinds. `remedies` advises what to do
    about sources whose event times are before 1971. `waits` tells what the rows wait for that operators keep.
    """

    def __init__(
        self,
        kinds: Mapping[OperatorName, str],
        remedies: Mapping[OperatorName, str] = NO_REMEDIES,
        waits: Mapping[OperatorName, Waiting] = NO_WAITS,
    ) -> None:
        self._kinds = kinds
        self._waits = waits
        self._remedies = remedies
        self._early: set[OperatorName] = set()
        self._operators = {name: _Account(RATE_WINDOW_SECONDS) for name in kinds}
        self._slots: dict[int, SlotStatus] = {}
        self._stalls = StallWatch()

    def take(self, slot: int, report: SlotReport, seen: ReportCounts) -> dict[OperatorName, OperatorCounts]:
        """Adds what is new in a report and returns it. `seen` holds the slot's counts of this attempt so far."""
        added = {}
        for name, counts in report.operators.items():
            added[name] = new = _derive_new(name, counts, seen)
            if name not in self._operators:
                self._operators[name] = _Account(RATE_WINDOW_SECONDS)
            self._operators[name].add(slot, new)
        return added

    def add_times(self, slot: int, busy_s: float, backpressured_s: float, idle_s: float) -> None:
        """Adds to the time that the slot's loop has spent."""
        before = self._slots.get(slot, SlotStatus(slot))
        self._slots[slot] = SlotStatus(
            slot,
            before.busy_seconds + busy_s,
            before.backpressured_seconds + backpressured_s,
            before.idle_seconds + idle_s,
        )

    def observe(self, now: float) -> None:
        """Takes a sample of every window."""
        for account in self._operators.values():
            for window in account.windows:
                window.observe(now)

    def begin_attempt(self) -> None:
        """Clears the watermarks, which belong to an attempt; counts continue."""
        self._stalls.begin_attempt()
        for account in self._operators.values():
            for counts in account.slots.values():
                _set_gauges(counts, OperatorCounts())

    def watermarks(self) -> dict[OperatorName, int | None]:
        """Returns watermarks over all slots, ms since 1970; None before the first and at the end of event time."""
        return {name: as_shown(derive_watermark(account.slots)) for name, account in self._operators.items()}

    def stalls(self, now: float) -> dict[OperatorName, Stall | None]:
        """Returns for every source whether its watermark is stalled although rows arrive. Called after every report."""
        found: dict[OperatorName, Stall | None] = {}
        for name, account in self._operators.items():
            if self.is_source(name):
                self._stalls.observe(name, account.slots, now)
                found[name] = self._stalls.find(name, account.slots, now)
        return found

    def holders(self) -> dict[OperatorName, str]:
        """Returns for every source the partition that its watermark waits for; empty if it waits for none."""
        return {name: derive_holder(one.slots) for name, one in self._operators.items() if self.is_source(name)}

    def is_source(self, name: OperatorName) -> bool:
        """Returns whether the operator is a source of the plan."""
        return self._kinds.get(name) == "source"

    def take_early(self) -> list[str]:
        """Returns a log line for each source whose first event times before 1971 were seen, once per source."""
        found = {name: sum(of.before_1971 for of in one.slots.values()) for name, one in self._operators.items()}
        new = {name: count for name, count in found.items() if count and name not in self._early}
        self._early.update(new)
        return [describe_early(name, count, self._remedies.get(name, "")) for name, count in new.items()]

    @property
    def slots(self) -> tuple[SlotStatus, ...]:
        """The status of every slot that has reported, by number."""
        return tuple(status for _, status in sorted(self._slots.items()))

    def operators(self, now: float, now_ms: int) -> tuple[OperatorStatus, ...]:
        """Returns the status of all operators in the order of the plan; `now_ms` is the wall clock."""
        return tuple(self._status(name, account, now, now_ms) for name, account in self._operators.items())

    def _status(self, name: OperatorName, account: _Account, now: float, now_ms: int) -> OperatorStatus:
        total = derive_total(account.slots)
        watermark_ms, stall = as_shown(total.watermark_ms), self._stalls.find(name, account.slots, now)
        rows_in, rows_out, busy_ms = (window.rate(now) for window in account.windows)
        waits = self._waits.get(name)
        return OperatorStatus(
            **_figures(total),
            name=name,
            kind=self._kinds.get(name, ""),
            rows_in_per_second=rows_in,
            rows_out_per_second=rows_out,
            busy_ratio=busy_ms / 1000 / max(1, len(account.slots)),
            event_time_lag_seconds=None if watermark_ms is None else (now_ms - watermark_ms) / 1000,
            stalled_seconds=None if stall is None else now - stall.since_s,
            held_back_by="" if stall is None else stall.partition,
            before_1971_remedy=self._remedies.get(name, "") if total.before_1971 else "",
            waiting="" if waits is None else waits.describe(total.gauges, render_moment),
            subtasks=tuple(SubtaskStatus(slot=slot, **_figures(one)) for slot, one in sorted(account.slots.items())),
        )


class _Account:
    """One operator: counts by slot; rows in, rows out and busy milliseconds of the last seconds."""

    def __init__(self, window_s: float) -> None:
        self.slots: dict[int, OperatorCounts] = {}
        self.windows = (CounterWindow(window_s), CounterWindow(window_s), CounterWindow(window_s))

    def add(self, slot: int, new: OperatorCounts) -> None:
        _add(self.slots.setdefault(slot, OperatorCounts()), new)
        for window, added in zip(self.windows, (new.rows_in, new.rows_out, new.busy_ms), strict=True):
            window.total += added


def derive_kinds(plan: Plan) -> dict[OperatorName, str]:
    """Returns the kind of each operator of a plan, in the order of the vertices."""
    return {node.operator.name: node.operator.kind for node in plan.nodes}


def derive_remedies(plan: Plan) -> dict[OperatorName, str]:
    """Returns for each source of a plan the advice about event times before 1971."""
    return {source.name: derive_early_remedy(source) for source in plan.operators(SourceOperator)}


def derive_waits(plan: Plan) -> dict[OperatorName, Waiting]:
    """Returns what the rows wait for that operators of a plan keep."""
    found = {node.operator.name: node.operator.waits() for node in plan.nodes}
    return {name: waits for name, waits in found.items() if waits is not None}


def derive_total(per_slot: Mapping[int, OperatorCounts]) -> OperatorCounts:
    """Adds up the counts of all slots."""
    total, gauges = OperatorCounts(), dict[str, int]()
    for one in per_slot.values():
        _add(total, one)
        gauges = add_gauges(gauges, one.gauges)
    total.gauges = gauges
    total.watermark_ms = derive_watermark(per_slot)
    total.idle = bool(per_slot) and all(one.idle for one in per_slot.values())
    return total


def _figures(counts: OperatorCounts) -> dict[str, Any]:
    return {
        **{count: getattr(counts, count) for count in COUNTERS if not count.endswith("_ms")},
        "busy_seconds": counts.busy_ms / 1000,
        "blocked_seconds": counts.blocked_ms / 1000,
        "watermark_ms": as_shown(counts.watermark_ms),
        "idle": counts.idle,
        "gauges": counts.gauges,
    }


def _derive_new(name: OperatorName, counts: OperatorCounts, seen: ReportCounts) -> OperatorCounts:
    new = OperatorCounts()
    for count in COUNTERS:
        setattr(new, count, seen.advance((count, name), getattr(counts, count)))
    _set_gauges(new, counts)
    return new


def _add(total: OperatorCounts, new: OperatorCounts) -> None:
    for count in COUNTERS:
        setattr(total, count, getattr(total, count) + getattr(new, count))
    _set_gauges(total, new)


def _set_gauges(counts: OperatorCounts, new: OperatorCounts) -> None:
    """Replaces the gauges by their current values."""
    counts.watermark_ms = new.watermark_ms
    counts.idle = new.idle
    counts.held_back_by = new.held_back_by
    counts.gauges = new.gauges
