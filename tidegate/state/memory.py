"""Keyed state in dicts. Values are immutable tuples, so a snapshot only has to prevent changes to the dicts (F23).

The dicts can be frozen at a moment without copying them. While a moment is in use, they do not change: updates and
deletions go to a new layer on top of them. Once no moment is in use, each change folds some entries of the layers
together.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import is_
from typing import Any, Final

from typing_extensions import override

from tidegate.state.base import GroupsOf, Key, Share
from tidegate.state.declaration import StateDeclaration
from tidegate.state.grouping import GroupedEntries, in_parts
from tidegate.state.incremental import Encode, IncrementalState
from tidegate.state.increments import File, KeySet
from tidegate.state.order import Row
from tidegate.state.snapshot import EncodedGroup, Value, assemble_snapshot, read_entries
from tidegate.state.sorted_keys import SortedKeys

LAYERS_MANY: Final = 4
"""The number of layers from which the reader of a moment also merges those above the lowest."""
FOLDED_AT_ONCE: Final = 10_000

_Layer = dict[Any, Value | None]
"""None marks a deleted key. The lowest layer has no deleted keys."""
_Settled = tuple[tuple[_Layer, ...], _Layer]
"""Some layers, and the layer that they were merged into."""


class Moment:
    """All entries as they were at a moment. It may be read on another thread. Its reader drops it afterwards."""

    def __init__(self, layers: tuple[_Layer, ...], settled: list[_Settled] | None = None) -> None:
        self._layers = layers
        self._settled = settled

    def items(self) -> Iterator[tuple[Any, Value]]:
        """Iterates over all entries."""
        lowest, *others = self._layers
        newer = _put_together(others)
        for key, value in lowest.items():
            now = newer.pop(key, value) if newer else value
            if now is not None:
                yield key, now
        for key, value in newer.items():
            if value is not None:
                yield key, value

    def get_many(self, keys: Collection[Any]) -> list[Value | None]:
        """Returns the value of each key at that moment, or None if the key did not exist."""
        return _get_many(self._layers, keys)

    def settle(self) -> None:
        """Merges the layers, if there are many. Called by the reader after reading."""
        if self._settled is not None and len(self._layers) >= LAYERS_MANY:
            upper = self._layers[1:]
            self._settled.append((upper, _put_together(upper)))


class Layers:
    """The entries as layers, the newest last. Only one thread changes them."""

    def __init__(self) -> None:
        self._layers: list[_Layer] = [{}]
        self._count = 0
        """The number of entries while there are several layers."""
        self._moments: list[weakref.ref[Moment]] = []
        self._settled: list[_Settled] = []
        """Filled by readers of moments."""

    def __len__(self) -> int:
        return len(self._layers[0]) if len(self._layers) == 1 else self._count

    def keys(self) -> list[Any]:
        """Returns all keys."""
        if len(self._layers) == 1:
            return list(self._layers[0])
        return [key for key, _ in Moment(tuple(self._layers)).items()]

    def get_many(self, keys: Collection[Any]) -> list[Value | None]:
        """Returns the value of each key, or None if the key does not exist."""
        return _get_many(self._layers, keys)

    def put(self, keys: Collection[Any], values: Iterable[Value]) -> None:
        """Sets values. The last value of a repeated key wins."""
        self._fold()
        if len(self._layers) > 1:
            self._count += len({key for key, old in zip(keys, self.get_many(keys), strict=True) if old is None})
        self._layers[-1].update(zip(keys, values, strict=True))

    def delete(self, keys: Collection[Any]) -> list[Any]:
        """Removes keys and returns those that existed, each once."""
        self._fold()
        top = self._layers[-1]
        if len(self._layers) == 1:
            return [key for key in keys if top.pop(key, None) is not None]
        found = zip(keys, self.get_many(keys), strict=True)
        gone = dict.fromkeys(key for key, old in found if old is not None)
        top.update(gone)
        self._count -= len(gone)
        return list(gone)

    def freeze(self) -> Moment:
        """Returns the entries as they are now."""
        self._take_settled()
        if len(self._layers) == 1:
            self._count = len(self._layers[0])
        elif not self._layers[-1]:
            self._layers.pop()
        moment = Moment(tuple(self._layers), self._settled)
        self._layers.append({})
        self._moments = [one for one in self._moments if one() is not None]
        self._moments.append(weakref.ref(moment))
        return moment

    def clear(self) -> None:
        """Removes all entries. Moments keep theirs."""
        self._layers = [{}]

    def _take_settled(self) -> None:
        """Replaces layers by what readers have merged, if these layers are still in place."""
        while self._settled:
            upper, one = self._settled.pop()
            now = self._layers[1 : 1 + len(upper)]
            if len(now) == len(upper) and all(map(is_, now, upper)):
                self._layers[1 : 1 + len(upper)] = [one]

    def _fold(self) -> None:
        """Moves some entries of the second-lowest layer into the lowest, unless a moment may still be read."""
        if len(self._layers) == 1:
            return
        self._moments = [one for one in self._moments if one() is not None]
        self._take_settled()  # a reader merges before it drops its moment
        if self._moments:
            return
        left = FOLDED_AT_ONCE
        lowest = self._layers[0]
        while left > 0 and len(self._layers) > 1:
            layer = self._layers[1]
            count = min(left, len(layer))
            for _ in range(count):
                key, value = layer.popitem()
                if value is None:
                    lowest.pop(key, None)
                else:
                    lowest[key] = value
            left -= count
            if not layer:
                del self._layers[1]


def _put_together(layers: Iterable[_Layer]) -> _Layer:
    """Merges several layers into one. Later layers win."""
    one: _Layer = {}
    for layer in layers:
        for key, value in layer.items():  # key by key, so that other threads get a turn
            one[key] = value
    return one


def _get_many(layers: Collection[_Layer], keys: Collection[Any]) -> list[Value | None]:
    lowest, *others = layers
    found: Iterable[Value | None] = map(lowest.get, keys)
    for layer in others:
        found = map(layer.get, keys, found)  # a layer has None for a key that was deleted in it
    return list(found)


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
