"""Keyed state in the library's memory (`table.h`): tables, batches of keys, changed rows, moments, entries of files.

Memory is freed with the objects here. One thread uses a table; what a moment has may be used by another.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidegate.datatypes import BOOLEAN, DataType
from tidegate.native.arrow import Lent, import_series
from tidegate.native.columns import KINDS, declare_fields
from tidegate.native.library import Address, Library

if TYPE_CHECKING:
    import polars as pl

SUPPORTED: Final = frozenset(KINDS) - {"decimal", "array", "map", "struct"}
"""Kinds that fields of a table can have."""
FIELDS_MAX: Final = 128
"""Key columns, or fields of a value, that a table can have."""
_ROWS: Final = 64
_NUMBER: Final = ctypes.c_int64
_SMALL: Final = ctypes.c_int32
_FUNCTIONS: Final[dict[str, tuple[Any, Sequence[Any]]]] = {
    "tg_layout_new": (Address, (_SMALL, Address, Address, _SMALL, Address, Address, _SMALL)),
    "tg_layout_free": (None, (Address,)),
    "tg_table_new": (Address, (Address, ctypes.c_uint64)),
    "tg_table_free": (None, (Address,)),
    "tg_table_clear": (None, (Address,)),
    "tg_table_count": (_NUMBER, (Address,)),
    "tg_table_reserve": (_SMALL, (Address, _NUMBER)),
    "tg_table_restore": (_SMALL, (Address, Address, _NUMBER, _SMALL, _NUMBER)),
    "tg_batch_new": (Address, (Address, Address, _NUMBER)),
    "tg_batch_free": (None, (Address,)),
    "tg_batch_keys": (_NUMBER, (Address, Address, Address)),
    "tg_batch_absent": (None, (Address, Address)),
    "tg_batch_is_stale": (_SMALL, (Address, Address)),
    "tg_batch_get": (_SMALL, (Address, Address, Address, Address, Address)),
    "tg_batch_put": (_SMALL, (Address, Address, Address, Address)),
    "tg_batch_remove": (_SMALL, (Address, Address)),
    "tg_changes_new": (Address, ()),
    "tg_changes_free": (None, (Address,)),
    "tg_changes_close": (None, (Address,)),
    "tg_changes_count": (_NUMBER, (Address,)),
    "tg_changes_add": (_SMALL, (Address, Address)),
    "tg_changes_add_removed": (_SMALL, (Address, Address)),
    "tg_changes_join": (_SMALL, (Address, Address)),
    "tg_moment_new": (Address, (Address, Address)),
    "tg_moment_free": (None, (Address,)),
    "tg_moment_chunks": (_NUMBER, (Address,)),
    "tg_moment_keys": (_NUMBER, (Address, _NUMBER, Address, Address)),
    "tg_moment_let_go": (None, (Address, _NUMBER)),
    "tg_entries_new": (Address, (Address, Address, ctypes.c_uint64, _NUMBER)),
    "tg_entries_free": (None, (Address,)),
    "tg_entries_count": (_NUMBER, (Address,)),
    "tg_entries_list": (None, (Address, Address, Address, Address, Address)),
}
_NO_MEMORY: Final = 0
_TAKEN: Final = 1
"""Results of `tg_table_restore`."""
_view = ctypes.PYFUNCTYPE(ctypes.py_object, Address, ctypes.c_ssize_t, ctypes.c_int)(
    ("PyMemoryView_FromMemory", ctypes.pythonapi)
)
_READ: Final = 0x100
"""PyBUF_READ."""


class TableField(NamedTuple):
    """A key column or a field of the value. Its type is in SUPPORTED."""

    name: str
    type: DataType
    nullable: bool


def functions_of(library: Library) -> ctypes.CDLL:
    """Returns the library with the types of these functions."""
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library.free, name)
        function.restype, function.argtypes = result, arguments
    return library.free


class OwnedMemory:
    """Memory of the library, which is freed with this object."""

    __slots__ = ("_free", "address")

    def __init__(self, address: int | None, free: Callable[[int], None]) -> None:
        """Raises MemoryError if there is no address."""
        self.address, self._free = address or 0, free
        if not self.address:
            raise MemoryError("no memory for keyed state")

    def __del__(self) -> None:
        if self.address:
            self._free(self.address)


class KeyBatch(OwnedMemory):
    """The keys of a batch, numbered, with the rows of those that exist."""

    __slots__ = ("absent", "count", "numbers", "removed")

    def __init__(self, table: HashTable, columns: Sequence[pl.Series]) -> None:
        """See `HashTable.number`."""
        import polars as pl

        heights = {len(column) for column in columns}
        if len(heights) != 1:
            raise ValueError(f"key columns have {sorted(heights)} rows")
        (height,) = heights
        lent = [Lent(column) for column in columns]
        addresses = (Address * len(lent))(*(one.address for one in lent))
        library = table.functions
        super().__init__(library.tg_batch_new(table.address, addresses, height), library.tg_batch_free)
        numbers, absent = Address(), ctypes.c_int64()
        self.count: int = library.tg_batch_keys(self.address, ctypes.byref(numbers), ctypes.byref(absent))
        self.numbers = table.arrow.fixed_column("numbers", numbers.value or 0, height, pl.UInt32)
        self.absent = absent.value
        """The number of keys that do not exist."""
        self.removed = False
        """Whether the keys of the batch have been removed."""


class ChangedRows(OwnedMemory):
    """The rows that have changed in an interval, and the keys that were removed in it: a ChangeSet."""

    __slots__ = ("_functions",)

    def __init__(self, functions: ctypes.CDLL) -> None:
        super().__init__(functions.tg_changes_new(), functions.tg_changes_free)
        self._functions = functions

    def __len__(self) -> int:
        """Returns the number of rows and removed keys, which may overlap."""
        return int(self._functions.tg_changes_count(self.address))

    def add(self, keys: KeyBatch) -> None:
        """Adds the keys of a batch that was put or removed. Raises MemoryError."""
        add = self._functions.tg_changes_add_removed if keys.removed else self._functions.tg_changes_add
        _require(add(self.address, keys.address))

    def joined(self, others: Sequence[ChangedRows]) -> ChangedRows:
        """Returns the rows and keys of all these. Raises MemoryError."""
        found = ChangedRows(self._functions)
        for one in (self, *others):
            _require(self._functions.tg_changes_join(found.address, one.address))
        found.close()
        return found

    def close(self) -> None:
        """Frees what is needed to add more: nothing is added any more."""
        self._functions.tg_changes_close(self.address)


class FrozenRows(OwnedMemory):
    """The entries of a table as they were at a moment, or those of some rows. It may be read on another thread."""

    __slots__ = ("functions", "layout", "seed")

    def __init__(self, table: HashTable, rows: ChangedRows | None = None) -> None:
        self.functions = table.functions
        self.layout, self.seed = table.layout, table.seed
        address = self.functions.tg_moment_new(table.address, None if rows is None else rows.address)
        super().__init__(address, self.functions.tg_moment_free)

    def keys(self, bytes_of: Callable[[int, int, int], list[Any]]) -> Iterator[bytes]:
        """Yields all keys as MessagePack arrays, and frees what it has read. `bytes_of`: see Library."""
        addresses, lengths = (Address * _ROWS)(), (_SMALL * _ROWS)()
        places = ctypes.addressof(addresses), ctypes.addressof(lengths)
        for number in range(self.functions.tg_moment_chunks(self.address)):
            count = self.functions.tg_moment_keys(self.address, number, *places)
            keys = bytes_of(*places, count)
            self.functions.tg_moment_let_go(self.address, number)
            yield from keys


class EncodedPiece(NamedTuple):
    """EncodedEntries of a key group as a MessagePack array. The body is valid as long as its EncodedEntries."""

    group: int
    entries: int
    body: memoryview


class EncodedEntries(OwnedMemory):
    """Encoded entries by key group."""

    __slots__ = ("_functions",)

    def __init__(self, moment: FrozenRows, rows: ChangedRows | None, piece_bytes: int) -> None:
        """Encodes all entries of a moment, or those of `rows` and a tombstone for each removed key that did not return.

        A piece ends with the entry with which it reaches `piece_bytes`.
        """
        self._functions = moment.functions
        address = self._functions.tg_entries_new(
            moment.address, None if rows is None else rows.address, moment.seed, piece_bytes
        )
        super().__init__(address, self._functions.tg_entries_free)

    def pieces(self) -> Iterator[EncodedPiece]:
        """Yields the pieces in the order of their key groups."""
        count = self._functions.tg_entries_count(self.address)
        addresses, lengths, counts = (array("q", bytes(8 * count)) for _ in range(3))
        groups = array("i", bytes(4 * count))
        places = (one.buffer_info()[0] for one in (addresses, lengths, counts, groups))
        self._functions.tg_entries_list(self.address, *places)
        for group, entries, address, length in zip(groups, counts, addresses, lengths, strict=True):
            yield EncodedPiece(group, entries, _view(address, length, _READ))


class HashTable(OwnedMemory):
    """A hash table from keys to rows, with values in columns."""

    def __init__(
        self, library: Library, keys: Sequence[TableField], values: Sequence[TableField], groups: int, seed: int
    ) -> None:
        """`groups`: the number of key groups. `seed`: a secret of the hash function."""
        self.functions, self.arrow, self.seed = functions_of(library), library.arrow, seed
        sides = [_describe(fields) for fields in (keys, values)]
        given = [part for kinds, nullable, count in sides for part in (kinds, nullable, count)]
        self.layout = OwnedMemory(self.functions.tg_layout_new(groups, *given), self.functions.tg_layout_free)
        super().__init__(self.functions.tg_table_new(self.layout.address, seed), self.functions.tg_table_free)
        numbered = [(str(index), field.type) for index, field in enumerate(values)]
        self._fields = len(values)
        self._record = declare_fields([("", DataType("struct", fields=(("exists", BOOLEAN), *numbered)))])
        self._addresses = Address * len(values)

    def __len__(self) -> int:
        return int(self.functions.tg_table_count(self.address))

    def clear(self) -> None:
        """Removes all keys. Moments keep theirs."""
        self.functions.tg_table_clear(self.address)

    def number(self, columns: Sequence[pl.Series]) -> KeyBatch:
        """Numbers the keys of a batch. Columns have the types of the key. Raises MemoryError."""
        return KeyBatch(self, columns)

    def absent_rows(self, batch: KeyBatch) -> pl.Series:
        """Returns the row in which each key that does not exist first occurs."""
        import polars as pl

        rows = array("I", bytes(4 * batch.absent))
        address = rows.buffer_info()[0]
        self.functions.tg_batch_absent(batch.address, address)
        return self.arrow.fixed_column("rows", address, batch.absent, pl.UInt32)

    def get(self, batch: KeyBatch) -> tuple[pl.Series, list[pl.Series]]:
        """Returns which keys exist, and their values. Raises MemoryError."""
        self._refuse_stale(batch)
        read, record = self.functions.tg_batch_get, ctypes.byref(self._record)
        found = import_series(lambda *to: read(self.address, batch.address, record, *to))
        exists, *values = found.struct.unnest().get_columns()
        return exists, values

    def put(self, batch: KeyBatch, groups: Sequence[int], values: Sequence[pl.Series]) -> None:
        """Sets the values of all keys. `groups` has the key groups of those that are absent. Raises MemoryError.

        `values` has a column for each field, of its type and with a row for each key.
        """
        self._refuse_stale(batch)
        if len(groups) != batch.absent:
            raise ValueError(f"{batch.absent} new keys have {len(groups)} key groups")
        if [len(column) for column in values] != [batch.count] * self._fields:
            raise ValueError(f"{batch.count} keys have values in {[len(column) for column in values]} rows")
        lent = [Lent(column) for column in values]
        places = self._addresses(*(one.address for one in lent))
        wanted = array("H", groups)
        _require(self.functions.tg_batch_put(self.address, batch.address, wanted.buffer_info()[0], places))
        batch.absent = 0

    def remove(self, batch: KeyBatch) -> None:
        """Removes the keys that exist. Raises MemoryError."""
        self._refuse_stale(batch)
        _require(self.functions.tg_batch_remove(self.address, batch.address))
        batch.removed = True

    def reserve(self, keys: int) -> None:
        """Prepares for this many more keys. Raises MemoryError."""
        _require(self.functions.tg_table_reserve(self.address, keys))

    def restore(self, data: bytes, start: int, length: int, group: int, entries: int) -> bool:
        """Adds the entries of a key group, which are a part of a file. Raises MemoryError.

        Returns False for a group with anything that is not certain: all its entries are to be put by the caller then.
        """
        address = ctypes.cast(ctypes.c_char_p(data), Address).value or 0
        taken = self.functions.tg_table_restore(self.address, address + start, length, group, entries)
        _require(taken != _NO_MEMORY)
        return bool(taken == _TAKEN)

    def _refuse_stale(self, batch: KeyBatch) -> None:
        if self.functions.tg_batch_is_stale(self.address, batch.address):
            raise RuntimeError("keyed state has changed since the keys of this batch were numbered")


def _describe(fields: Sequence[TableField]) -> tuple[Any, bytes, int]:
    kinds = [KINDS.index(field.type.kind) for field in fields]
    return (_SMALL * len(kinds))(*kinds), bytes(field.nullable for field in fields), len(fields)


def _require(done: object) -> None:
    if not done:
        raise MemoryError("no memory for keyed state")
