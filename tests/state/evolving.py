"""Writes states of one declaration and restores them into another, in both backends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from tests.state.driving import in_memory
from tidegate.datatypes import STRING
from tidegate.ids import CheckpointId, StateName
from tidegate.state.base import KeyedState, Share
from tidegate.state.declaration import Evolution, StateDeclaration, StateField, StateShape
from tidegate.state.keygroups import KEY_HASH, key_groups_of_keys
from tidegate.state.memory import MemoryState
from tidegate.state.rocks import RocksLimits, RocksState
from tidegate.state.snapshot import read_header

GROUPS = 4
ALL = Share(range(GROUPS))
BACKENDS = ("memory", "columns", "rocksdb")
KEY = (StateField("k", STRING),)

Entries = dict[tuple[Any, ...], tuple[Any, ...]]


def declare(
    values: Sequence[StateField], keys: Sequence[StateField] = KEY, evolution: Evolution | None = None, **more: Any
) -> StateDeclaration:
    """A state named `s`; `more` are fields of its declaration."""
    shape = StateShape(tuple(keys), tuple(values), key_hash=KEY_HASH, max_parallelism=GROUPS)
    return StateDeclaration(StateName("s"), shape, evolution=evolution or Evolution(), **more)


def reshape(declaration: StateDeclaration, **fields: Any) -> StateDeclaration:
    """With other fields of its shape."""
    shape = msgspec.structs.replace(declaration.shape, **fields)
    changed: StateDeclaration = msgspec.structs.replace(declaration, shape=shape)
    return changed


def open_state(declaration: StateDeclaration, backend: str) -> KeyedState[Any]:
    """A new state of step `step`."""
    shape = declaration.shape
    grouped = shape.keys[shape.prefix : len(shape.keys) - shape.suffix]
    kinds = [field.type for field in grouped]

    def groups_of(rows: Sequence[tuple[Any, ...]]) -> Sequence[int]:
        return key_groups_of_keys(rows, kinds, GROUPS)

    if backend == "memory":
        return MemoryState("step", declaration, groups_of)
    if backend == "columns":
        return in_memory("step", declaration, groups_of)
    return RocksState("step", declaration, groups_of, parent=Path(_directory().name), limits=_SMALL)


_SMALL: Final = RocksLimits(cache_bytes=1 << 16, write_buffer_bytes=1 << 16)


@cache
def _directory() -> TemporaryDirectory[str]:
    """One of our own: whoever makes another looks through all that are there."""
    return TemporaryDirectory(prefix="evolving-")


def key_of(declaration: StateDeclaration, key: tuple[Any, ...]) -> Any:
    """As states take keys."""
    return key[0] if len(declaration.shape.keys) == 1 else key


def capture(state: KeyedState[Any], checkpoint: int = 1) -> list[bytes]:
    """The files that a snapshot writes."""
    captured = state.capture(CheckpointId(checkpoint))
    return [] if captured.encode is None else list(captured.encode())


def write(declaration: StateDeclaration, entries: Entries, backend: str = "memory") -> list[bytes]:
    """The files of a state with these entries."""
    state = open_state(declaration, backend)
    try:
        state.put_many([key_of(declaration, key) for key in entries], list(entries.values()))
        return capture(state)
    finally:
        state.close()


def restore(files: Sequence[bytes], declaration: StateDeclaration, backend: str) -> Entries:
    """What is in the state after a restore; whatever is written next is whole, and in the new shape (S11)."""
    state = open_state(declaration, backend)
    try:
        state.restore(files, ALL)
        found = {_row(key): value for group in range(GROUPS) for key, value in state.scan(group)}
        assert len(state) == len(found)
        written = capture(state)
        assert written
        for file in written:
            assert read_header(file)[0].shape == declaration.shape
        again = open_state(msgspec.structs.replace(declaration, evolution=Evolution()), "memory")
        try:
            again.restore(written, ALL)
            assert {_row(key): value for group in range(GROUPS) for key, value in again.scan(group)} == found
        finally:
            again.close()
        return found
    finally:
        state.close()


def _row(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)
