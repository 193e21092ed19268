"""Keyed state in a dict. Values are immutable tuples, so a shallow copy of the dict is a snapshot (F23)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial

from tidegate.state.base import GroupsOf, Key, Share
from tidegate.state.declaration import StateDeclaration
from tidegate.state.incremental import Encode, IncrementalState
from tidegate.state.increments import File
from tidegate.state.order import SortedKeys
from tidegate.state.snapshot import Entry, Value, encode_snapshot, read_entries


class MemoryState(IncrementalState[File]):
    """See KeyedState."""

    def __init__(self, operator: str, declaration: StateDeclaration, groups_of: GroupsOf, retained: int = 1) -> None:
        """`retained`: see Increments."""
        super().__init__(operator, declaration, groups_of, retained)
        self._entries: dict[Key, Value] = {}
        self._sorted: SortedKeys | None = None
        """The keys in order, once somebody has asked for it."""

    def __len__(self) -> int:
        """See KeyedState."""
        return len(self._entries)

    def get_many(self, keys: Collection[Key]) -> list[Value | None]:
        """See KeyedState."""
        return list(map(self._entries.get, keys))

    def restore(self, files: Iterable[bytes], share: Share) -> None:
        """See KeyedState."""
        for data in files:
            for part in read_entries(data, share.key_groups, self._operator, self.declaration):
                self._entries.update(
                    (key[0] if self._single else key, value) for key, value in part if value is not None
                )
                for key in self._keys(key for key, value in part if value is None):
                    self._entries.pop(key, None)

    def close(self) -> None:
        """See KeyedState."""
        self._entries.clear()
        self._sorted = None

    def _put(self, keys: Collection[Key], values: Iterable[Value]) -> None:
        if self._sorted is not None:
            self._sort_in(self._sorted, [key for key in dict.fromkeys(keys) if key not in self._entries])
        self._entries.update(zip(keys, values, strict=True))

    def _delete(self, keys: Collection[Key]) -> Collection[Key]:
        entries = self._entries
        gone = [key for key in dict.fromkeys(keys) if entries.pop(key, None) is not None]
        if self._sorted is not None and gone:
            rows = self._rows(gone)
            for group, place in zip(self._groups(rows), self._order.encode(rows), strict=True):
                self._sorted.remove(group, place)
        return gone

    def _scan(self, group: int, prefix: bytes, limit: int | None, *, backwards: bool) -> Iterator[tuple[Key, Value]]:
        if self._sorted is None:
            self._sorted = SortedKeys()
            rows = self._rows(self._entries)
            self._sorted.fill(self._groups(rows), self._order.encode(rows), self._entries)
        keys = self._sorted.between(group, prefix, limit, backwards=backwards)
        return iter([(key, self._entries[key]) for key in keys])

    def _sort_in(self, index: SortedKeys, new: list[Key]) -> None:
        rows = self._rows(new)
        for group, place, key in zip(self._groups(rows), self._order.encode(rows), new, strict=True):
            index.add(group, place, key)

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
