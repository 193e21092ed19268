"""Entries of a state in memory, of which a moment can be frozen without copying them.

While somebody holds a moment, its dicts are changed no more: what is set or deleted goes into a layer on top of them.
When nobody does any more, the layers are folded together, some entries with every change. Where snapshots follow each
other so closely that there are many layers, whoever has read a moment puts its layers together, on another thread. So
neither the beginning of a snapshot nor its end takes longer the more entries there are.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator
from operator import is_
from typing import Any, Final

from tidegate.state.snapshot import Value

LAYERS_MANY: Final = 4
"""A moment with so many of them is not only read: those above the lowest are put together."""
FOLDED_AT_ONCE: Final = 10_000

_Layer = dict[Any, Value | None]
"""None is a key that is deleted; the lowest layer has none of them."""
_Settled = tuple[tuple[_Layer, ...], _Layer]
"""Some layers, and the one that they are together."""


class Moment:
    """All entries as they were; may be read on another thread, and whoever is done with it drops it."""

    def __init__(self, layers: tuple[_Layer, ...], settled: list[_Settled] | None = None) -> None:
        self._layers = layers
        self._settled = settled

    def items(self) -> Iterator[tuple[Any, Value]]:
        """All entries."""
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
        """The value of each key, None where there was none."""
        return _get_many(self._layers, keys)

    def settle(self) -> None:
        """After it was read, by whoever has read it."""
        if self._settled is not None and len(self._layers) >= LAYERS_MANY:
            upper = self._layers[1:]
            self._settled.append((upper, _put_together(upper)))


class Layers:
    """See the module. Changed by one thread only."""

    def __init__(self) -> None:
        self._layers: list[_Layer] = [{}]
        self._count = 0
        """Number of entries while there are several layers."""
        self._moments: list[weakref.ref[Moment]] = []
        self._settled: list[_Settled] = []
        """Filled by readers of moments."""

    def __len__(self) -> int:
        return len(self._layers[0]) if len(self._layers) == 1 else self._count

    def keys(self) -> list[Any]:
        """All keys."""
        if len(self._layers) == 1:
            return list(self._layers[0])
        return [key for key, _ in Moment(tuple(self._layers)).items()]

    def get_many(self, keys: Collection[Any]) -> list[Value | None]:
        """The value of each key, None where there is none."""
        return _get_many(self._layers, keys)

    def put(self, keys: Collection[Any], values: Iterable[Value]) -> None:
        """Set values; of a repeated key the last counts."""
        self._fold()
        if len(self._layers) > 1:
            self._count += len({key for key, old in zip(keys, self.get_many(keys), strict=True) if old is None})
        self._layers[-1].update(zip(keys, values, strict=True))

    def delete(self, keys: Collection[Any]) -> list[Any]:
        """Forget keys; those that were there, each once."""
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
        """The entries of now."""
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
        """Forget everything; moments keep theirs."""
        self._layers = [{}]

    def _take_settled(self) -> None:
        """Take over what readers have put together, where it is still in place."""
        while self._settled:
            upper, one = self._settled.pop()
            now = self._layers[1 : 1 + len(upper)]
            if len(now) == len(upper) and all(map(is_, now, upper)):
                self._layers[1 : 1 + len(upper)] = [one]

    def _fold(self) -> None:
        """Put some entries of the layer above the lowest into that, unless a moment may still be read."""
        if len(self._layers) == 1:
            return
        self._moments = [one for one in self._moments if one() is not None]
        self._take_settled()  # a reader has done it before it gives its moment up
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
    """One layer of several, of which later ones count."""
    one: _Layer = {}
    for layer in layers:
        for key, value in layer.items():  # key by key, so that other threads get their turns
            one[key] = value
    return one


def _get_many(layers: Collection[_Layer], keys: Collection[Any]) -> list[Value | None]:
    lowest, *others = layers
    found: Iterable[Value | None] = map(lowest.get, keys)
    for layer in others:
        found = map(layer.get, keys, found)  # what is deleted there is None there
    return list(found)
