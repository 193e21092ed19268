"""The entries of a state in memory, which can be frozen at a moment without copying them.

While a moment is in use, its dicts do not change: updates and deletions go to a new layer on top of them. Once no
moment is in use, each change folds some entries of the layers together. If snapshots follow each other so closely that
there are many layers, the reader of a moment merges its layers on its own thread. The time to begin or end a snapshot
is therefore independent of the number of entries.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator
from operator import is_
from typing import Any, Final

from tidegate.state.snapshot import Value

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
