"""The history of past checkpoints and failed attempts, for people: bounded, newest first. Pure.

`CheckpointHistory` only observes: it is shown each event that a coordinator receives, with the instructions that it
returned. All durations come from the monotonic clock in the events; the only wall-clock timestamps are
`triggered_at_ms` and `failed_at_ms`. It is kept in memory, so it is empty in a new daemon; what recovery needs is in
the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from tidegate.coordinator.events import (
    AckReceived,
    AckRefused,
    AppendCheckpoint,
    AttemptEnded,
    CheckpointProperties,
    CheckpointReport,
    Event,
    Instruction,
    Journaled,
    NotifyAborted,
    NotifyCompleted,
    SavepointWritten,
    SendTrigger,
    SubtaskRunning,
)
from tidegate.coordinator.types import Ack
from tidegate.ids import Attempt, CheckpointId, SlotIndex, SubtaskId, VertexId

CHECKPOINTS_MAX: Final = 100
SUBTASKS_MAX: Final = 10_000
"""Subtask phases kept over all checkpoints. The oldest checkpoints lose theirs first, the newest never does."""
FAILURES_MAX: Final = 50
TEXT_CHARACTERS_MAX: Final = 20_000
"""Maximum length of a reason or a cause."""

ENDED: Final = "the attempt has ended"
UNSETTLED: Final = "the attempt ended while the journal entry was being written: the checkpoint counts if it is there"
COMMIT_UNSEEN: Final = "the attempt ended before its transactions were seen to be committed: the next one ends them"


class CheckpointKind(StrEnum):
    """The purpose of a checkpoint."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    FINAL = "final"


class CheckpointResult(StrEnum):
    """The outcome of a checkpoint."""

    UNDER_WAY = "under way"
    COMPLETED = "completed"
    FAILED = "failed"
    """Counts against `checkpoints.tolerable_failures`."""
    ABANDONED = "abandoned"
    """Not a failure: a newer checkpoint completed first, or the attempt ended."""


