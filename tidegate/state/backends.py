"""The state backends by their names in the pipeline file (F17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegate.state.base import GroupsOf, KeyedState
from tidegate.state.memory import MemoryState
from tidegate.state.snapshot import StateShape

OpenState = Callable[[str, str, StateShape, GroupsOf], KeyedState[Any]]
"""Operator, name of the state, shape and key groups; a new, empty state."""


def choose_backend(name: str, retained: int) -> OpenState:
    """How states are opened. `retained`: see Increments."""
    match name:
        case "memory":
            return lambda operator, state, shape, groups_of: MemoryState(operator, state, shape, groups_of, retained)
        case "rocksdb":
            from tidegate.state.rocks import RocksState

            return lambda operator, state, shape, groups_of: RocksState(operator, state, shape, groups_of, retained)
    raise ValueError(f"unknown state backend {name!r}")
