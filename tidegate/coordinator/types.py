"""What the coordinator, the slots and the journal say to one another about checkpoints. Plain, frozen, serialisable."""

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
    """What a piece of state is, and so who restores it."""

    OPERATOR = "operator"
    """Keyed state of the operator of that name: for the subtasks that have its key groups."""
    LIST = "list"
    """State without keys of the operator of that name: every subtask reads it all, and takes its part."""
    INPUT = "input"
    """Rows in flight in front of a subtask: replayed before any new row of their edges."""
    OUTPUT = "output"
    """Rows in flight that waited to leave a subtask: replayed at the other end of their edges, after its INPUT."""


class StateHandle(msgspec.Struct, frozen=True):
    """Pointer to a stored piece of state (F18)."""

    operator: OperatorName
    """Whose state it is; of rows in flight the head of the subtask's vertex."""
    subtask: SlotIndex
    path: str
    """Object name in the checkpoint storage."""
    size_bytes: int
    sha256: str
    head_bytes: int
    """Where the entries begin in the object (see `state/parts.py`): what has to be read to know what it holds."""
    head_sha256: str
    """Of these bytes."""
    kind: StateKind = StateKind.OPERATOR
    edges: tuple[str, ...] = ()
    """Rows in flight: names of the edges that they were on."""
    increment: bool = False
    """Keyed state that changed since the files before it in the checkpoint, of the same state and subtask (F28)."""
    state: StateName = StateName("")
    """Which of the operator's states; empty for rows in flight."""

    @property
    def in_flight(self) -> bool:
        """Whether it is rows in flight, and not an operator's state."""
        return self.kind in (StateKind.INPUT, StateKind.OUTPUT)


class SourcePositions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where one source continues: next offset per partition, and where a bounded read ends (empty when unbounded)."""

    source: OperatorName
    next_offsets: tuple[tuple[TopicPartition, int], ...]
    end_offsets: tuple[tuple[TopicPartition, int], ...] = ()
    watermarks: tuple[tuple[TopicPartition, int], ...] = ()
    """Event time up to which each partition is, ms since 1970, by its records (and by the clock, where the file says
    so); never the end of time. Without those that have none yet; empty where no operator needs event time."""
    event_time: str = ""
    """The column that `watermarks` are by; empty for the Kafka timestamp. Those of another column say nothing."""


class LostRange(msgspec.Struct, frozen=True):
    """Offsets of a partition that a source has skipped because they were removed before they were read."""

    source: OperatorName
    partition: TopicPartition
    from_offset: int
    to_offset: int
    """The first offset that is read again (exclusive)."""

    @property
    def offsets(self) -> int:
        """At most so many records: markers of transactions and aborted records have offsets, too."""
        return self.to_offset - self.from_offset


class Ack(msgspec.Struct, frozen=True):
    """A subtask has its part of a checkpoint durable (C36), for all of its chained operators (C28)."""

    attempt: Attempt
    checkpoint: CheckpointId
    subtask: SubtaskId
    positions: tuple[SourcePositions, ...] = ()
    states: tuple[StateHandle, ...] = ()
    committables: tuple[Committable, ...] = ()
    """Of this checkpoint, and every older one that no `Completed` has confirmed to the subtask yet."""
    alignment_ms: float = 0.0
    start_delay_ms: float = 0.0
    snapshot_ms: float = 0.0
    upload_ms: float = 0.0
    prepare_ms: float = 0.0
    written_bytes: int = 0
    """Of `states`, what was written for this checkpoint: the rest are files of earlier ones that it builds on."""
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
    """Everything a recovery needs, of all subtasks, flattened; the body of a journal entry (C03)."""

    id: CheckpointId
    attempt: Attempt
    triggered_at_ms: int
    completed_at_ms: int
    """Stamps for people, ms since 1970 by the daemon's wall clock; their difference is of its monotonic one."""
    positions: tuple[SourcePositions, ...]
    states: tuple[StateHandle, ...]
    committables: tuple[Committable, ...]
    """All that is not known to be ended, carried ones included."""
    final: bool = False
    """A bounded pipeline is finished, or the daemon was asked to stop, at this checkpoint."""
    starts: tuple[tuple[OperatorName, str], ...] = ()
    """Sources that begin at it, and the `start` that their positions were looked up by (ADR 17): no attempt made it."""
    lost: tuple[LostRange, ...] = ()
    """What its positions skip, where they were moved past removed input (ADR 46): no attempt made it."""

    @property
    def size_bytes(self) -> int:
        """Bytes of state in storage."""
        return sum(state.size_bytes for state in self.states)

    @property
    def inflight_bytes(self) -> int:
        """The part of `size_bytes` that is rows in flight."""
        return sum(state.size_bytes for state in self.states if state.in_flight)
