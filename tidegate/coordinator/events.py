"""What the coordinator receives (events) and what it answers (instructions). Plain values; time comes in with events.

`now_ms` is the daemon's monotonic clock in milliseconds: nothing depends on when somebody sets the wall clock (ADR 19).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tidegate.committable import Committable
from tidegate.coordinator.types import Ack, CompletedCheckpoint, Decline, StateHandle
from tidegate.ids import Attempt, CheckpointId, SubtaskId, TransactionalId


class TriggerRefusal(StrEnum):
    """Why no checkpoint is begun; checked in this order."""

    SHUT_DOWN = "the attempt has ended, has failed, or its final checkpoint is under way"  # C04
    PERIODIC_OFF = "periodic checkpoints are off"  # C05
    TOO_MANY = "as many checkpoints as allowed are under way (`checkpoints.max_concurrent`)"  # C06
    TOO_SOON = "the minimum pause since the last completed checkpoint has not passed"  # C07
    SAVEPOINT_UNDER_WAY = "another savepoint is under way"
    SOURCE_NOT_RUNNING = "a source subtask is not running yet"  # C08
    SUBTASK_NOT_RUNNING = "a subtask is not running yet"  # C09
    NO_ID = "no reserved checkpoint id is left before the next checkpoint completes"  # C10


class AckOutcome(StrEnum):
    """What an ack meant."""

    SUCCESS = "recorded"  # C18
    DUPLICATE = "this subtask has acknowledged the checkpoint already"  # C19
    UNKNOWN = "the checkpoint does not wait for this subtask"  # C20
    DISCARDED = "the checkpoint was given up"  # C21
    LATE = "there is no such checkpoint under way"  # C23
    STALE = "the ack is of another attempt"  # C37


class CheckpointFailure(StrEnum):
    """Why a pending checkpoint was given up."""

    EXPIRED = "it took longer than checkpoints.timeout"
    DECLINED = "a subtask declined it"
    TRIGGER_FAILED = "its trigger could not be sent"
    JOURNAL_FAILED = "it could not be written to the journal"
    STATE_GONE = "its state builds on files that no retained checkpoint lists any more"
    WRITE_FAILED = "the savepoint could not be written to its directory"
    SUBSUMED = "a newer checkpoint has completed"  # C17
    ATTEMPT_ENDED = "the attempt has ended"

    @property
    def counts(self) -> bool:
        """Whether it counts against `checkpoints.tolerable_failures`."""
        return self not in {CheckpointFailure.SUBSUMED, CheckpointFailure.ATTEMPT_ENDED}


class CheckpointProperties(msgspec.Struct, frozen=True):
    """What kind of checkpoint it is (C15, C16). The kinds are the five constants below."""

    forced: bool = False
    """Ignores the limit of concurrent checkpoints and the minimum pause."""
    ordered: bool = False
    """A user asks for it: it ignores the interval and the minimum pause, but not the limit (C38)."""
    final: bool = False
    """Sources stop after its barrier."""
    savepoint: bool = False
    """One-off, always aligned, copied to a directory of the user's; decides nothing (ADR 11)."""

    @property
    def periodic(self) -> bool:
        """The timer begins it, nobody else."""
        return not (self.forced or self.ordered)

    @property
    def subsumed(self) -> bool:
        """Given up when a newer checkpoint completes first (C17, C26)."""
        return not self.savepoint

    @property
    def aligned(self) -> bool:
        """Barriers never overtake records, whatever `checkpoints.unaligned` says."""
        return self.savepoint or self.final


PERIODIC = CheckpointProperties()
ORDERED = CheckpointProperties(ordered=True)
FORCED = CheckpointProperties(forced=True)
FINAL = CheckpointProperties(forced=True, final=True)
SAVEPOINT = CheckpointProperties(forced=True, savepoint=True)


class SubtaskRunning(msgspec.Struct, frozen=True):
    """A subtask has restored its state and is processing."""

    subtask: SubtaskId
    now_ms: int


class Tick(msgspec.Struct, frozen=True):
    """Time has passed; due at `next_deadline_ms`, harmless at any other time."""

    now_ms: int


class TriggerRequested(msgspec.Struct, frozen=True):
    """Somebody asks for a checkpoint now (C15, C38): `final` to end the pipeline by it, or a savepoint, or just one."""

    now_ms: int
    final: bool = False
    savepoint: bool = False

    @property
    def properties(self) -> CheckpointProperties:
        """The kind that is asked for."""
        if self.savepoint:
            return SAVEPOINT
        return FINAL if self.final else ORDERED


class TriggerFailed(msgspec.Struct, frozen=True):
    """A trigger could not be sent to all of the sources (C14, C41)."""

    checkpoint: CheckpointId
    detail: str
    now_ms: int


class AckReceived(msgspec.Struct, frozen=True):
    """See Ack."""

    ack: Ack
    now_ms: int


class DeclineReceived(msgspec.Struct, frozen=True):
    """See Decline."""

    decline: Decline
    now_ms: int


class Journaled(msgspec.Struct, frozen=True):
    """The AppendCheckpoint instruction has succeeded; the edge holds the permit."""

    checkpoint: CheckpointId
    reserved_to: CheckpointId
    now_ms: int


class JournalFailed(msgspec.Struct, frozen=True):
    """The AppendCheckpoint instruction has failed; whether the entry is there may be unknown.

    `retriable` as on the error; `settled` is False for AppendUnsettled: only a new attempt may go on.
    """

    checkpoint: CheckpointId
    detail: str
    now_ms: int
    retriable: bool = True
    settled: bool = True


