"""State objects that are still needed. Pure: derived from what checkpoints list, so there is no reference counter.

Several checkpoints may list one object (a base that increments build on, a restored checkpoint). An object is deleted
only when no retained and no pending checkpoint lists it. A checkpoint may complete only if every object that it lists
is its own or listed by a retained checkpoint; any other object may be deleted at any time.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.coordinator.types import CompletedCheckpoint, StateHandle
from tidegate.ids import CheckpointId
from tidegate.storage.names import checkpoint_of_state


def listed_paths(checkpoints: Iterable[CompletedCheckpoint]) -> frozenset[str]:
    """Returns every object that these checkpoints list."""
    return frozenset(handle.path for checkpoint in checkpoints for handle in checkpoint.states)


def decide_garbage(handles: Iterable[StateHandle], needed: frozenset[str]) -> tuple[StateHandle, ...]:
    """Returns the objects that may be deleted, each once."""
    return tuple({handle.path: handle for handle in handles if handle.path not in needed}.values())


def decide_gone(
    checkpoint: CheckpointId, handles: Iterable[StateHandle], retained: Iterable[CompletedCheckpoint]
) -> tuple[str, ...]:
    """Returns objects that a checkpoint lists although they are neither its own nor listed by a retained one."""
    kept = listed_paths(retained)
    return tuple(h.path for h in handles if checkpoint_of_state(h.path) != checkpoint and h.path not in kept)
