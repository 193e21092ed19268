"""Which sources are on hold, why, and since when: for metrics and the status (ADR 73).

Called by PipelineMetrics, which locks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import msgspec

from tidegate.daemon.metric_series import MetricSeries
from tidegate.daemon.status import OperatorStatus
from tidegate.ids import OperatorName


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
            seconds = self._series.gauge("tidegate_source_on_hold_seconds", source, reason)
            seconds.set_function(partial(self._seconds, key))
        self.holds = holds

    def _seconds(self, key: tuple[OperatorName, str]) -> float:
        """Returns how long a source has been on hold. Also called by scrapes, without the lock."""
        since = self._since.get(key)
        return 0.0 if since is None else self._elapsed() - since

    def shown(self, operators: Iterable[OperatorStatus]) -> tuple[OperatorStatus, ...]:
        """Adds to the status of sources why they are on hold."""
        return tuple(self._shown(one) if one.name in self.holds else one for one in operators)

    def _shown(self, one: OperatorStatus) -> OperatorStatus:
        hold = self.holds[one.name]
        seconds = self._seconds((one.name, hold.reason))
        return msgspec.structs.replace(one, on_hold=hold.why, on_hold_seconds=seconds)
