"""Keyed state in a dict. Values are immutable tuples, so a shallow copy of the dict is a snapshot (F23)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tidegate.state.snapshot import Entry, StateShape, encode_snapshot, read_entries

Key = Any
"""The value of the key column, or a tuple of the values of several; None inside is NULL."""

Value = tuple[Any, ...]

GroupsOf = Callable[[list[tuple[Any, ...]]], Sequence[int]]
"""Key groups of keys (each a tuple of its columns); the hash lives in `tidegate.plan.keygroups`."""


class MemoryState:
    """One state of one operator in one subtask. Access is by batch; only the loop's thread may call it."""

    def __init__(self, operator: str, name: str, shape: StateShape, groups_of: GroupsOf) -> None:
        self._operator = operator
        self._name = name
        self._shape = shape
        self._groups_of = groups_of
        self._single = len(shape.keys) == 1
        self._entries: dict[Key, Value] = {}

    def __len__(self) -> int:
        """Number of keys."""
        return len(self._entries)

    def get_many(self, keys: Iterable[Key]) -> list[Value | None]:
        """The value of each key, None where there is none."""
        return list(map(self._entries.get, keys))

    def put_many(self, keys: Iterable[Key], values: Iterable[Value]) -> None:
        """Set values; of a repeated key the last counts."""
        self._entries.update(zip(keys, values, strict=True))

    def capture(self) -> Callable[[], bytes]:
        """The synchronous part of a snapshot. What it returns may run on another thread and sees this moment."""
        frozen = self._entries.copy()
        return lambda: self._encode(frozen)

    def restore(self, files: Iterable[bytes], key_groups: range) -> None:
        """Add the entries of `key_groups` from each file. Raises StateUnreadable."""
        for data in files:
            for entries in read_entries(data, key_groups, self._operator, self._name, self._shape):
                self._entries.update((key[0] if self._single else key, value) for key, value in entries)

    def _encode(self, frozen: dict[Key, Value]) -> bytes:
        keys: list[tuple[Any, ...]] = [(key,) for key in frozen] if self._single else list(frozen)
        groups: defaultdict[int, list[Entry]] = defaultdict(list)
        for group, entry in zip(self._groups_of(keys), zip(keys, frozen.values(), strict=True), strict=True):
            groups[group].append(entry)
        return encode_snapshot(self._operator, self._name, self._shape, groups)
