"""The sources on hold: tells the slots, the log, the metrics and the status (`coordinator/gating.py`, ADR 73)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter

import msgspec

from tidegate.config.fields.counts import render_seconds
from tidegate.config.fields.units import render_duration
from tidegate.coordinator.gating import GateHold, Gating, Hold, SourceProgress
from tidegate.daemon.metric_catalogue import MetricSeries
from tidegate.daemon.status import OperatorStatus
from tidegate.ids import Attempt, OperatorName, SlotIndex
from tidegate.plan.graph import Plan
from tidegate.task.messages import HoldSources, InputCaughtUp
from tidegate.task.report import OperatorCounts


class SourceHold(msgspec.Struct, frozen=True):
    """Why a source is on hold."""

    reason: str
    """`gate`: an input that comes first has not caught up. `lead`: the source is too far ahead."""
    why: str
    """Continues `is on hold`."""
    subtasks: int
    """How many of its subtasks are on hold."""


class HoldMetrics:
    """The sources on hold. `elapsed` returns monotonic seconds."""

    def __init__(self, series: MetricSeries, elapsed: Callable[[], float]) -> None:
        self._series = series
        self._elapsed = elapsed
        self.holds: Mapping[OperatorName, SourceHold] = {}
        self._since: dict[tuple[OperatorName, str], float] = {}

    def set(self, holds: Mapping[OperatorName, SourceHold]) -> None:
        """Sets the sources that are on hold now."""
        now = {(source, one.reason): one.subtasks for source, one in holds.items()}
        for key in {*self._since, *now}:
            source, reason = key
            self._series.gauge("tidegate_source_on_hold", source, reason).set(now.get(key, 0))
            if key not in now:
                del self._since[key]
            else:
                self._since.setdefault(key, self._elapsed())
        self.holds = holds

    def shown(self, operators: Iterable[OperatorStatus]) -> tuple[OperatorStatus, ...]:
        """Adds to the status of sources why they are on hold."""
        return tuple(self._shown(one) if one.name in self.holds else one for one in operators)

    def _shown(self, one: OperatorStatus) -> OperatorStatus:
        hold = self.holds[one.name]
        seconds = self._elapsed() - self._since[one.name, hold.reason]
        return msgspec.structs.replace(one, on_hold=hold.why, on_hold_seconds=seconds)


logger = logging.getLogger(__name__)


class SourceHolds:
    """The sources on hold in one attempt.

    `send` reaches one slot, `shown` takes the sources that are on hold now. `now_ms` is monotonic.
    """

    def __init__(
        self,
        plan: Plan,
        attempt: Attempt,
        send: Callable[[SlotIndex, HoldSources], None],
        shown: Callable[[Mapping[OperatorName, SourceHold]], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._gating = Gating(plan)
        self._attempt = attempt
        self._send = send
        self._shown = shown
        self._now_ms = now_ms
        self._began_ms = now_ms()
        self._sent: dict[SlotIndex, frozenset[OperatorName]] = {
            SlotIndex(slot): frozenset() for slot in range(plan.parallelism)
        }

    def begin(self) -> None:
        """Sends the initial holds: all slots run, and no source has read anything yet."""
        self._began_ms = self._now_ms()
        for source, hold in self._apply().items():
            logger.info("source %s is on hold %s", source, hold.why)

    def on_caught_up(self, slot: SlotIndex, message: InputCaughtUp) -> None:
        """Handles an input of a subtask that has caught up."""
        before = set().union(*self._sent.values())
        opened = self._gating.on_caught_up(message.vertex, message.port, slot)
        after = self._apply()
        for gate in opened:
            begin = sorted((gate.held & before) - after.keys())
            took = render_seconds((self._now_ms() - self._began_ms) / 1000)
            verb = "is" if len(begin) == 1 else "are"
            does = f": {', '.join(begin)} {verb} no longer on hold" if begin else ""
            logger.info("`%s` of `%s` has caught up after %s%s", gate.alias, gate.vertex, took, does)

    def on_report(self, slot: SlotIndex, operators: Mapping[OperatorName, OperatorCounts]) -> None:
        """Handles a slot's report about the event time of its operators."""
        if self._gating:
            progress = {name: SourceProgress(one.watermark_ms, one.idle) for name, one in operators.items()}
            self._gating.on_progress(slot, progress)
            self._apply()

    def _apply(self) -> dict[OperatorName, SourceHold]:
        """Sends what has changed, and returns the sources that are on hold in some slot."""
        found: dict[OperatorName, list[Hold]] = {}
        for slot, sent in self._sent.items():
            holds = self._gating.holds(slot)
            for source, hold in holds.items():
                found.setdefault(source, []).append(hold)
            held = frozenset(holds)
            if held != sent:
                self._sent[slot] = held
                self._send(slot, HoldSources(self._attempt, held))
        summary = {source: summarise_holds(holds) for source, holds in found.items()}
        self._shown(summary)
        return summary


def summarise_holds(holds: list[Hold]) -> SourceHold:
    """Returns why the subtasks of a source are on hold: by the gate, or by the one that is furthest ahead."""
    first = holds[0]
    if isinstance(first, GateHold):
        why = f"until `{first.alias}` of `{first.step}` has caught up ({first.caught_up} of {first.subtasks} slots)"
        return SourceHold("gate", why, len(holds))
    leads = [one for one in holds if not isinstance(one, GateHold)]
    waits = next((one for one in leads if one.ahead_ms is None), None)
    if waits is not None:
        why = f"until {', '.join(waits.sources)} has event time for `{waits.step}`, or is idle"
        return SourceHold("lead", why, len(holds))
    ahead_ms, ahead = max(((one.ahead_ms or 0, one) for one in leads), key=itemgetter(0))
    why = (
        f"while it is {render_duration(ahead_ms)} of event time ahead of {', '.join(ahead.sources)} "
        f"(`{ahead.step}` allows {render_duration(ahead.limit_ms)})"
    )
    return SourceHold("lead", why, len(holds))
