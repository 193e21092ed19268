"""What every operator and every slot has done, through all attempts of a daemon. Pure: time comes in as an argument.

Slots report cumulative counts of their attempt (tidegate.task.report); `take` adds what is new. Rates and shares are
over the last few seconds, so that the step that is slow now can be named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.daemon.rates import CounterWindow, ReportCounts
from tidegate.daemon.status import OperatorStatus, SlotStatus, SubtaskStatus
from tidegate.ids import OperatorName
from tidegate.plan.graph import Plan
from tidegate.task.report import OperatorCounts, SlotReport


class OperatorAccounts:
    """See the module. `kinds` are the operators of the plan in its order, with the word for what each is."""

    def __init__(self, kinds: Mapping[OperatorName, str], window_s: float) -> None:
        self._kinds = kinds
        self._window_s = window_s
        self._operators = {name: _Account(window_s) for name in kinds}
        self._slots: dict[int, SlotStatus] = {}

    def take(self, slot: int, report: SlotReport, seen: ReportCounts) -> dict[OperatorName, OperatorCounts]:
        """Add what is new in a report; returns that. `seen` holds the slot's counts of this attempt so far."""
        added = {}
        for name, counts in report.operators.items():
            added[name] = new = _derive_new(name, counts, seen)
            if name not in self._operators:
                self._operators[name] = _Account(self._window_s)
            self._operators[name].add(slot, new)
        return added

    def add_times(self, slot: int, busy_s: float, backpressured_s: float, idle_s: float) -> None:
        """The slot's loop has spent so much more time."""
        before = self._slots.get(slot, SlotStatus(slot))
        self._slots[slot] = SlotStatus(
            slot,
            before.busy_seconds + busy_s,
            before.backpressured_seconds + backpressured_s,
            before.idle_seconds + idle_s,
        )

    def observe(self, now: float) -> None:
        """See CounterWindow."""
        for account in self._operators.values():
            for window in account.windows:
                window.observe(now)

    def begin_attempt(self) -> None:
        """A watermark belongs to an attempt; counts go on."""
        for account in self._operators.values():
            for counts in account.slots.values():
                counts.watermark_ms = None

    @property
    def slots(self) -> tuple[SlotStatus, ...]:
        """Of every slot that has reported, by its number."""
        return tuple(status for _, status in sorted(self._slots.items()))

    def operators(self, now: float) -> tuple[OperatorStatus, ...]:
        """In the order of the plan."""
        return tuple(self._status(name, account, now) for name, account in self._operators.items())

    def _status(self, name: OperatorName, account: _Account, now: float) -> OperatorStatus:
        total = derive_total(account.slots.values())
        rows_in, rows_out, busy_ms = (window.rate(now) for window in account.windows)
        return OperatorStatus(
            name=name,
            kind=self._kinds.get(name, ""),
            rows_in=total.rows_in,
            rows_out=total.rows_out,
            filtered=total.filtered,
            failed=total.failed,
            busy_seconds=total.busy_ms / 1000,
            watermark_ms=total.watermark_ms,
            rows_in_per_second=rows_in,
            rows_out_per_second=rows_out,
            busy_ratio=busy_ms / 1000 / max(1, len(account.slots)),
            subtasks=tuple(_subtask(slot, counts) for slot, counts in sorted(account.slots.items())),
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
    """What each operator of a plan is, in one word, in the order of the vertices."""
    return {node.operator.name: node.operator.kind for node in plan.nodes}


def derive_total(counts: Iterable[OperatorCounts]) -> OperatorCounts:
    """Of all slots. A watermark is known when every slot has one: it is the lowest."""
    total, watermarks = OperatorCounts(), []
    for one in counts:
        _add(total, one)
        watermarks.append(one.watermark_ms)
    known = [watermark for watermark in watermarks if watermark is not None]
    total.watermark_ms = min(known) if known and len(known) == len(watermarks) else None
    return total


def _subtask(slot: int, counts: OperatorCounts) -> SubtaskStatus:
    return SubtaskStatus(
        slot=slot,
        rows_in=counts.rows_in,
        rows_out=counts.rows_out,
        filtered=counts.filtered,
        failed=counts.failed,
        busy_seconds=counts.busy_ms / 1000,
        watermark_ms=counts.watermark_ms,
    )


def _derive_new(name: OperatorName, counts: OperatorCounts, seen: ReportCounts) -> OperatorCounts:
    return OperatorCounts(
        rows_in=int(seen.advance(("rows_in", name), counts.rows_in)),
        rows_out=int(seen.advance(("rows_out", name), counts.rows_out)),
        filtered=int(seen.advance(("filtered", name), counts.filtered)),
        failed=int(seen.advance(("failed", name), counts.failed)),
        busy_ms=seen.advance(("busy_ms", name), counts.busy_ms),
        watermark_ms=counts.watermark_ms,
    )


def _add(total: OperatorCounts, new: OperatorCounts) -> None:
    total.rows_in += new.rows_in
    total.rows_out += new.rows_out
    total.filtered += new.filtered
    total.failed += new.failed
    total.busy_ms += new.busy_ms
    total.watermark_ms = new.watermark_ms
