"""A keyed state with the life of its files: what was written, what may be listed, what is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from tidegate.datatypes import BIGINT, STRING
from tidegate.ids import CheckpointId, StateName
from tidegate.state.backends import choose_backend
from tidegate.state.base import GroupsOf, KeyedState, Share
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.increments import RestoredLayer
from tidegate.state.memory import MemoryState
from tidegate.state.rocks import RocksLimits, RocksState
from tidegate.state.snapshot import read_entries, read_header

GROUPS = 16
ALL = Share(range(GROUPS))


def declare(keys: int = 1) -> StateDeclaration:
    shape = StateShape(
        keys=tuple(StateField(f"k{i}", STRING) for i in range(keys)),
        values=(StateField("n", BIGINT, nullable=False),),
        key_hash="sum of bytes",
        max_parallelism=GROUPS,
    )
    return StateDeclaration(StateName("totals"), shape)


def groups_of(rows: Sequence[tuple[Any, ...]]) -> list[int]:
    """By the first text, whether or not a state has an order and other columns do not count."""
    return [sum(next((part for part in row if isinstance(part, str)), "").encode()) % GROUPS for row in rows]


def make_memory(keys: int = 1, retained: int = 1) -> MemoryState[str]:
    return MemoryState("step", declare(keys), groups_of, retained)


def in_memory(operator: str, declaration: StateDeclaration, groups: GroupsOf, retained: int = 1) -> KeyedState[Any]:
    """A state as an operator gets it that uses columns. Without the library, or for other types, it is in rows."""
    return choose_backend("memory", retained)(operator, msgspec.structs.replace(declaration, in_columns=True), groups)


class Backend:
    """Opens states of one kind below `directory`; `close` closes them all."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self._directory = directory
        self._opened: list[KeyedState[str]] = []

    def __call__(self, retained: int = 1, declaration: StateDeclaration | None = None) -> KeyedState[str]:
        declaration = declare() if declaration is None else declaration
        state: KeyedState[str]
        if self.name == "memory":
            state = MemoryState("step", declaration, groups_of, retained)
        elif self.name == "columns":
            state = in_memory("step", declaration, groups_of, retained)
        else:
            limits = RocksLimits(cache_bytes=1 << 16, write_buffer_bytes=1 << 16)
            state = RocksState("step", declaration, groups_of, retained, parent=self._directory, limits=limits)
        self._opened.append(state)
        return state

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()


class Files:
    """Stands for the checkpoint storage: files by name, and what each completed checkpoint lists."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.listed: dict[int, tuple[str, ...]] = {}
        self.written: dict[int, int] = {}
        """Bytes per snapshot."""

    def take(self, state: KeyedState[str], checkpoint: int, *, full: bool = False) -> tuple[str, ...]:
        """A snapshot whose files are durable; what its checkpoint lists."""
        capture = state.capture(CheckpointId(checkpoint), full=full)
        own = []
        for number, data in enumerate(capture.encode() if capture.encode is not None else ()):
            own.append(f"{checkpoint}.{number}")
            self.data[own[-1]] = data
        self.written[checkpoint] = sum(len(self.data[name]) for name in own)
        if own:
            state.stored(CheckpointId(checkpoint), own)
        self.listed[checkpoint] = (*capture.builds_on, *own)
        return self.listed[checkpoint]

    def complete(self, state: KeyedState[str], checkpoint: int) -> tuple[str, ...]:
        """A whole checkpoint, without anything that goes wrong."""
        names = self.take(state, checkpoint)
        state.completed(CheckpointId(checkpoint))
        return names

    def drop(self, checkpoint: int) -> None:
        """The files of a checkpoint that was given up are deleted."""
        for name in self.listed.pop(checkpoint):
            if name.startswith(f"{checkpoint}."):
                del self.data[name]

    def of(self, checkpoint: int) -> Iterable[bytes]:
        return [self.data[name] for name in self.listed[checkpoint]]

    def restore(self, state: KeyedState[str], checkpoint: int) -> None:
        """A restore whose files the next snapshots build on."""
        names = self.listed[checkpoint]
        state.restore(self.of(checkpoint), ALL)
        by_snapshot = [tuple(group) for _, group in groupby(names, lambda name: name.split(".")[0])]
        state.restored(RestoredLayer(sum(map(self._entries, group)), group) for group in by_snapshot)

    def _entries(self, name: str) -> int:
        return sum(group.entries for group in read_header(self.data[name])[0].groups)

    def read(self, checkpoint: int, key_groups: range = range(GROUPS)) -> dict[str, int]:
        """What the checkpoint restores."""
        state = make_memory()
        state.restore(self.of(checkpoint), Share(key_groups))
        return content(state)


def content(state: KeyedState[str]) -> dict[str, int]:
    """All entries, read back from a full snapshot."""
    return {
        key[0]: value[0]
        for data in encoded(state)
        for entries in read_entries(data, range(GROUPS), "step", declare())
        for key, value in entries
        if value is not None
    }


def encoded(state: KeyedState[str]) -> list[bytes]:
    """A full snapshot that no other one builds on."""
    capture = state.capture(CheckpointId(10**9), full=True)
    assert capture.encode is not None
    return list(capture.encode())


def put(state: KeyedState[str], entries: Mapping[str, int]) -> None:
    state.put_many(entries, [(value,) for value in entries.values()])
