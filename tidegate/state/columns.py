"""Keyed state in columns, in the memory of the native library: no object for each key and value (ADR 94).

The state is a hash table from the bytes of a key, as they are in a state file, to a row. Operators read and write
values by batch and column. Access by plain values also works, for rare use.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from typing_extensions import override

from tidegate.native.library import Library
from tidegate.native.table import (
    FIELDS_MAX,
    SUPPORTED,
    ChangedRows,
    EncodedEntries,
    FrozenRows,
    HashTable,
    KeyBatch,
    TableField,
)
from tidegate.state.base import GroupsOf, Key, NumberedKeys, Share
from tidegate.state.declaration import StateDeclaration, StateField
from tidegate.state.errors import StateUnreadable
from tidegate.state.grouping import FILE_BYTES
from tidegate.state.incremental import Encode, IncrementalState
from tidegate.state.increments import File, KeySet
from tidegate.state.migration import derive_migration
from tidegate.state.order import Row
from tidegate.state.snapshot import (
    EncodedGroup,
    Entry,
    Value,
    assemble_snapshot,
    read_entries,
    read_header,
    refuse_other_state,
    tuple_type,
    value_fields,
    verified_groups,
)

if TYPE_CHECKING:
    import polars as pl

_ENCODED_AT_ONCE: Final = 20_000
"""Up to this many changed rows, an increment is encoded when it is captured. That takes less time than copies of the
rows that change before it is encoded.
"""
_ENTRY_BYTES_MIN: Final = 4


def fits_columns(declaration: StateDeclaration) -> bool:
    """Returns whether a state can be held in columns: it has no order, and no decimals or nested types."""
    shape = declaration.shape
    sides = shape.keys, value_fields(shape)
    kinds = {field.type.kind for side in sides for field in side}
    return not (shape.prefix or shape.suffix) and kinds <= SUPPORTED and max(map(len, sides)) <= FIELDS_MAX


class _Found(NamedTuple):
    """What NumberedKeys has for this backend."""

    batch: KeyBatch
    columns: Sequence[pl.Series]
    """The key columns."""


class ColumnState(IncrementalState[File]):
    """A KeyedState in columns."""

    def __init__(
        self,
        operator: str,
        declaration: StateDeclaration,
        groups_of: GroupsOf,
        retained: int = 1,
        *,
        library: Library,
    ) -> None:
        """`retained`: see Increments. `declaration` fits (see `fits_columns`)."""
        from tidegate.formats.columns import polars_type

        shape = declaration.shape
        self._keys_read, self._values_read = shape.keys, value_fields(shape)
        keys, values = _table_fields(self._keys_read), _table_fields(self._values_read)
        self._key_types = [polars_type(one.type) for one in keys]
        self._value_types = [polars_type(one.type) for one in values]
        self._table = HashTable(library, keys, values, shape.max_parallelism, secrets.randbits(64))
        self._library = library
        self._changes: ChangedRows | None = None
        super().__init__(operator, declaration, groups_of, retained, self._new_changes)

    def _new_changes(self) -> ChangedRows:
        if self._changes is not None:
            self._changes.close()
        self._changes = ChangedRows(self._table.functions)
        return self._changes

    @override
    def __len__(self) -> int:
        return len(self._table)

    @override
    def number_keys(self, columns: Sequence[pl.Series]) -> NumberedKeys:
        typed = _typed(columns, self._key_types)
        batch = self._table.number(typed)
        return NumberedKeys(batch.numbers, batch.count, _Found(batch, typed))

    @override
    def get_columns(self, keys: NumberedKeys) -> tuple[pl.Series, list[pl.Series]]:
        return self._table.get(keys.found.batch)

    @override
    def put_columns(self, keys: NumberedKeys, values: Sequence[pl.Series]) -> None:
        batch = keys.found.batch
        self._table.put(batch, self._groups_of_absent(keys), _typed(values, self._value_types))
        self._increments.touch(batch)

    def _groups_of_absent(self, keys: NumberedKeys) -> Sequence[int]:
        """Returns the key groups of the keys that do not exist."""
        if not keys.found.batch.absent:
            return ()
        from tidegate.formats.columns import plain_values

        rows = self._table.absent_rows(keys.found.batch)
        return self._groups(
            list(zip(*(plain_values(column.gather(rows)) for column in keys.found.columns), strict=True))
        )

    # -- plain values --------------------------------------------------------------------------------------------------

    def _number(self, keys: Collection[Key]) -> NumberedKeys:
        """Numbers keys that are plain values."""
        parts = [list(keys)] if self._single else _transposed(keys, self._columns)
        return self.number_keys(_columns_of(self._keys_read, parts))

    @override
    def get_many(self, keys: Collection[Key]) -> list[Value | None]:
        from tidegate.formats.columns import plain_values

        numbered = self._number(keys)
        exists, columns = self.get_columns(numbered)
        parts = [plain_values(column) for column in columns]
        rows: Iterable[Value] = zip(*parts, strict=True) if parts else [()] * numbered.count
        found = [row if there else None for there, row in zip(exists.to_list(), rows, strict=True)]
        return [found[number] for number in numbered.numbers.to_list()]

    @override
    def keys(self) -> Iterator[Key]:
        decode = msgspec.msgpack.Decoder(tuple_type(self._keys_read)).decode
        encoded = FrozenRows(self._table).keys(self._library.bytes_of)
        return (decode(key)[0] for key in encoded) if self._single else map(decode, encoded)

    @override
    def _put(self, keys: Collection[Key], values: Iterable[Value]) -> KeyBatch:
        numbered, rows = self._number(keys), list(values)
        if len(rows) != len(keys):
            raise ValueError(f"{len(keys)} keys have {len(rows)} values")
        if numbered.count < len(rows):
            last = dict(zip(numbered.numbers.to_list(), rows, strict=True))
            rows = [last[number] for number in range(numbered.count)]
        columns = _columns_of(self._values_read, _transposed(rows, len(self._values_read)))
        self._table.put(numbered.found.batch, self._groups_of_absent(numbered), columns)
        batch: KeyBatch = numbered.found.batch
        return batch

    @override
    def _delete(self, keys: Collection[Key]) -> KeyBatch:
        batch: KeyBatch = self._number(keys).found.batch
        self._table.remove(batch)
        return batch

    @override
    def _delete_scanned(self, keys: Mapping[int, Sequence[Key]]) -> Iterable[KeyBatch]:
        return [self._delete(part) for part in keys.values()]

    @override
    def _scan(
        self, group: int, prefix: Row, start: Row, limit: int | None, *, backwards: bool
    ) -> Iterator[tuple[Key, Value]]:
        keys = self._in_order(group, prefix, start, limit, backwards=backwards)
        found = zip(keys, self.get_many(keys), strict=True)
        return iter([(key, value) for key, value in found if value is not None])

    @override
    def scan_keys(self, group: int, start: Row, limit: int) -> list[Key]:
        return self._in_order(group, (), start, limit, backwards=False)

    def _in_order(self, group: int, prefix: Row, start: Row, limit: int | None, *, backwards: bool) -> list[Key]:
        """Sorts all keys of a group, since no operator scans a state without an order often."""
        keys = list(self.keys())
        own = self._rows(key for key, one in zip(keys, self.groups_of(keys), strict=True) if one == group)
        low, first = self._order.encode_prefix(prefix), self._order.encode_prefix(start)
        places = sorted(zip(self._order.encode(own), own, strict=True), key=lambda one: one[0], reverse=backwards)
        return self._keys(row for place, row in places if place.startswith(low) and place >= first)[:limit]

    # -- snapshots -----------------------------------------------------------------------------------------------------

    @override
    def _freeze_all(self) -> Encode:
        return partial(self._encode, FrozenRows(self._table), None)

    @override
    def _freeze(self, keys: KeySet) -> Encode:
        rows: ChangedRows = keys.joined()
        moment = FrozenRows(self._table, rows)
        if len(rows) > _ENCODED_AT_ONCE:
            return partial(self._encode, moment, rows)
        return partial(self._files, EncodedEntries(moment, rows, FILE_BYTES))

    def _encode(self, moment: FrozenRows, rows: ChangedRows | None) -> Iterator[bytes]:
        return self._files(EncodedEntries(moment, rows, FILE_BYTES))

    def _files(self, entries: EncodedEntries) -> Iterator[bytes]:
        """Yields at least one file. Each has a key group at most once, since a piece of that size ends a file."""
        size, written = 0, False
        parts: list[EncodedGroup] = []
        for piece in entries.pieces():
            parts.append(EncodedGroup(*piece))
            size += len(piece.body)
            if size >= FILE_BYTES:
                yield self._file(parts)
                size, parts, written = 0, [], True
        if parts or not written:
            yield self._file(parts)

    def _file(self, parts: Sequence[EncodedGroup]) -> bytes:
        return assemble_snapshot(self._operator, self.declaration, parts)

    def restore(self, files: Iterable[bytes], share: Share) -> None:
        """Adds the entries of each file that belong to this share."""
        for data in files:
            header, start = read_header(data)
            refuse_other_state(header, self._operator, self.declaration)
            if derive_migration(header.shape, self.declaration) is not None:
                self._restore_entries(data, share.key_groups)
                continue
            if not len(self):
                own = sum(part.entries for part in header.groups if part.group in share.key_groups)
                self._table.reserve(max(0, min(own, len(data) // _ENTRY_BYTES_MIN)))
            for part in verified_groups(data, start, header, share.key_groups):
                given = start + part.offset, part.size_bytes, part.group, part.entries
                if not self._table.restore(data, *given):
                    self._restore_entries(data, range(part.group, part.group + 1))

    def _restore_entries(self, data: bytes, key_groups: range) -> None:
        """Restores what C is not certain of, which includes all that is damaged."""
        for part in read_entries(data, key_groups, self._operator, self.declaration):
            there = {key: value for key, value in part if value is not None}
            try:
                self._put(self._keys(there), there.values())
            except (OverflowError, TypeError) as error:
                raise self._unfit(part, error) from error
            self._delete(self._keys(key for key, value in part if value is None))

    def _unfit(self, part: Sequence[Entry], error: Exception) -> StateUnreadable:
        name = self.declaration.name
        return StateUnreadable(f"state {name} of {self._operator}: {len(part)} entries do not fit its types: {error}")

    def close(self) -> None:
        """Removes all entries."""
        self._table.clear()


def _transposed(rows: Collection[Row], columns: int) -> list[list[Any]]:
    return [[row[place] for row in rows] for place in range(columns)]


def _table_fields(fields: Sequence[StateField]) -> list[TableField]:
    return [TableField(one.name, one.type, one.nullable) for one in fields]


def _columns_of(fields: Sequence[StateField], parts: Iterable[Sequence[Any]]) -> list[pl.Series]:
    from tidegate.formats.columns import make_column

    return [make_column(field.name, field.type, part) for field, part in zip(fields, parts, strict=True)]


def _typed(columns: Sequence[pl.Series], types: Sequence[pl.DataType]) -> list[pl.Series]:
    """Returns columns of these types. Raises InvalidOperationError for values that do not fit."""
    return [column if column.dtype == kind else column.cast(kind) for column, kind in zip(columns, types, strict=True)]
