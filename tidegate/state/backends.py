"""State backends by their names in the pipeline file (F17)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidegate.native.library import loaded
from tidegate.state.base import GroupsOf, KeyedState
from tidegate.state.columns import ColumnState, fits_columns
from tidegate.state.declaration import StateDeclaration
from tidegate.state.memory import MemoryState

OpenState = Callable[[str, StateDeclaration, GroupsOf], KeyedState[Any]]
"""Opens an empty state for an operator, its declaration and key groups. Lists need no backend (`operator_list.py`)."""


def choose_backend(name: str, retained: int, parent: Path | None = None) -> OpenState:
    """Returns the function that opens states in this backend. `retained`: see Increments. `parent`: see RocksState."""
    match name:
        case "memory":
            return lambda operator, declaration, groups_of: _open_memory(operator, declaration, groups_of, retained)
        case "rocksdb":
            from tidegate.state.rocks import RocksState

            return lambda operator, declaration, groups_of: RocksState(
                operator, declaration, groups_of, retained, parent=parent
            )
    raise ValueError(f"unknown state backend {name!r}")


def _open_memory(operator: str, declaration: StateDeclaration, groups_of: GroupsOf, retained: int) -> KeyedState[Any]:
    """Opens a state in columns where its operator uses them and the native library can hold it, otherwise in dicts."""
    library = loaded()
    if declaration.in_columns and library is not None and fits_columns(declaration):
        return ColumnState(operator, declaration, groups_of, retained, library=library)
    return MemoryState(operator, declaration, groups_of, retained)
