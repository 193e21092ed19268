"""Lists and maps per key, as encodings over a keyed state whose last key column does not count for the key group.

A value of the map, or of the list, is an entry of the state: it is read, written, deleted and snapshotted by itself,
however large the collection is. To read a collection is a scan by the prefix that the key is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from tidegate.datatypes import BIGINT
from tidegate.state.base import KeyedState
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.order import Row
from tidegate.state.snapshot import Value

POSITION = StateField("position", BIGINT, nullable=False)
"""The last key column of a list."""


def declare_keyed_map(keyed: StateDeclaration, user_key: StateField) -> StateDeclaration:
    """A map from `user_key` to the values of `keyed`, for each key of it; it has the same name."""
    return _declare_under(keyed, user_key)


def declare_keyed_list(keyed: StateDeclaration) -> StateDeclaration:
    """A list of the values of `keyed`, for each key of it; it has the same name."""
    return _declare_under(keyed, POSITION)


class KeyedMap:
    """A map per key. Keys are tuples of their columns, also of one."""

    def __init__(self, state: KeyedState[Any]) -> None:
        """`state`: opened for what `declare_keyed_map` gives, and used by nobody else."""
        self._state = state

    def get(self, key: Row, user_key: Any) -> Value | None:
        """One value, None where there is none."""
        return self._state.get((*key, user_key))

    def put(self, key: Row, user_key: Any, value: Value) -> None:
        """Set one value."""
        self._state.put((*key, user_key), value)

    def delete(self, key: Row, user_key: Any) -> None:
        """Forget one value."""
        self._state.delete((*key, user_key))

    def items(self, keys: Sequence[Row]) -> Iterator[list[tuple[Any, Value]]]:
        """For each key its map, in the order of the user keys."""
        for group, key in zip(self._state.groups_of(keys), keys, strict=True):
            yield [(row[-1], value) for row, value in self._state.scan(group, key)]

    def clear(self, keys: Sequence[Row]) -> None:
        """Forget whole maps."""
        _clear(self._state, keys)


class KeyedList:
    """A list per key, to which values are appended. Keys are tuples of their columns, also of one."""

    def __init__(self, state: KeyedState[Any]) -> None:
        """`state`: opened for what `declare_keyed_list` gives, and used by nobody else."""
        self._state = state

    def append_many(self, keys: Sequence[Row], values: Iterable[Value]) -> None:
        """Each value to the end of its key's list, in this order; keys may be repeated."""
        added: defaultdict[Row, list[Value]] = defaultdict(list)
        for key, value in zip(keys, values, strict=True):
            added[key].append(value)
        rows: list[Row] = []
        for group, key in zip(self._state.groups_of(list(added)), added, strict=True):
            last = next(self._state.scan(group, key, limit=1, backwards=True), None)
            first = 0 if last is None else last[0][-1] + 1
            rows += [(*key, first + index) for index in range(len(added[key]))]
        self._state.put_many(rows, [value for part in added.values() for value in part])

    def values(self, keys: Sequence[Row]) -> Iterator[list[Value]]:
        """For each key its list."""
        for group, key in zip(self._state.groups_of(keys), keys, strict=True):
            yield [value for _, value in self._state.scan(group, key)]

    def clear(self, keys: Sequence[Row]) -> None:
        """Forget whole lists; what is appended then is the first value."""
        _clear(self._state, keys)


def _declare_under(keyed: StateDeclaration, last: StateField) -> StateDeclaration:
    shape: StateShape = msgspec.structs.replace(keyed.shape, keys=(*keyed.shape.keys, last), suffix=1)
    declared: StateDeclaration = msgspec.structs.replace(keyed, shape=shape)
    return declared


def _clear(state: KeyedState[Any], keys: Sequence[Row]) -> None:
    for group, key in zip(state.groups_of(keys), keys, strict=True):
        state.delete_many([row for row, _ in state.scan(group, key)])
