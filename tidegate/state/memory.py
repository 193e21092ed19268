"""Keyed state in a dict. Values are immutable tuples, so a shallow copy of the dict is a snapshot (F23)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from tidegate.state.base import GroupsOf, Key, Share
from tidegate.state.declaration import StateDeclaration
from tidegate.state.incremental import Encode, IncrementalState
from tidegate.state.increments import File
from tidegate.state.order import Row
from tidegate.state.snapshot import Entry, Value, encode_snapshot, read_entries
from tidegate.state.sorted_keys import SortedKeys

_PLACED_AT_ONCE: Final = 10_000
"""New keys wait for their key groups, which are found for many at a time, until a scan or so many of them."""


class MemoryState(IncrementalState[File]):
    """See KeyedState."""

    def __init__(self, operator: str, declaration: StateDeclaration, groups_of: GroupsOf, retained: int = 1) -> None:
        """`retained`: see Increments."""
        super().__init__(operator, declaration, groups_of, retained)
        self._entries: dict[Key, Value] = {}
        self._sorted = SortedKeys(single=self._single) if declaration.shape.prefix else None
        """The keys in order: from the beginning where that is what a state is for, else once somebody has asked."""
        self._unplaced: dict[Key, None] = {}
        """Keys that are not in it yet."""

    def __len__(self) -> int:
        """See KeyedState."""
        return len(self._entries)

    def get_many(self, keys: Collection[Key]) -> list[Value | None]:
        """See KeyedState."""
        return list(map(self._entries.get, keys))

    def keys(self) -> Iterator[Key]:
        """See KeyedState."""
        return iter(list(self._entries))

    def restore(self, files: Iterable[bytes], share: Share) -> None:
        """See KeyedState."""
        for data in files:
            for part in read_entries(data, share.key_groups, self._operator, self.declaration):
                self._entries.update(
                    (key[0] if self._single else key, value) for key, value in part if value is not None
                )
                for key in self._keys(key for key, value in part if value is None):
                    self._entries.pop(key, None)
        if self._sorted is not None:
            self._unplaced = dict.fromkeys(self._entries)
            self._in_order()

    def close(self) -> None:
        """See KeyedState."""
        self._entries.clear()
        self._unplaced.clear()
        self._sorted = None

    def _put(self, keys: Collection[Key], values: Iterable[Value]) -> None:
        if self._sorted is not None:
            self._unplaced.update((key, None) for key in keys if key not in self._entries)
        self._entries.update(zip(keys, values, strict=True))
        if len(self._unplaced) >= _PLACED_AT_ONCE:
            self._in_order()

    def _delete(self, keys: Collection[Key]) -> Collection[Key]:
        entries = self._entries
        gone = [key for key in dict.fromkeys(keys) if entries.pop(key, None) is not None]
        if self._sorted is not None:
            placed = [key for key in gone if key not in self._unplaced]
            for key in gone:
                self._unplaced.pop(key, None)
            self._sorted.remove(self.groups_of(placed), placed)
        return gone

    def _scan(
        self, group: int, prefix: Row, start: Row, limit: int | None, *, backwards: bool
    ) -> Iterator[tuple[Key, Value]]:
        keys = self._in_order().between(group, prefix, start=start, limit=limit, backwards=backwards)
        return iter([(key, self._entries[key]) for key in keys])

    def _in_order(self) -> SortedKeys:
        """All keys, each in its group."""
        if self._sorted is None:
            self._sorted = SortedKeys(single=self._single)
            self._unplaced = dict.fromkeys(self._entries)
        if self._unplaced:
            self._sorted.add(self.groups_of(self._unplaced), self._unplaced)
            self._unplaced = {}
        return self._sorted

    def _freeze_all(self) -> Encode:
        return partial(self._encode, self._entries.copy())

    def _freeze(self, keys: Collection[Key]) -> Encode:
        value_of = self._entries.get
        return partial(self._encode, {key: value_of(key) for key in keys})

    def _encode(self, frozen: Mapping[Key, Value | None]) -> list[bytes]:
        rows = self._rows(frozen)
        groups: defaultdict[int, list[Entry]] = defaultdict(list)
        for group, entry in zip(self._groups(rows), zip(rows, frozen.values(), strict=True), strict=True):
            groups[group].append(entry)
        return [encode_snapshot(self._operator, self.declaration, groups)]
