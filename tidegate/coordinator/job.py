"""The input of an attempt's coordinator: the subtasks, the ids it may use, and the existing checkpoints."""

from __future__ import annotations

import msgspec

from tidegate.committable import Committable
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.ids import Attempt, CheckpointId, SubtaskId


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
