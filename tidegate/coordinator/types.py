"""Types that the coordinator, the slots and the journal exchange about checkpoints: plain, frozen, serializable."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tidegate.committable import Committable
from tidegate.ids import (
    Attempt,
    CheckpointId,
    OperatorName,
    SlotIndex,
    StateName,
    SubtaskId,
    TopicPartition,
)


class StateKind(StrEnum):
    """The kind of a piece of state, which determines who restores it."""

    OPERATOR = "operator"
    """Keyed state of the named operator, for the subtasks that own its key groups."""
    LIST = "list"
    """State of the named operator that is not keyed; every subtask reads all of it and takes its part."""
    INPUT = "input"
    """Rows in flight in front of a subtask; replayed before any new row of their edges."""
    OUTPUT = "output"
    """Rows in flight that were about to leave a subtask; replayed at the other end of their edges, after its INPUT."""


class StateHandle(msgspec.Struct, frozen=True):
    """Pointer to a stored piece of state (F18)."""

    operator: OperatorName
    """The operator that owns the state; for rows in flight, the head of the subtask's vertex."""
    subtask: SlotIndex
    path: str
    """Object name in the checkpoint storage."""
    size_bytes: int
    sha256: str
    head_bytes: int
    """Offset of the entries in the object (see `state/parts.py`); the bytes before it describe the contents."""
    head_sha256: str
    """SHA-256 of the first `head_bytes` bytes."""
    kind: StateKind = StateKind.OPERATOR
    edges: tuple[str, ...] = ()
    """Names of the edges that the rows in flight were on."""
    increment: bool = False
    """True if this is keyed state that changed since the preceding files of the same state and subtask (F28)."""
    state: StateName = StateName("")
    """Name of the operator's state; empty for rows in flight."""

    @property
    def in_flight(self) -> bool:
        """True if this is rows in flight rather than an operator's state."""
        return self.kind in (StateKind.INPUT, StateKind.OUTPUT)


class SourcePositions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Positions of one source: next offset per partition, and the end of a bounded read (empty if unbounded)."""

    source: OperatorName
    next_offsets: tuple[tuple[TopicPartition, int], ...]
    end_offsets: tuple[tuple[TopicPartition, int], ...] = ()
    watermarks: tuple[tuple[TopicPartition, int], ...] = ()
    """Event time that each partition has reached, ms since 1970, by its records (and by the clock, if so configured).

    Never the end of time. Partitions without event time are missing; empty where no operator needs event time.
    """
    event_time: str = ""
    """The column that `watermarks` refer to; empty for the Kafka timestamp.

    Watermarks of another column are not used.
    """


class LostRange(msgspec.Struct, frozen=True):
    """Offsets of a partition that a source has skipped because they were removed before they were read."""

    source: OperatorName
    partition: TopicPartition
    from_offset: int
    to_offset: int
    """The first offset that is read again (exclusive)."""

    @property
    def offsets(self) -> int:
        """Upper bound of the number of records: transaction markers and aborted records also have offsets."""
        return self.to_offset - self.from_offset


class Ack(msgspec.Struct, frozen=True):
    """A subtask's part of a checkpoint is durable (C36), for all of its chained operators (C28)."""

    attempt: Attempt
    checkpoint: CheckpointId
    subtask: SubtaskId
    positions: tuple[SourcePositions, ...] = ()
    states: tuple[StateHandle, ...] = ()
    committables: tuple[Committable, ...] = ()
    """Transactions of this checkpoint and of every older one that no `Completed` has confirmed to the subtask yet."""
    alignment_ms: float = 0.0
    start_delay_ms: float = 0.0
    snapshot_ms: float = 0.0
    upload_ms: float = 0.0
    prepare_ms: float = 0.0
    written_bytes: int = 0
    """Bytes of `states` written for this checkpoint.

    The other files belong to earlier checkpoints that it builds on.
    """
    inflight_rows: int = 0
    """Rows in flight among `states`."""


class Decline(msgspec.Struct, frozen=True):
    """A subtask cannot take part in a checkpoint; `reason` is one of the texts in `AbortReason`, `detail` free text."""

    attempt: Attempt
    checkpoint: CheckpointId
    subtask: SubtaskId
    reason: str
    detail: str = ""


class CompletedCheckpoint(msgspec.Struct, frozen=True):
    """Everything that a recovery needs, of all subtasks, flattened; the body of a journal entry (C03)."""

    id: CheckpointId
    attempt: Attempt
    triggered_at_ms: int
    completed_at_ms: int
    """Timestamps for people, ms since 1970 by the daemon's wall clock.

    Their difference is measured by its monotonic clock.
    """
    positions: tuple[SourcePositions, ...]
    states: tuple[StateHandle, ...]
    committables: tuple[Committable, ...]
    """All transactions that are not known to have ended, including carried ones."""
    final: bool = False
    """A bounded pipeline has finished, or the daemon was asked to stop, at this checkpoint."""
    starts: tuple[tuple[OperatorName, str], ...] = ()
    """Sources that begin at this checkpoint, and their `start` (ADR 17). No attempt made such a checkpoint."""
    lost: tuple[LostRange, ...] = ()
    """Removed input that its positions skip (ADR 46). No attempt made such a checkpoint."""

    @property
    def size_bytes(self) -> int:
        """Bytes of state in storage."""
        return sum(state.size_bytes for state in self.states)

    @property
    def inflight_bytes(self) -> int:
        """The part of `size_bytes` that is rows in flight."""
        return sum(state.size_bytes for state in self.states if state.in_flight)


class Job(msgspec.Struct, frozen=True):
    """The attempt to coordinate."""

    attempt: Attempt
    sources: frozenset[SubtaskId]
    """Subtasks that are triggered (C12)."""
    subtasks: frozenset[SubtaskId]
    """All subtasks, sources included; all must ack, and all are notified."""
    first_checkpoint: CheckpointId
    reserved_to: CheckpointId
    retained: tuple[CompletedCheckpoint, ...] = ()
    """The checkpoints that the journal retains, oldest first; the coordinator never discards their state."""
    carried: tuple[Committable, ...] = ()
    """Committables of the restored checkpoint that recovery has not ended; usually none."""
