"""The common part of both backends: it tracks changed keys, and captures all entries or only the changed ones (F28)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic

from tidegate.ids import CheckpointId
from tidegate.state.base import GroupsOf, Key, NumberedKeys
from tidegate.state.declaration import StateDeclaration
from tidegate.state.increments import Capture, ChangedKeys, ChangeSet, Extent, File, Increments, KeySet, RestoredLayer
from tidegate.state.order import KeyOrder, Row
from tidegate.state.snapshot import Value, value_fields

if TYPE_CHECKING:
    import polars as pl

Encode = Callable[[], Iterable[bytes]]
"""Returns the files for an earlier moment. May run on another thread."""


class IncrementalState(ABC, Generic[File]):
    """A KeyedState without its storage."""

    def __init__(
        self,
        operator: str,
        declaration: StateDeclaration,
        groups_of: GroupsOf,
        retained: int = 1,
        new_changes: Callable[[], ChangeSet] = ChangedKeys,
    ) -> None:
        """`retained`, `new_changes`: see Increments."""
        self.declaration = declaration
        self._operator = operator
        shape = declaration.shape
        self._groups_of = groups_of
        self._columns = len(shape.keys)
        self._single = self._columns == 1
        self._grouped = slice(shape.prefix, self._columns - shape.suffix)
        self._all_grouped = not (shape.prefix or shape.suffix)
        self._order = KeyOrder(shape.keys)
        self._increments = Increments[File](retained, new_changes)

    @abstractmethod
    def __len__(self) -> int:
        """Returns the number of entries."""

    @abstractmethod
    def get_many(self, keys: Collection[Key]) -> list[Value | None]:
        """Returns the value of each key, or None if the key does not exist."""

    @abstractmethod
    def keys(self) -> Iterator[Key]:
        """Iterates over the keys as of the call, in no particular order."""

    @abstractmethod
    def _put(self, keys: Collection[Key], values: Iterable[Value]) -> Any:
        """Does what `put_many` does, without recording the change. Returns the keys for `ChangeSet.add`."""

    @abstractmethod
    def _delete(self, keys: Collection[Key]) -> Any:
        """Does what `delete_many` does, without recording the change. Returns the keys that existed, likewise."""

    @abstractmethod
    def _delete_scanned(self, keys: Mapping[int, Sequence[Key]]) -> Iterable[Any]:
        """Does what `delete_scanned` does, without recording the change. Returns the keys in parts, likewise."""

    @abstractmethod
    def _scan(
        self, group: int, prefix: Row, start: Row, limit: int | None, *, backwards: bool
    ) -> Iterator[tuple[Key, Value]]:
        """Does what `scan` does. The prefix is not a complete key."""

    @abstractmethod
    def scan_keys(self, group: int, start: Row, limit: int) -> list[Key]:
        """Returns the keys that a scan from `start` yields, without reading their values."""

    @abstractmethod
    def _freeze_all(self) -> Encode:
        """Freezes all entries as they are now."""

    @abstractmethod
    def _freeze(self, keys: KeySet) -> Encode:
        """Freezes the entries of these keys, at least one, as they are now. Missing keys become tombstones."""

    def put_many(self, keys: Collection[Key], values: Iterable[Value]) -> None:
        """Sets values and records the keys as changed."""
        self._increments.touch(self._put(keys, values))

    def delete_many(self, keys: Collection[Key]) -> None:
        """Removes these keys and records those that existed as changed."""
        self._increments.touch(self._delete(keys))

    def delete_scanned(self, keys: Mapping[int, Sequence[Key]]) -> None:
        """Removes keys that scans have returned, and records them as changed."""
        for part in self._delete_scanned(keys):
            self._increments.touch(part)

    def number_keys(self, columns: Sequence[pl.Series]) -> NumberedKeys:
        """Numbers the keys of a batch with a dict of them."""
        import polars as pl

        from tidegate.formats.columns import plain_values

        parts = [plain_values(column) for column in columns]
        index: dict[Key, int] = {}
        number_of = index.setdefault
        rows = parts[0] if self._single else zip(*parts, strict=True)
        numbers = [number_of(key, len(index)) for key in rows]
        return NumberedKeys(pl.Series("numbers", numbers, dtype=pl.UInt32), len(index), index)

    def get_columns(self, keys: NumberedKeys) -> tuple[pl.Series, list[pl.Series]]:
        """Returns which keys exist, and their values by field."""
        import polars as pl

        from tidegate.formats.columns import make_column

        fields = value_fields(self.declaration.shape)
        stored = self.get_many(keys.found)
        missing = (None,) * len(fields)
        known = [missing if value is None else value for value in stored]
        parts = zip(*known, strict=True) if known else [()] * len(fields)
        columns = [make_column(field.name, field.type, part) for field, part in zip(fields, parts, strict=True)]
        return pl.Series("exists", [value is not None for value in stored], dtype=pl.Boolean), columns

    def put_columns(self, keys: NumberedKeys, values: Sequence[pl.Series]) -> None:
        """Sets the values of all these keys."""
        from tidegate.formats.columns import plain_values

        parts = [plain_values(column) for column in values]
        self.put_many(keys.found, zip(*parts, strict=True) if parts else [()] * keys.count)

    def get(self, key: Key) -> Value | None:
        """Returns one value, or None if the key does not exist."""
        return self.get_many([key])[0]

    def put(self, key: Key, value: Value) -> None:
        """Sets one value."""
        self.put_many([key], [value])

    def delete(self, key: Key) -> None:
        """Removes one key."""
        self.delete_many([key])

    def groups_of(self, keys: Collection[Key]) -> Sequence[int]:
        """Returns the key group of each key."""
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
        """Scans a key group. A prefix that is a complete key is looked up instead.

        Raises ValueError for too many columns, or if `start` is combined with a prefix or with `backwards`.
        """
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
        """Captures all entries, the changed ones, or none if nothing has changed."""
        extent = Extent[File](None) if full else self._increments.begin(checkpoint, len(self))
        if extent.keys is None:
            return Capture(self._freeze_all())
        if not len(extent.keys):
            return Capture(None, extent.builds_on)
        return Capture(self._freeze(extent.keys), extent.builds_on)

    def restored(self, layers: Iterable[RestoredLayer[File]]) -> None:
        """Makes the restored files the base of the next snapshots."""
        self._increments.restored(layers)

    def stored(self, checkpoint: CheckpointId, files: Sequence[File]) -> None:
        """Records that the files of the checkpoint's snapshot are durable."""
        self._increments.stored(checkpoint, files)

    def completed(self, checkpoint: CheckpointId) -> None:
        """Records that the checkpoint is completed."""
        self._increments.completed(checkpoint)

    def abandoned(self, checkpoint: CheckpointId) -> None:
        """Records that the checkpoint was abandoned."""
        self._increments.abandoned(checkpoint)

    def _groups(self, rows: list[Row]) -> Sequence[int]:
        """Returns the key groups of keys, which may be incomplete."""
        return self._groups_of(rows if self._all_grouped else [row[self._grouped] for row in rows])

    def _rows(self, keys: Iterable[Key]) -> list[Row]:
        """Returns keys as tuples of their columns."""
        return [(key,) for key in keys] if self._single else list(keys)

    def _keys(self, rows: Iterable[Row]) -> list[Any]:
        """Returns tuples of columns as keys: the inverse of `_rows`."""
        return [row[0] for row in rows] if self._single else list(rows)
