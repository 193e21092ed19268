"""Restores an operator's states from the files of a checkpoint, in the order of the files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby

from tidegate.coordinator.types import StateHandle
from tidegate.ids import CheckpointId, OperatorName, StateName
from tidegate.journal.state_files import refuse_broken_chains
from tidegate.state.base import Share
from tidegate.state.declaration import StateDeclaration
from tidegate.state.errors import StateUnreadable
from tidegate.state.increments import RestoredLayer
from tidegate.state.migration import derive_migration
from tidegate.state.snapshot import read_header
from tidegate.storage.names import checkpoint_of_state
from tidegate.task.ports import OperatorState

Read = Callable[[StateHandle], Iterable[bytes]]
"""Reads the part of a file within the key groups to restore, as one or more files of the same format."""
Evolve = Callable[[StateDeclaration], StateDeclaration]


def as_declared(declaration: StateDeclaration) -> StateDeclaration:
    """Returns the declaration of a step without upgrade directives unchanged."""
    return declaration


def restore_states(
    operator: OperatorName,
    states: Mapping[StateName, OperatorState],
    handles: Iterable[StateHandle],
    read: Read,
    share: Share,
    evolve: Evolve = as_declared,
    *,
    same_key_groups: bool = False,
) -> int:
    """Restores the operator's states from these handles and returns the number of files. Reads files one at a time.

    `evolve` adds the user's directives about older entries to a declaration. A state without files is new and stays
    empty. With `same_key_groups`, the files of keyed states were written by this subtask with the same key groups: the
    next snapshots build on them where no entry was converted. Raises StateUnreadable if a file belongs to a state that
    the operator does not have or does not fit its state, ObjectCorrupt for increments without their base, and whatever
    `read` raises.
    """
    own = [handle for handle in handles if handle.operator == operator and not handle.in_flight]
    refuse_broken_chains(own)
    for name, files in group_by_state(own).items():
        if name not in states:
            raise unknown_state(operator, name, states)
        state, declared = states[name], states[name].declaration
        state.declaration = evolve(declared)
        reader = _Reader(read, operator, declared, state.declaration)
        state.restore(reader.read(files), share)
        state.declaration = declared
        if same_key_groups and declared.keyed and reader.as_now:
            state.restored(reader.layers(files))
    return len(own)


class _Reader:
    """Reads the files of one state, counts their entries, and compares them with those that would be written now."""

    def __init__(
        self, read: Read, operator: OperatorName, declared: StateDeclaration, evolved: StateDeclaration
    ) -> None:
        self.as_now = True
        """Whether all entries read so far are in the form in which the state would be written now."""
        self._read = read
        self._operator = operator
        self._declared = declared
        self._evolved = evolved
        self._entries: dict[str, int] = {}

    def read(self, files: Iterable[StateHandle]) -> Iterator[bytes]:
        for handle in files:
            for part in self._read(handle):
                self._account(handle, part)
                yield part

    def layers(self, files: Iterable[StateHandle]) -> list[RestoredLayer[StateHandle]]:
        """Returns the files, after they were read, by the snapshot that wrote them."""
        groups = (tuple(group) for _, group in groupby(files, _snapshot_of))
        return [RestoredLayer(sum(self._entries[one.path] for one in group), group) for group in groups]

    def _account(self, handle: StateHandle, part: bytes) -> None:
        header, _ = read_header(part)
        entries = sum(group.entries for group in header.groups)
        self._entries[handle.path] = self._entries.get(handle.path, 0) + entries
        same = header.operator == self._operator and header.shape == self._declared.shape
        if not same or derive_migration(header.shape, self._evolved) is not None:
            self.as_now = False


def _snapshot_of(handle: StateHandle) -> tuple[bool, CheckpointId | None]:
    return handle.increment, checkpoint_of_state(handle.path)


def group_by_state(handles: Iterable[StateHandle]) -> dict[StateName, list[StateHandle]]:
    """Groups an operator's files by the name of their state, in order."""
    found: dict[StateName, list[StateHandle]] = {}
    for handle in handles:
        found.setdefault(handle.state, []).append(handle)
    return found


def unknown_state(operator: OperatorName, name: str, known: Iterable[str]) -> StateUnreadable:
    """Returns the error for state that the operator does not have."""
    return StateUnreadable(
        f"the checkpoint has state {name} of {operator}, a step that has no such state now (it has: "
        f"{', '.join(sorted(known)) or 'none'}): restore the old definition of the step, or use the release that "
        f"wrote the checkpoint",
        operator=operator,
        state=name,
    )
