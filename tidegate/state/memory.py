"""Keyed state in dicts. Values are immutable tuples, so a snapshot only has to prevent changes to the dicts (F23)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from typing_extensions import override

from tidegate.state.base import GroupsOf, Key, Share
from tidegate.state.declaration import StateDeclaration
from tidegate.state.grouping import GroupedEntries, in_parts
from tidegate.state.incremental import Encode, IncrementalState
from tidegate.state.increments import File, KeySet
from tidegate.state.layers import Layers, Moment
from tidegate.state.order import Row
from tidegate.state.snapshot import EncodedGroup, Value, assemble_snapshot, read_entries
from tidegate.state.sorted_keys import SortedKeys

_PLACED_AT_ONCE: Final = 10_000
"""New keys that are collected before their key groups are computed in one batch. A scan does this earlier."""
_COPIED_AT_ONCE: Final = 10_000
"""Up to this many changed keys, a snapshot copies the values at once; for more keys they are read when it is encoded.
"""
_ENCODED_AT_ONCE: Final = 10_000


class MemoryState(IncrementalState[File]):
    """A KeyedState in memory."""

    def __init__(self, operator: str, declaration: StateDeclaration, groups_of: GroupsOf, retained: int = 1) -> None:
        """`retained`: see Increments."""
        super().__init__(operator, declaration, groups_of, retained)
        self._entries = Layers()
        self._sorted = SortedKeys(single=self._single) if declaration.shape.prefix else None
        """The keys in order. A state with a prefix has them from the beginning, any other from the first scan on."""
        self._unplaced: dict[Key, None] = {}
        """Keys that are not in `_sorted` yet."""

    @override
    def __len__(self) -> int:
        return len(self._entries)

    @override
    def get_many(self, keys: Collection[Key]) -> list[Value | None]:
        return self._entries.get_many(keys)

    @override
    def keys(self) -> Iterator[Key]:
        return iter(self._entries.keys())

    def restore(self, files: Iterable[bytes], share: Share) -> None:
        """Adds the entries of each file that belong to this share."""
        for data in files:
            for part in read_entries(data, share.key_groups, self._operator, self.declaration):
                there = {key: value for key, value in part if value is not None}
                self._entries.put(self._keys(there), there.values())
                self._entries.delete(self._keys(key for key, value in part if value is None))
        if self._sorted is not None:
            self._unplaced = dict.fromkeys(self._entries.keys())
            self._in_order()

    def close(self) -> None:
        """Removes all entries."""
        self._entries.clear()
        self._unplaced.clear()
        self._sorted = None

    def _put(self, keys: Collection[Key], values: Iterable[Value]) -> Collection[Key]:
        if self._sorted is not None:
            known = zip(keys, self._entries.get_many(keys), strict=True)
            self._unplaced.update((key, None) for key, old in known if old is None)
        self._entries.put(keys, values)
        if len(self._unplaced) >= _PLACED_AT_ONCE:
            self._in_order()
        return keys

    def _delete(self, keys: Collection[Key]) -> Collection[Key]:
        gone = self._entries.delete(keys)
        if self._sorted is not None:
            placed = [key for key in gone if key not in self._unplaced]
            for key in gone:
                self._unplaced.pop(key, None)
            self._sorted.remove(self.groups_of(placed), placed)
        return gone

    def _delete_scanned(self, keys: Mapping[int, Sequence[Key]]) -> Iterable[Sequence[Key]]:
        in_order = self._in_order()
        for group, part in keys.items():
            self._entries.delete(part)
            in_order.remove_of(group, part)
        return keys.values()

    def _scan(
        self, group: int, prefix: Row, start: Row, limit: int | None, *, backwards: bool
    ) -> Iterator[tuple[Key, Value]]:
        keys = self._in_order().between(group, prefix, start=start, limit=limit, backwards=backwards)
        found = zip(keys, self._entries.get_many(keys), strict=True)
        return iter([(key, value) for key, value in found if value is not None])

    @override
    def scan_keys(self, group: int, start: Row, limit: int) -> list[Key]:
        return self._in_order().between(group, start=start, limit=limit)

    def _in_order(self) -> SortedKeys:
        """Returns all keys in order by group, including the new ones."""
        if self._sorted is None:
            self._sorted = SortedKeys(single=self._single)
            self._unplaced = dict.fromkeys(self._entries.keys())
        if self._unplaced:
            self._sorted.add(self.groups_of(self._unplaced), self._unplaced)
            self._unplaced = {}
        return self._sorted

    def _freeze_all(self) -> Encode:
        return partial(_encode_all, self._entries.freeze(), self._encode)

    def _freeze(self, keys: KeySet) -> Encode:
        if len(keys) > _COPIED_AT_ONCE:
            return partial(_encode_some, self._entries.freeze(), keys, self._encode)
        some = keys.joined()
        return partial(self._encode, list(zip(some, self._entries.get_many(some), strict=True)))

    def _encode(self, frozen: Iterable[tuple[Key, Value | None]]) -> Iterator[bytes]:
        grouped = GroupedEntries()
        for part in in_parts(frozen, _ENCODED_AT_ONCE):
            rows = self._rows(key for key, _ in part)
            values = (value for _, value in part)
            grouped.add(self._groups(rows), list(zip(rows, values, strict=True)))
        return grouped.files(self._file)

    def _file(self, parts: Sequence[EncodedGroup]) -> bytes:
        return assemble_snapshot(self._operator, self.declaration, parts)


_EncodeFrozen = Callable[[Iterable[tuple[Key, Value | None]]], Iterator[bytes]]


def _encode_all(moment: Moment, encode: _EncodeFrozen) -> Iterator[bytes]:
    files = encode(moment.items())
    moment.settle()
    return files


def _encode_some(moment: Moment, keys: KeySet, encode: _EncodeFrozen) -> Iterator[bytes]:
    files = encode(_look_up(moment, keys))
    moment.settle()
    return files


def _look_up(moment: Moment, keys: KeySet) -> Iterator[tuple[Key, Value | None]]:
    for part in in_parts(keys.joined(), _ENCODED_AT_ONCE):
        yield from zip(part, moment.get_many(part), strict=True)
