"""What has happened to a pipeline since its daemon started, kept for people. Bounded, in memory.

Called by PipelineMetrics, which locks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidegate.coordinator.events import Event, Instruction, NotifyAborted, SavepointWritten
from tidegate.coordinator.history import CheckpointHistory, FailureHistory, FailureRecord, FollowedBy
from tidegate.daemon.event_log import EventKind, EventLog, PipelineEvent
from tidegate.daemon.hold_metrics import SourceHold
from tidegate.daemon.status import PipelineState
from tidegate.daemon.time_series import TimeSeries
from tidegate.ids import Attempt, OperatorName


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
