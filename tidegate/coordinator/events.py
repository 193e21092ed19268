"""Events that the coordinator receives and instructions that it returns, as plain values.

`now_ms` is the daemon's monotonic clock in milliseconds, so that changes of the wall clock have no effect (ADR 19).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tidegate.committable import Committable
from tidegate.coordinator.types import Ack, CompletedCheckpoint, Decline, StateHandle
from tidegate.ids import Attempt, CheckpointId, SubtaskId, TransactionalId


class TriggerRefusal(StrEnum):
    """Reasons not to trigger a checkpoint, in the order in which they are checked."""

    SHUT_DOWN = "the attempt has ended, has failed, or its final checkpoint is under way"  # C04
    PERIODIC_OFF = "periodic checkpoints are off"  # C05
    TOO_MANY = "as many checkpoints as allowed are under way (`checkpoints.max_concurrent`)"  # C06
    TOO_SOON = "the minimum pause since the last completed checkpoint has not passed"  # C07
    SAVEPOINT_UNDER_WAY = "another savepoint is under way"
    SOURCE_NOT_RUNNING = "a source subtask is not running yet"  # C08
    SUBTASK_NOT_RUNNING = "a subtask is not running yet"  # C09
    NO_ID = "no reserved checkpoint id is left before the next checkpoint completes"  # C10


class AckOutcome(StrEnum):
    """The coordinator's response to an ack."""

    SUCCESS = "recorded"  # C18
    DUPLICATE = "this subtask has acknowledged the checkpoint already"  # C19
    UNKNOWN = "the checkpoint does not wait for this subtask"  # C20
    DISCARDED = "the checkpoint was given up"  # C21
    LATE = "there is no such checkpoint under way"  # C23
    STALE = "the ack is of another attempt"  # C37


class CheckpointFailure(StrEnum):
    """Reasons to give up a pending checkpoint."""

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
        """True if this failure counts against `checkpoints.tolerable_failures`."""
        return self not in {CheckpointFailure.SUBSUMED, CheckpointFailure.ATTEMPT_ENDED}


class CheckpointProperties(msgspec.Struct, frozen=True):
    """The kind of a checkpoint (C15, C16); the five constants below are the only kinds."""

    forced: bool = False
    """Ignores the limit of concurrent checkpoints and the minimum pause."""
    ordered: bool = False
    """Requested by a user: it ignores the interval and the minimum pause, but not the limit (C38)."""
    final: bool = False
    """Sources stop after its barrier."""
    savepoint: bool = False
    """One-off, always aligned, copied to a directory of the user's choice; decides nothing (ADR 11)."""

    @property
    def periodic(self) -> bool:
        """True if the timer triggers this checkpoint."""
        return not (self.forced or self.ordered)

    @property
    def subsumed(self) -> bool:
        """True if it is given up when a newer checkpoint completes first (C17, C26)."""
        return not self.savepoint

    @property
    def aligned(self) -> bool:
        """True if its barriers never overtake records, whatever `checkpoints.unaligned` is."""
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
    """Time has passed. Due at `next_deadline_ms`, harmless at any other time."""

    now_ms: int


class TriggerRequested(msgspec.Struct, frozen=True):
    """A checkpoint is requested now (C15, C38): an ordinary one, a `final` one, or a savepoint."""

    now_ms: int
    final: bool = False
    savepoint: bool = False

    @property
    def properties(self) -> CheckpointProperties:
        """The kind of checkpoint that is requested."""
        if self.savepoint:
            return SAVEPOINT
        return FINAL if self.final else ORDERED


class TriggerFailed(msgspec.Struct, frozen=True):
    """A trigger could not be sent to all of the sources (C14, C41)."""

    checkpoint: CheckpointId
    detail: str
    now_ms: int


class AckReceived(msgspec.Struct, frozen=True):
    """A subtask has acknowledged a checkpoint."""

    ack: Ack
    now_ms: int


class DeclineReceived(msgspec.Struct, frozen=True):
    """A subtask has declined a checkpoint."""

    decline: Decline
    now_ms: int


class Journaled(msgspec.Struct, frozen=True):
    """An AppendCheckpoint instruction succeeded; the caller holds the permit."""

    checkpoint: CheckpointId
    reserved_to: CheckpointId
    now_ms: int