class TransactionsEnded(msgspec.Struct, frozen=True):
    """The committer has definite answers for these committables of a permit (all of them, or some)."""

    checkpoint: CheckpointId
    ended: tuple[Committable, ...]
    now_ms: int


class SavepointWritten(msgspec.Struct, frozen=True):
    """The WriteSavepoint instruction has succeeded: its metadata is durable (C29)."""

    checkpoint: CheckpointId
    now_ms: int


class SavepointFailed(msgspec.Struct, frozen=True):
    """The WriteSavepoint instruction has failed; no metadata was written."""

    checkpoint: CheckpointId
    detail: str
    now_ms: int


class OpenTransaction(msgspec.Struct, frozen=True):
    """The oldest transaction a subtask holds, prepared or not; `age_ms` is None when it holds none.

    The age counts from its first record and is measured by the slot alone: its clock and the daemon's may differ.
    """

    subtask: SubtaskId
    age_ms: int | None
    timeout_ms: int
    now_ms: int


class BrokersSeen(msgspec.Struct, frozen=True):
    """The brokers answer, or none of them does: then checkpoints wait for them without a time limit of their own."""

    answering: bool
    now_ms: int


class AttemptEnded(msgspec.Struct, frozen=True):
    """All slots of the attempt are gone."""

    now_ms: int


Event = (
    SubtaskRunning
    | Tick
    | TriggerRequested
    | TriggerFailed
    | AckReceived
    | DeclineReceived
    | Journaled
    | JournalFailed
    | TransactionsEnded
    | SavepointWritten
    | SavepointFailed
    | OpenTransaction
    | BrokersSeen
    | AttemptEnded
)


class SendTrigger(msgspec.Struct, frozen=True):
    """Send the trigger to every slot, whose sources act on it (C12); TriggerFailed says that one cannot have it."""

    attempt: Attempt
    checkpoint: CheckpointId
    timestamp_ms: int
    """A stamp: ms since 1970."""
    properties: CheckpointProperties


class TriggerRefused(msgspec.Struct, frozen=True):
    """No checkpoint of this kind was begun."""

    refusal: TriggerRefusal
    properties: CheckpointProperties


class AckRefused(msgspec.Struct, frozen=True):
    """An ack changed nothing; for the log."""

    checkpoint: CheckpointId
    subtask: SubtaskId
    outcome: AckOutcome


class AppendCheckpoint(msgspec.Struct, frozen=True):
    """Append to the journal and answer with Journaled or JournalFailed. One at a time."""

    checkpoint: CompletedCheckpoint


class CommitTransactions(msgspec.Struct, frozen=True):
    """Hand the permit of this checkpoint to the committer and answer with TransactionsEnded."""

    checkpoint: CheckpointId


class WriteSavepoint(msgspec.Struct, frozen=True):
    """All output before this cut is committed: copy its state and positions, the metadata last (C29).

    Answer with SavepointWritten or SavepointFailed; until then the state objects stay.
    """

    checkpoint: CompletedCheckpoint


class CheckpointReport(msgspec.Struct, frozen=True):
    """Figures of a checkpoint; phases are the slowest subtask's."""

    checkpoint: CheckpointId
    final: bool
    triggered_at_ms: int
    acknowledged_at_ms: int
    journaled_at_ms: int
    ended_at_ms: int
    size_bytes: int
    records: int
    """Records in the transactions that it committed, carried ones included."""
    transactions: int
    start_delay_ms: float
    alignment_ms: float
    snapshot_ms: float
    upload_ms: float
    prepare_ms: float


class NotifyCompleted(msgspec.Struct, frozen=True):
    """Decided, and its transactions are ended: notify all subtasks (C12), mirror the offsets, clean up the journal."""

    attempt: Attempt
    checkpoint: CompletedCheckpoint
    released: frozenset[TransactionalId]
    """Ids whose transaction is ended and that the newest journal entry no longer lists: free for a new one."""
    report: CheckpointReport
    needed: frozenset[str] = frozenset()
    """State objects that pending checkpoints list: the clean-up must not take them."""


class NotifyAborted(msgspec.Struct, frozen=True):
    """Given up: notify all subtasks. Prepared transactions wait for the next checkpoint."""

    attempt: Attempt
    checkpoint: CheckpointId
    reason: CheckpointFailure
    detail: str


class DiscardStates(msgspec.Struct, frozen=True):
    """Delete these state objects: no checkpoint needs them."""

    handles: tuple[StateHandle, ...]


class FailAttempt(msgspec.Struct, frozen=True):
    """End the attempt; the restart strategy decides what follows. `cause` is a label for metrics."""

    cause: str
    reason: str


class StopPipeline(msgspec.Struct, frozen=True):
    """End the daemon: another attempt cannot help."""

    reason: str


class FinishPipeline(msgspec.Struct, frozen=True):
    """The final checkpoint is complete and committed: end the attempt and the daemon, all is well."""

    checkpoint: CheckpointId


Instruction = (
    SendTrigger
    | TriggerRefused
    | AckRefused
    | AppendCheckpoint
    | CommitTransactions
    | WriteSavepoint
    | NotifyCompleted
    | NotifyAborted
    | DiscardStates
    | FailAttempt
    | StopPipeline
    | FinishPipeline
)