class SubtaskPhases(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one subtask for a checkpoint; the fields are in chronological order."""

    vertex: VertexId
    slot: SlotIndex
    start_delay_ms: float
    """From the trigger to the arrival of the first barrier."""
    alignment_ms: float
    """From the first barrier to the last; 0 with one input channel."""
    snapshot_ms: float
    """The synchronous part, during which no record is processed."""
    upload_ms: float
    """The slowest file of the asynchronous part."""
    prepare_ms: float
    """Time until its sinks had flushed and counted everything, in parallel with the upload."""
    acknowledged_after_ms: int
    """From the trigger to the arrival of the ack at the daemon."""
    size_bytes: int
    """Size of its part of the checkpoint, including files of earlier checkpoints that it builds on."""
    written_bytes: int
    """The part of `size_bytes` that this checkpoint has written."""
    inflight_bytes: int
    inflight_rows: int
    """Rows that barriers have overtaken and that are part of the checkpoint."""


class CheckpointRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint or savepoint of this daemon."""

    id: CheckpointId
    attempt: Attempt
    kind: CheckpointKind
    result: CheckpointResult
    reason: str
    """Reason why it did not complete; empty if it did or is in progress."""
    triggered_at_ms: int
    """Wall clock, ms since 1970."""
    duration_ms: int | None
    """From the trigger to the end; None while in progress."""
    acknowledged_ms: int | None
    """The part of `duration_ms` until the last ack; None while one is missing."""
    journal_ms: int | None
    """From the last ack until it was in the journal."""
    commit_ms: int | None
    """From the journal entry until its transactions were committed."""
    size_bytes: int
    records: int
    """Records in the transactions that it committed."""
    subtasks: tuple[SubtaskPhases, ...]
    """Subtasks that have acknowledged it, the slowest last."""
    missing: tuple[str, ...]
    """Subtasks that have not acknowledged it."""
    subtasks_left_out: int = 0
    """Number of `subtasks` that are no longer kept."""


class FollowedBy(StrEnum):
    """The reaction to a failed attempt."""

    RESTART = "restart"
    GAVE_UP = "gave up"
    STOPPED = "stopped"
    """The end had been requested."""


class FailureRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One failed attempt."""

    failed_at_ms: int
    """Wall clock, ms since 1970."""
    attempt: Attempt | None
    """None if it failed before it had a number, because the recovery did not succeed."""
    code: str
    """The error's stable code."""
    cause: str
    ran_ms: int
    """Time during which all of its slots ran."""
    followed_by: FollowedBy
    restart_after_ms: int | None = None
    """Wait before the restart; None without a restart."""


class HistorySummary(msgspec.Struct, frozen=True):
    """Summary of the checkpoints and failures that are kept."""

    under_way: int = 0
    completed: int = 0
    failed: int = 0
    abandoned: int = 0
    longest_ms: int | None = None
    """Duration of the longest completed checkpoint."""
    failures: int = 0
    last_failure: FailureRecord | None = None


class _Open:
    """A checkpoint that was triggered and has not ended."""

    def __init__(self, trigger: SendTrigger, now_ms: int, expected: frozenset[SubtaskId]) -> None:
        self.trigger = trigger
        self.triggered_ms = now_ms
        self.expected = expected
        self.acks: dict[SubtaskId, SubtaskPhases] = {}
        self.acknowledged_ms: int | None = None
        self.size_bytes = 0
        self.appending = False
        self.journaled_ms: int | None = None

    def acknowledge(self, ack: Ack, now_ms: int) -> None:
        self.acks[ack.subtask] = derive_phases(ack, now_ms - self.triggered_ms)
        self.size_bytes += self.acks[ack.subtask].size_bytes
        if self.expected <= self.acks.keys():
            self.acknowledged_ms = now_ms

    def record(
        self,
        result: CheckpointResult,
        reason: str = "",
        ended_ms: int | None = None,
        report: CheckpointReport | None = None,
    ) -> CheckpointRecord:
        acknowledged_ms, journaled_ms = self.acknowledged_ms, self.journaled_ms
        return CheckpointRecord(
            id=self.trigger.checkpoint,
            attempt=self.trigger.attempt,
            kind=derive_kind(self.trigger.properties),
            result=result,
            reason=reason[:TEXT_CHARACTERS_MAX],
            triggered_at_ms=self.trigger.timestamp_ms,
            duration_ms=_between(self.triggered_ms, ended_ms),
            acknowledged_ms=_between(self.triggered_ms, acknowledged_ms),
            journal_ms=_between(acknowledged_ms, journaled_ms),
            commit_ms=None if report is None else _between(journaled_ms, report.ended_at_ms),
            size_bytes=self.size_bytes,
            records=0 if report is None else report.records,
            subtasks=tuple(sorted(self.acks.values(), key=lambda one: one.acknowledged_after_ms)),
            missing=tuple(str(subtask) for subtask in sorted(self.expected - self.acks.keys())),
        )


class CheckpointHistory:
    """The checkpoints of all attempts of a daemon; used by one thread at a time."""

    def __init__(self, checkpoints_max: int = CHECKPOINTS_MAX, subtasks_max: int = SUBTASKS_MAX) -> None:
        self._ended: deque[CheckpointRecord] = deque(maxlen=checkpoints_max)
        self._subtasks_max = subtasks_max
        self._open: dict[CheckpointId, _Open] = {}
        self._running: set[SubtaskId] = set()

    def observe(self, event: Event, instructions: Sequence[Instruction]) -> None:
        """Records an event of a coordinator and the instructions that it returned."""
        match event:
            case SubtaskRunning(subtask=subtask):
                self._running.add(subtask)  # all subtasks run before a checkpoint is triggered (C09)
            case AckReceived(ack=ack, now_ms=now_ms) if not any(isinstance(one, AckRefused) for one in instructions):
                if (one := self._open.get(ack.checkpoint)) is not None:
                    one.acknowledge(ack, now_ms)
            case Journaled(checkpoint=checkpoint, now_ms=now_ms):
                if (one := self._open.get(checkpoint)) is not None:
                    one.journaled_ms = now_ms
            case SavepointWritten(checkpoint=checkpoint, now_ms=now_ms):
                self._end(checkpoint, CheckpointResult.COMPLETED, "", now_ms)
        for instruction in instructions:
            self._follow(instruction, event.now_ms)
        if isinstance(event, AttemptEnded):
            self._end_attempt(event.now_ms)

    @property
    def checkpoints(self) -> tuple[CheckpointRecord, ...]:
        """All checkpoints that are kept, newest first, including those in progress."""
        under_way = [one.record(CheckpointResult.UNDER_WAY) for one in self._open.values()]
        return tuple(sorted((*self._ended, *under_way), key=lambda record: record.id, reverse=True))

    def summarise(self, failures: Sequence[FailureRecord]) -> HistorySummary:
        """Summarizes the checkpoints together with `failures`, newest first."""
        results = [record.result for record in self._ended]
        durations = [
            record.duration_ms
            for record in self._ended
            if record.result is CheckpointResult.COMPLETED and record.duration_ms is not None
        ]
        return HistorySummary(
            under_way=len(self._open),
            completed=results.count(CheckpointResult.COMPLETED),
            failed=results.count(CheckpointResult.FAILED),
            abandoned=results.count(CheckpointResult.ABANDONED),
            longest_ms=max(durations, default=None),
            failures=len(failures),
            last_failure=next(iter(failures), None),
        )

    def _follow(self, instruction: Instruction, now_ms: int) -> None:
        match instruction:
            case SendTrigger(checkpoint=checkpoint):
                self._open[checkpoint] = _Open(instruction, now_ms, frozenset(self._running))
            case AppendCheckpoint(checkpoint=completed):
                if (one := self._open.get(completed.id)) is not None:
                    one.appending = True
            case NotifyCompleted(report=report):
                self._end(report.checkpoint, CheckpointResult.COMPLETED, "", report.ended_at_ms, report)
            case NotifyAborted(checkpoint=checkpoint, reason=reason, detail=detail):
                result = CheckpointResult.FAILED if reason.counts else CheckpointResult.ABANDONED
                self._end(checkpoint, result, f"{reason.value} ({detail})" if detail else reason.value, now_ms)

    def _end_attempt(self, now_ms: int) -> None:
        """Closes all open checkpoints: nothing can answer once the coordinator has ended."""
        for checkpoint, one in list(self._open.items()):
            if one.journaled_ms is not None:
                self._end(checkpoint, CheckpointResult.COMPLETED, COMMIT_UNSEEN, one.journaled_ms)
            else:
                self._end(checkpoint, CheckpointResult.ABANDONED, UNSETTLED if one.appending else ENDED, now_ms)
        self._running.clear()

    def _end(
        self,
        checkpoint: CheckpointId,
        result: CheckpointResult,
        reason: str,
        ended_ms: int,
        report: CheckpointReport | None = None,
    ) -> None:
        one = self._open.pop(checkpoint, None)
        if one is None:
            return  # it ended with its attempt
        self._ended.append(one.record(result, reason, ended_ms, report))
        self._bound_subtasks()

    def _bound_subtasks(self) -> None:
        kept = 0
        for index in range(len(self._ended) - 1, -1, -1):
            record = self._ended[index]
            count = len(record.subtasks)
            kept += count
            if kept > self._subtasks_max and index < len(self._ended) - 1:
                self._ended[index] = msgspec.structs.replace(
                    record, subtasks=(), subtasks_left_out=record.subtasks_left_out + count
                )


class FailureHistory:
    """The failed attempts."""

    def __init__(self, failures_max: int = FAILURES_MAX) -> None:
        self._failures: deque[FailureRecord] = deque(maxlen=failures_max)

    def add(self, failure: FailureRecord) -> None:
        """Adds a failure as the newest."""
        self._failures.append(msgspec.structs.replace(failure, cause=failure.cause[:TEXT_CHARACTERS_MAX]))

    @property
    def failures(self) -> tuple[FailureRecord, ...]:
        """The failures that are kept, newest first."""
        return tuple(reversed(self._failures))


def derive_kind(properties: CheckpointProperties) -> CheckpointKind:
    """Returns the kind under the name that `tidegate checkpoints` shows."""
    if properties.savepoint:
        return CheckpointKind.SAVEPOINT
    return CheckpointKind.FINAL if properties.final else CheckpointKind.CHECKPOINT


def derive_phases(ack: Ack, acknowledged_after_ms: int) -> SubtaskPhases:
    """Derives a subtask's phases from its ack."""
    return SubtaskPhases(
        vertex=ack.subtask.vertex,
        slot=ack.subtask.index,
        start_delay_ms=ack.start_delay_ms,
        alignment_ms=ack.alignment_ms,
        snapshot_ms=ack.snapshot_ms,
        upload_ms=ack.upload_ms,
        prepare_ms=ack.prepare_ms,
        acknowledged_after_ms=acknowledged_after_ms,
        size_bytes=sum(state.size_bytes for state in ack.states),
        written_bytes=ack.written_bytes,
        inflight_bytes=sum(state.size_bytes for state in ack.states if state.in_flight),
        inflight_rows=ack.inflight_rows,
    )


def _between(start_ms: int | None, end_ms: int | None) -> int | None:
    return None if start_ms is None or end_ms is None else end_ms - start_ms
