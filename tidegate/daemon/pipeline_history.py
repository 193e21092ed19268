"""What has happened to a pipeline since its daemon started: checkpoints, failures, time series and events.

Bounded and in memory, so a new daemon begins with `started`. The log contains more, for longer. Called by
PipelineMetrics, which locks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from tidegate.coordinator.events import Event, Instruction, NotifyAborted, SavepointWritten
from tidegate.coordinator.history import CheckpointHistory, FailureHistory, FailureRecord, FollowedBy
from tidegate.daemon.source_holds import SourceHold
from tidegate.daemon.status import PipelineState
from tidegate.daemon.time_series import TimeSeries
from tidegate.ids import Attempt, OperatorName

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
