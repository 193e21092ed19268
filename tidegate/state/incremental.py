"""What both backends do alike: they keep track of changed keys, and capture all entries or only those (F28)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic

from tidegate.ids import CheckpointId
from tidegate.state.base import GroupsOf, Key
from tidegate.state.declaration import StateDeclaration
from tidegate.state.increments import Capture, Extent, File, Increments, KeySet
from tidegate.state.order import KeyOrder, Row
from tidegate.state.snapshot import Value

Encode = Callable[[], Iterable[bytes]]
"""Gives the files of a moment that has passed; may run on another thread."""


class IncrementalState(ABC, Generic[File]):
    """A KeyedState without its storage."""

    def __init__(self, operator: str, declaration: StateDeclaration, groups_of: GroupsOf, retained: int = 1) -> None:
        """`retained`: see Increments."""
        self.declaration = declaration
        self._operator = operator
        shape = declaration.shape
        self._groups_of = groups_of
        self._columns = len(shape.keys)
        self._single = self._columns == 1
        self._grouped = slice(shape.prefix, self._columns - shape.suffix)
        self._all_grouped = not (shape.prefix or shape.suffix)
        self._order = KeyOrder(shape.keys)
        self._increments = Increments[File](retained)

    @abstractmethod
    def __len__(self) -> int:
        """See KeyedState."""

    @abstractmethod
    def get_many(self, keys: Collection[Key]) -> list[Value | None]:
        """See KeyedState."""

    @abstractmethod
    def keys(self) -> Iterator[Key]:
        """See KeyedState."""

    @abstractmethod
    def _put(self, keys: Collection[Key], values: Iterable[Value]) -> None:
        """As `put_many`, without taking note."""

    @abstractmethod
    def _delete(self, keys: Collection[Key]) -> Collection[Key]:
        """As `delete_many`, without taking note; those that were there."""

    @abstractmethod
    def _delete_scanned(self, keys: Mapping[int, Sequence[Key]]) -> None:
        """As `delete_scanned`, without taking note."""

    @abstractmethod
    def _scan(
        self, group: int, prefix: Row, start: Row, limit: int | None, *, backwards: bool
    ) -> Iterator[tuple[Key, Value]]:
        """As `scan`; the prefix is no whole key."""

    @abstractmethod
    def _freeze_all(self) -> Encode:
        """The moment's entries, all of them."""

    @abstractmethod
    def _freeze(self, keys: KeySet) -> Encode:
        """The moment's entries of these keys, at least one; tombstones for those that are not there."""

    def put_many(self, keys: Collection[Key], values: Iterable[Value]) -> None:
        """See KeyedState."""
        self._put(keys, values)
        self._increments.touch(keys)

    def delete_many(self, keys: Collection[Key]) -> None:
        """See KeyedState."""
        self._increments.touch(self._delete(keys))

    def delete_scanned(self, keys: Mapping[int, Sequence[Key]]) -> None:
        """See KeyedState."""
        self._delete_scanned(keys)
        for part in keys.values():
            self._increments.touch(part)

    def get(self, key: Key) -> Value | None:
        """See KeyedState."""
        return self.get_many([key])[0]

    def put(self, key: Key, value: Value) -> None:
        """See KeyedState."""
        self.put_many([key], [value])

    def delete(self, key: Key) -> None:
        """See KeyedState."""
        self.delete_many([key])

    def groups_of(self, keys: Collection[Key]) -> Sequence[int]:
        """See KeyedState."""
        return self._groups(self._rows(keys))

    def scan(
        self,
        group: int,
        prefix: Row = (),
        *,
        start: Row = (),
        limit: int | None = None,
        backwards: bool = False,
    ) -> Iterator[tuple[Key, Value]]:
        """See KeyedState."""
        if (given := max(len(prefix), len(start))) > self._columns:
            raise ValueError(f"state {self.declaration.name} has {self._columns} key columns, not {given}")
        if start and (prefix or backwards):
            raise ValueError("a scan from a key on has no prefix and goes forwards")
        if len(prefix) < self._columns:
            return self._scan(group, prefix, start, limit, backwards=backwards)
        (key,) = self._keys([prefix])
        value = self.get(key) if limit != 0 and self._groups([prefix])[0] == group else None
        return iter(() if value is None else ((key, value),))

    def capture(self, checkpoint: CheckpointId, *, full: bool = False) -> Capture[File]:
        """See KeyedState."""
        extent = Extent[File](None) if full else self._increments.begin(checkpoint, len(self))
        if extent.keys is None:
            return Capture(self._freeze_all())
        if not len(extent.keys):
            return Capture(None, extent.builds_on)
        return Capture(self._freeze(extent.keys), extent.builds_on)

    def stored(self, checkpoint: CheckpointId, files: Sequence[File]) -> None:
        """See KeyedState."""
        self._increments.stored(checkpoint, files)

    def completed(self, checkpoint: CheckpointId) -> None:
        """See KeyedState."""
        self._increments.completed(checkpoint)

    def abandoned(self, checkpoint: CheckpointId) -> None:
        """See KeyedState."""
        self._increments.abandoned(checkpoint)

    def _groups(self, rows: list[Row]) -> Sequence[int]:
        """Key groups of keys, or of the columns of them that count."""
        return self._groups_of(rows if self._all_grouped else [row[self._grouped] for row in rows])

    def _rows(self, keys: Iterable[Key]) -> list[Row]:
        """Keys as tuples of their columns."""
        return [(key,) for key in keys] if self._single else list(keys)

    def _keys(self, rows: Iterable[Row]) -> list[Any]:
        """The opposite."""
        return [row[0] for row in rows] if self._single else list(rows)
