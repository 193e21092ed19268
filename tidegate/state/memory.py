"""Keyed state in a dict. Values are immutable tuples, so a shallow copy of the dict is a snapshot (F23)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import partial

from tidegate.state.base import GroupsOf, Key, Value
from tidegate.state.incremental import Encode, IncrementalState
from tidegate.state.increments import File
from tidegate.state.snapshot import Entry, StateShape, encode_snapshot, read_entries


class MemoryState(IncrementalState[File]):
    """See KeyedState."""

    def __init__(self, operator: str, name: str, shape: StateShape, groups_of: GroupsOf, retained: int = 1) -> None:
        """`retained`: see Increments."""
        super().__init__(operator, name, shape, groups_of, retained)
        self._entries: dict[Key, Value] = {}

    def __len__(self) -> int:
        """See KeyedState."""
        return len(self._entries)

    def get_many(self, keys: Collection[Key]) -> list[Value | None]:
        """See KeyedState."""
        return list(map(self._entries.get, keys))

    def restore(self, files: Iterable[bytes], key_groups: range) -> None:
        """See KeyedState."""
        for data in files:
            for entries in read_entries(data, key_groups, self._operator, self._name, self._shape):
                self._entries.update((key[0] if self._single else key, value) for key, value in entries)

    def close(self) -> None:
        """See KeyedState."""
        self._entries.clear()

    def _put(self, keys: Collection[Key], values: Iterable[Value]) -> None:
        self._entries.update(zip(keys, values, strict=True))

    def _freeze_all(self) -> Encode:
        return partial(self._encode, self._entries.copy())

    def _freeze(self, keys: Collection[Key]) -> Encode:
        entries = self._entries
        return partial(self._encode, {key: entries[key] for key in keys})

    def _encode(self, frozen: Mapping[Key, Value]) -> list[bytes]:
        rows = self._rows(frozen)
        groups: defaultdict[int, list[Entry]] = defaultdict(list)
        for group, entry in zip(self._groups_of(rows), zip(rows, frozen.values(), strict=True), strict=True):
            groups[group].append(entry)
        return [encode_snapshot(self._operator, self._name, self._shape, groups)]