class JournalFailed(msgspec.Struct, frozen=True):
    """An AppendCheckpoint instruction failed; it may be unknown whether the entry exists.

    `retriable` has the value of the error's. `settled` is False for AppendUnsettled: only a new attempt may continue.
    """

    checkpoint: CheckpointId
    detail: str
    now_ms: int
    retriable: bool = True
    settled: bool = True


class TransactionsEnded(msgspec.Struct, frozen=True):
    """The committer has a definite answer for some or all committables of a permit."""

    checkpoint: CheckpointId
    ended: tuple[Committable, ...]
    now_ms: int


class SavepointWritten(msgspec.Struct, frozen=True):
    """A WriteSavepoint instruction succeeded: the savepoint's metadata is durable (C29)."""

    checkpoint: CheckpointId
    now_ms: int


class SavepointFailed(msgspec.Struct, frozen=True):
    """A WriteSavepoint instruction failed; no metadata was written."""

    checkpoint: CheckpointId
    detail: str
    now_ms: int


class OpenTransaction(msgspec.Struct, frozen=True):
    """The oldest transaction that a subtask holds, prepared or not; `age_ms` is None if it holds none.

    The slot alone measures the age, from the transaction's first record, because its clock and the daemon's may differ.
    """

    subtask: SubtaskId
    age_ms: int | None
    timeout_ms: int
    now_ms: int


class BrokersSeen(msgspec.Struct, frozen=True):
    """The brokers answer, or none of them does; in the latter case pending checkpoints do not time out."""

    answering: bool
    now_ms: int


class AttemptEnded(msgspec.Struct, frozen=True):
    """All slots of the attempt have ended."""

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
    """Send the trigger to every slot, whose sources act on it (C12). Answer with TriggerFailed if one cannot get it."""

    attempt: Attempt
    checkpoint: CheckpointId
    timestamp_ms: int
    """Wall clock, ms since 1970."""
    properties: CheckpointProperties


class TriggerRefused(msgspec.Struct, frozen=True):
    """No checkpoint of this kind was triggered."""

    refusal: TriggerRefusal
    properties: CheckpointProperties


class AckRefused(msgspec.Struct, frozen=True):
    """An ack changed nothing; for the log."""

    checkpoint: CheckpointId
    subtask: SubtaskId
    outcome: AckOutcome


class AppendCheckpoint(msgspec.Struct, frozen=True):
    """Append to the journal and answer with Journaled or JournalFailed. Issued one at a time."""

    checkpoint: CompletedCheckpoint


class CommitTransactions(msgspec.Struct, frozen=True):
    """Hand the permit of this checkpoint to the committer and answer with TransactionsEnded."""

    checkpoint: CheckpointId


class WriteSavepoint(msgspec.Struct, frozen=True):
    """Copy the state and positions of this savepoint, its metadata last (C29): all output before it is committed.

    Answer with SavepointWritten or SavepointFailed; until then the state objects are kept.
    """

    checkpoint: CompletedCheckpoint


class CheckpointReport(msgspec.Struct, frozen=True):
    """Figures of a checkpoint. Durations of phases are those of the slowest subtask."""

    checkpoint: CheckpointId
    triggered_at_ms: int
    acknowledged_at_ms: int
    journaled_at_ms: int
    ended_at_ms: int
    size_bytes: int
    records: int
    """Records in the transactions that it committed, including carried ones."""
    start_delay_ms: float
    alignment_ms: float
    snapshot_ms: float
    upload_ms: float
    prepare_ms: float


class NotifyCompleted(msgspec.Struct, frozen=True):
    """Notify all subtasks that the checkpoint is decided and its transactions have ended (C12).

    Then mirror the offsets and clean up the journal.
    """

    attempt: Attempt
    checkpoint: CompletedCheckpoint
    released: frozenset[TransactionalId]
    """Ids whose transaction has ended and that the newest journal entry no longer lists; they can be reused."""
    report: CheckpointReport
    needed: frozenset[str] = frozenset()
    """State objects that pending checkpoints list and the cleanup must keep."""


class NotifyAborted(msgspec.Struct, frozen=True):
    """Notify all subtasks that the checkpoint was given up. Prepared transactions wait for the next checkpoint."""

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
    """End the attempt and the daemon successfully: the final checkpoint is complete and committed."""

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
