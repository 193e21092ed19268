"""State objects in storage: read and verified against the handle that a checkpoint has of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from tidegate.coordinator.types import StateHandle
from tidegate.errors import BEGIN_ANEW
from tidegate.ids import OperatorName, SlotIndex, StateName
from tidegate.storage.base import ObjectCorrupt, ObjectMissing, Storage


def read_state(storage: Storage, handle: StateHandle) -> bytes:
    """The object as it was stored, sealed. Raises ObjectMissing, ObjectCorrupt when it is another one, StorageError."""
    data = storage.get(handle.path)
    digest = hashlib.sha256(data).hexdigest()
    if digest != handle.sha256:
        raise ObjectCorrupt(
            f"{storage.location}/{handle.path} is not the file that the checkpoint wrote: {len(data)} bytes with "
            f"sha256 {digest[:12]}, expected {handle.size_bytes} bytes with {handle.sha256[:12]}; put it back from a "
            f"backup, or start with {BEGIN_ANEW}",
            name=handle.path,
        )
    return data


def refuse_broken_chains(handles: Iterable[StateHandle]) -> None:
    """Increments of a state in a subtask come after a full snapshot of it. Raises ObjectCorrupt when one does not."""
    begun: set[tuple[OperatorName, StateName, SlotIndex]] = set()
    for handle in handles:
        owner = (handle.operator, handle.state, handle.subtask)
        if handle.increment and owner not in begun:
            raise ObjectCorrupt(
                f"{handle.path} holds what changed in {_describe(handle)} since an older snapshot, which "
                "the checkpoint does not list; keep the directory as it is and report this",
                name=handle.path,
            )
        begun.add(owner)


def _describe(handle: StateHandle) -> str:
    return f"state {handle.state} of {handle.operator}" if handle.state else f"the state of {handle.operator}"


def find_damage(storage: Storage, states: Iterable[StateHandle]) -> str:
    """The first object that is missing or is not what was written; empty when all are whole. Raises StorageError."""
    for handle in states:
        try:
            read_state(storage, handle)
        except (ObjectCorrupt, ObjectMissing) as error:
            return error.message
    return ""
