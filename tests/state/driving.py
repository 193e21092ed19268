"""A keyed state with the life of its files: what was written, what may be listed, what is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidegate.datatypes import BIGINT, STRING
from tidegate.ids import CheckpointId
from tidegate.state.base import KeyedState
from tidegate.state.memory import MemoryState
from tidegate.state.snapshot import StateField, StateShape

GROUPS = 16


def make_shape(keys: int = 1) -> StateShape:
    return StateShape(
        keys=tuple(StateField(f"k{i}", STRING) for i in range(keys)),
        values=(StateField("n", BIGINT, nullable=False),),
        key_hash="sum of bytes",
        max_parallelism=GROUPS,
    )


def groups_of(rows: Sequence[tuple[str | None, ...]]) -> list[int]:
    return [sum((row[0] or "").encode()) % GROUPS for row in rows]


def make_memory(keys: int = 1, retained: int = 1) -> MemoryState[str]:
    return MemoryState("step", "totals", make_shape(keys), groups_of, retained)


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

    def read(self, checkpoint: int, key_groups: range = range(GROUPS)) -> dict[str, int]:
        """What the checkpoint restores."""
        state = make_memory()
        state.restore(self.of(checkpoint), key_groups)
        return content(state)


def content(state: MemoryState[str]) -> dict[str, int]:
    return {key: value[0] for key, value in state._entries.items()}


def put(state: KeyedState[str], entries: Mapping[str, int]) -> None:
    state.put_many(entries, [(value,) for value in entries.values()])
