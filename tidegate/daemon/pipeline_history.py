"""What has happened to a pipeline since its daemon started: checkpoints, failures, events and time series.

Bounded and in memory, so a new daemon begins with `started`. The log contains more, for longer. Called by
PipelineMetrics, which locks. The time series behind `GET /api/v1/history` are figures of the last hour, one point every
five seconds: `POINTS_MAX` points of `STEPS_MAX` steps are 9 MB.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from tidegate.coordinator.events import Event, Instruction, NotifyAborted, SavepointWritten
from tidegate.coordinator.history import CheckpointHistory, FailureHistory, FailureRecord, FollowedBy
from tidegate.daemon.source_holds import SourceHold
from tidegate.daemon.status import OperatorStatus, PipelineState, Status
from tidegate.ids import Attempt, OperatorName
from tidegate.operators.waiting import WAITING_ROWS

INTERVAL_S: Final = 5.0
POINTS_MAX: Final = 720
STEPS_MAX: Final = 200
"""Steps beyond that have no series."""
DIGITS: Final = 3
"""Decimal places of a value."""

Series = list[float | None]
"""A value per point; null where it is unknown."""


class PipelineSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The series of the pipeline."""

    records_in_per_second: Series
    records_out_per_second: Series
    records_committed_per_second: Series
    lag_records: Series
    lag_seconds: Series
    checkpoint_ms: Series
    """Duration of the newest completed checkpoint."""
    state_bytes: Series
    """Size of the newest completed checkpoint."""
    oldest_transaction_seconds: Series


class StepSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The series of a step. Names are those of the status."""

    rows_in_per_second: Series
    rows_out_per_second: Series
    busy_ratio: Series
    blocked_ratio: Series
    """The share of its slots' time in which no row could leave it."""
    event_time_lag_seconds: Series
    failed: Series
    """Rows that were left out since the daemon started."""
    late: Series
    """Late rows since the daemon started."""
    waiting_rows: Series
    """Rows that wait for another input now."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The points that are kept, oldest first. All series have one value per point."""

    interval_ms: int
    at_ms: list[int]
    """Unix time of each point in milliseconds."""
    pipeline: PipelineSeries
    steps: dict[OperatorName, StepSeries]
    """The steps that were asked for."""


class TimeSeries:
    """The points of one daemon. `observe` and `read` are called by one thread at a time."""

    def __init__(self, points_max: int = POINTS_MAX, steps_max: int = STEPS_MAX) -> None:
        self._points_max = points_max
        self._steps_max = steps_max
        self._at_ms: list[int] = []
        self._pipeline = _Columns(PipelineSeries.__struct_fields__, 0)
        self._steps: dict[OperatorName, _Columns] = {}
        self._before: tuple[float, Status] | None = None

    def is_due(self, now_s: float) -> bool:
        """Returns whether the next point is due."""
        return self._before is None or now_s - self._before[0] >= INTERVAL_S

    def observe(self, status: Status, now_s: float, now_ms: int) -> None:
        """Adds a point; `now_s` is of a monotonic clock, `now_ms` of the wall clock."""
        since_s, before = self._before or (now_s, status)
        elapsed_s = max(now_s - since_s, 1.0)
        self._before = (now_s, status)
        self._at_ms.append(now_ms)
        self._pipeline.add(_derive_point(before, status, elapsed_s))
        earlier = {one.name: one for one in before.operators}
        for one in status.operators:
            columns = self._steps.get(one.name)
            if columns is None:
                if len(self._steps) >= self._steps_max:
                    continue
                columns = self._steps[one.name] = _Columns(StepSeries.__struct_fields__, len(self._at_ms) - 1)
            columns.add(_derive_step_point(earlier.get(one.name, one), one, elapsed_s))
        if len(self._at_ms) > self._points_max:
            del self._at_ms[0]
            for columns in (self._pipeline, *self._steps.values()):
                columns.drop_oldest()

    def read(self, after_ms: int = 0, steps: Iterable[OperatorName] = ()) -> History:
        """Returns the points after a time, of the pipeline and of those of `steps` that are known."""
        first = bisect_right(self._at_ms, after_ms)
        return History(
            interval_ms=int(INTERVAL_S * 1000),
            at_ms=self._at_ms[first:],
            pipeline=PipelineSeries(**self._pipeline.read(first)),
            steps={name: StepSeries(**self._steps[name].read(first)) for name in steps if name in self._steps},
        )


class _Columns:
    """Series of the same length. NaN is an unknown value, which msgspec encodes as null."""

    def __init__(self, names: tuple[str, ...], missing: int) -> None:
        self._series = {name: array("d", [math.nan]) * missing for name in names}

    def add(self, point: dict[str, float | None]) -> None:
        for name, series in self._series.items():
            value = point[name]
            series.append(math.nan if value is None else round(value, DIGITS))

    def drop_oldest(self) -> None:
        for series in self._series.values():
            del series[0]

    def read(self, first: int) -> dict[str, Series]:
        return {name: list(series[first:]) for name, series in self._series.items()}


def _derive_point(before: Status, status: Status, elapsed_s: float) -> dict[str, float | None]:
    newest = status.last_checkpoint
    return {
        "records_in_per_second": status.records_in_per_second,
        "records_out_per_second": status.records_out_per_second,
        "records_committed_per_second": (status.records_committed - before.records_committed) / elapsed_s,
        "lag_records": status.lag_records,
        "lag_seconds": status.lag_seconds,
        "checkpoint_ms": None if newest is None else newest.duration_seconds * 1000,
        "state_bytes": None if newest is None else newest.size_bytes,
        "oldest_transaction_seconds": status.oldest_transaction_seconds,
    }


