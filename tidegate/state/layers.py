"""Entries of a state in memory, of which a moment can be frozen without copying them.

While somebody holds a moment, its dicts are changed no more: what is set or deleted goes into a layer on top of them.
When nobody does any more, the layers are folded together, some entries with every change, so that neither the
beginning of a snapshot nor its end takes longer the more entries there are.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from tidegate.state.snapshot import Value

LAYERS_MAX: Final = 4
"""With so many of them everything is copied: snapshots begin faster than they are written."""
FOLDED_AT_ONCE: Final = 10_000

_Layer = dict[Any, Value | None]
"""None is a key that is deleted; the lowest layer has none of them."""


class Moment:
    """All entries as they were; may be read on another thread, and whoever is done with it drops it."""

    def __init__(self, layers: tuple[_Layer, ...]) -> None:
        self._layers = layers

    def items(self) -> Iterator[tuple[Any, Value]]:
        """All entries."""
        lowest, *others = self._layers
        newer: _Layer = {}
        for layer in others:
            newer.update(layer)
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


class Layers:
    """See the module. Changed by one thread only."""

    def __init__(self) -> None:
        self._layers: list[_Layer] = [{}]
        self._count = 0
        """Number of entries while there are several layers."""
        self._moments: list[weakref.ref[Moment]] = []

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
        if len(self._layers) == 1:
            self._count = len(self._layers[0])
        if len(self._layers) > LAYERS_MAX:
            self._layers = [dict(Moment(tuple(self._layers)).items())]
        elif len(self._layers) > 1 and not self._layers[-1]:
            self._layers.pop()
        moment = Moment(tuple(self._layers))
        self._layers.append({})
        self._moments = [one for one in self._moments if one() is not None]
        self._moments.append(weakref.ref(moment))
        return moment

    def clear(self) -> None:
        """Forget everything; moments keep theirs."""
        self._layers, self._count = [{}], 0

    def _fold(self) -> None:
        """Put some entries of the layer above the lowest into that, unless a moment may still be read."""
        if len(self._layers) == 1:
            return
        self._moments = [one for one in self._moments if one() is not None]
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


def _get_many(layers: Collection[_Layer], keys: Collection[Any]) -> list[Value | None]:
    lowest, *others = layers
    found: Iterable[Value | None] = map(lowest.get, keys)
    for layer in others:
        found = map(layer.get, keys, found)  # what is deleted there is None there
    return list(found)
