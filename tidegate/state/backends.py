"""The state backends by their names in the pipeline file (F17)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidegate.state.base import GroupsOf, KeyedState
from tidegate.state.declaration import StateDeclaration
from tidegate.state.memory import MemoryState

OpenState = Callable[[str, StateDeclaration, GroupsOf], KeyedState[Any]]
"""Operator, what it declares, and key groups; a new, empty state. Lists need no backend: see `operator_list.py`."""


def choose_backend(name: str, retained: int, parent: Path | None = None) -> OpenState:
    """How states are opened. `retained`: see Increments. `parent`: see RocksState."""
    match name:
        case "memory":
            return lambda operator, declaration, groups_of: MemoryState(operator, declaration, groups_of, retained)
        case "rocksdb":
            from tidegate.state.rocks import RocksState

            return lambda operator, declaration, groups_of: RocksState(
                operator, declaration, groups_of, retained, parent=parent
            )
    raise ValueError(f"unknown state backend {name!r}")
