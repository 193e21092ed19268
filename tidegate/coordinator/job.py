"""What the coordinator of one attempt is given: who takes part, which ids it may use, what is there already."""

from __future__ import annotations

import msgspec

from tidegate.committable import Committable
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.ids import Attempt, CheckpointId, SubtaskId


class Job(msgspec.Struct, frozen=True):
    """The attempt that is coordinated."""

    attempt: Attempt
    sources: frozenset[SubtaskId]
    """Subtasks that are triggered (C12)."""
    subtasks: frozenset[SubtaskId]
    """All subtasks, sources included: all must ack, all are notified."""
    first_checkpoint: CheckpointId
    reserved_to: CheckpointId
    retained: tuple[CompletedCheckpoint, ...] = ()
    """The checkpoints that the journal retains, oldest first; their state is never discarded here."""
    carried: tuple[Committable, ...] = ()
    """Committables of the restored checkpoint that recovery has not ended; usually none."""