def _derive_step_point(before: OperatorStatus, one: OperatorStatus, elapsed_s: float) -> dict[str, float | None]:
    blocked_s = one.blocked_seconds - before.blocked_seconds
    return {
        "rows_in_per_second": one.rows_in_per_second,
        "rows_out_per_second": one.rows_out_per_second,
        "busy_ratio": one.busy_ratio,
        "blocked_ratio": min(1.0, blocked_s / elapsed_s / max(1, len(one.subtasks))),
        "event_time_lag_seconds": one.event_time_lag_seconds,
        "failed": one.failed,
        "late": one.late,
        "waiting_rows": one.gauges.get(WAITING_ROWS),
    }


EVENTS_MAX: Final = 300
DETAIL_CHARACTERS_MAX: Final = 20_000
TEXT_CHARACTERS_MAX: Final = 1000


class EventKind(StrEnum):
    """What kind of thing has happened."""

    STARTED = "started"
    """The daemon has started."""
    RUNNING = "running"
    """Records flow."""
    RESTARTED = "restarted"
    """An attempt has failed, and another one follows."""
    FAILED = "failed"
    """An attempt has failed, and the daemon ends."""
    CHECKPOINT_FAILED = "checkpoint_failed"
    SAVEPOINT = "savepoint"
    HOLD = "hold"
    """A source is on hold."""
    RESUMED = "resumed"
    """A source is no longer on hold."""
    UPGRADED = "upgraded"
    """The pipeline has changed since the checkpoint that an attempt restores."""
    STATE = "state"
    """The pipeline has entered another state."""
    COMMAND = "command"
    """A command was given over HTTP."""


class PipelineEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that has happened."""

    at_ms: int
    """Unix time in milliseconds."""
    kind: EventKind
    text: str
    """One sentence."""
    detail: str = ""
    """The whole error, with its traceback where it has one."""
    attempt: Attempt | None = None
    """The attempt at that time; null before the first."""


class EventList(msgspec.Struct, frozen=True):
    """The newest events, newest first."""

    events: list[PipelineEvent]


class EventLog:
    """The newest events of a daemon; used by one thread at a time."""

    def __init__(self, events_max: int = EVENTS_MAX) -> None:
        self._events: deque[PipelineEvent] = deque(maxlen=events_max)

    def add(self, event: PipelineEvent) -> None:
        """Adds an event as the newest."""
        text, detail = event.text[:TEXT_CHARACTERS_MAX], event.detail[:DETAIL_CHARACTERS_MAX]
        self._events.append(msgspec.structs.replace(event, text=text, detail=detail))

    @property
    def events(self) -> tuple[PipelineEvent, ...]:
        """The events that are kept, newest first."""
        return tuple(reversed(self._events))


class PipelineHistory:
    """Checkpoints, failures, events and time series. `now_ms` returns the wall clock."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.checkpoints = CheckpointHistory()
        self.failures = FailureHistory()
        self.log = EventLog()
        self.series = TimeSeries()
        self.attempt: Attempt | None = None
        """The current attempt; None before the first."""
        self._now_ms = now_ms

    def coordinator_answered(self, event: Event, instructions: Sequence[Instruction]) -> None:
        """Takes an event of the coordinator and its answer."""
        self.checkpoints.observe(event, instructions)
        if isinstance(event, SavepointWritten):
            self.add_event(EventKind.SAVEPOINT, f"savepoint {event.checkpoint} is complete")
        for one in instructions:
            if isinstance(one, NotifyAborted) and one.reason.counts:
                text = f"checkpoint {one.checkpoint} failed: {one.reason.value}"
                self.add_event(EventKind.CHECKPOINT_FAILED, text, one.detail)

    def attempt_failed(self, failure: FailureRecord, traceback: str) -> None:
        """Takes a failed attempt."""
        self.failures.add(failure)
        what = "the pipeline" if failure.attempt is None else f"attempt {failure.attempt}"
        self.add_event(
            EventKind.RESTARTED if failure.followed_by is FollowedBy.RESTART else EventKind.FAILED,
            f"{what} failed: {failure.cause}",
            f"{failure.code}: {failure.cause}\n{traceback}".rstrip(),
        )

    def state_changed(self, state: PipelineState, reason: str) -> None:
        """Takes a new state; a failed attempt is an event of its own."""
        if state is PipelineState.RUNNING:
            self.add_event(EventKind.RUNNING, "records flow")
        elif state is not PipelineState.RESTARTING:
            self.add_event(EventKind.STATE, f"{state.value}: {reason}" if reason else state.value)

    def held(self, before: Mapping[OperatorName, SourceHold], now: Mapping[OperatorName, SourceHold]) -> None:
        """Takes the sources on hold, before and now."""
        for source in sorted(before.keys() - now.keys()):
            self.add_event(EventKind.RESUMED, f"{source} is no longer on hold")
        for source in sorted(now.keys() - before.keys()):
            self.add_event(EventKind.HOLD, f"{source} is on hold {now[source].why}")

    def add_event(self, kind: EventKind, text: str, detail: str = "") -> None:
        """Adds an event of this moment."""
        event = PipelineEvent(at_ms=self._now_ms(), kind=kind, text=text, detail=detail, attempt=self.attempt)
        self.log.add(event)
