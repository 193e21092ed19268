"""Headers of a checkpoint's state files, from which the upgrade decision is made."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.coordinator.types import StateHandle
from tidegate.coordinator.upgrade import StoredStates, WrittenState
from tidegate.ids import OperatorName, StateName
from tidegate.journal.state_files import read_head
from tidegate.state.declaration import StateForm
from tidegate.state.snapshot import read_header
from tidegate.storage.base import ObjectCorrupt, ObjectMissing, Storage


def read_stored(storage: Storage, handles: Iterable[StateHandle], *, every: bool = False) -> StoredStates:
    """Reads the headers of state files, by operator and state.

    With `every` all files are read and keys are counted. Otherwise the smallest file of each state suffices, because
    all have the shape of the definition that wrote them. Damaged files are skipped: the recovery looks for damage, and
    for a way around it. Raises StateUnreadable, StorageError.
    """
    own = [handle for handle in handles if not handle.in_flight]
    sizes: dict[tuple[OperatorName, StateName], int] = {}
    found: dict[tuple[OperatorName, StateName], WrittenState] = {}
    for handle in own if every else _smallest(own):
        try:
            header, _ = read_header(read_head(storage, handle))
        except (ObjectCorrupt, ObjectMissing):
            continue
        owner = (handle.operator, header.state)
        sizes[owner] = sizes.get(owner, 0) + handle.size_bytes
        keys = sum(group.entries for group in header.groups)
        before = found[owner].keys or 0 if owner in found else 0
        counted = every and header.shape.form is StateForm.KEYED
        found[owner] = WrittenState(header.shape, before + keys if counted else None, sizes[owner])
    return found


def _smallest(handles: Iterable[StateHandle]) -> list[StateHandle]:
    """Returns the smallest file of each state."""
    smallest: dict[tuple[OperatorName, StateName], StateHandle] = {}
    for handle in handles:
        owner = (handle.operator, handle.state)
        if owner not in smallest or handle.size_bytes < smallest[owner].size_bytes:
            smallest[owner] = handle
    return list(smallest.values())
