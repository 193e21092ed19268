"""Restores an operator's states from the files of a checkpoint, in the order of the files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain

from tidegate.coordinator.types import StateHandle
from tidegate.ids import OperatorName, StateName
from tidegate.journal.state_files import refuse_broken_chains
from tidegate.state.base import Share
from tidegate.state.declaration import StateDeclaration
from tidegate.state.errors import StateUnreadable
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
) -> int:
    """Restores the operator's states from these handles and returns the number of files. Reads files one at a time.

    `evolve` adds the user's directives about older entries to a declaration. A state without files is new and stays
    empty. Raises StateUnreadable if a file belongs to a state that the operator does not have or does not fit its
    state, ObjectCorrupt for increments without their base, and whatever `read` raises.
    """
    own = [handle for handle in handles if handle.operator == operator and not handle.in_flight]
    refuse_broken_chains(own)
    for name, files in group_by_state(own).items():
        if name not in states:
            raise unknown_state(operator, name, states)
        declared = states[name].declaration
        states[name].declaration = evolve(declared)
        states[name].restore(chain.from_iterable(map(read, files)), share)
        states[name].declaration = declared
    return len(own)


def group_by_state(handles: Iterable[StateHandle]) -> dict[StateName, list[StateHandle]]:
    """Groups an operator's files by the name of their state, in order."""
    found: dict[StateName, list[StateHandle]] = {}
    for handle in handles:
        found.setdefault(handle.state, []).append(handle)
    return found


def unknown_state(operator: OperatorName, name: str, known: Iterable[str]) -> StateUnreadable:
    """Returns the error for state that the operator does not have."""
    return StateUnreadable(
        f"the checkpoint holds state {name} of {operator}, a step that has no such state now (it has: "
        f"{', '.join(sorted(known)) or 'none'}): put the old definition of the step back, or use the release that "
        "wrote the checkpoint",
        operator=operator,
        state=name,
    )
