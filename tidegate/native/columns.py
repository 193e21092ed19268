"""Columns that C builds from records of any format: their declaration and the result (`columns.h`)."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Collection, Container, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidegate.datatypes import DataType, parts_of
from tidegate.native.arrow import import_series

if TYPE_CHECKING:
    import polars as pl

KINDS: Final = (
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "decimal",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "array",
    "map",
    "struct",
)
"""An index in this tuple is a number of `enum kind` in `columns.h`."""


class Field(ctypes.Structure):
    """`field` of `columns.h`."""


Field._fields_ = (
    ("name", ctypes.c_char_p),
    ("name_length", ctypes.c_int32),
    ("kind", ctypes.c_int32),
    ("wanted", ctypes.c_int32),
    ("precision", ctypes.c_int32),
    ("scale", ctypes.c_int32),
    ("count", ctypes.c_int32),
    ("children", ctypes.POINTER(Field)),
)


class Rows(NamedTuple):
    """The decoded rows of a batch in order, and the indexes of the records that were left over, ascending."""

    frame: pl.DataFrame
    left: Sequence[int]


class DeclaredColumns:
    """Columns of the fields in `wanted` of a struct; the other fields are only checked."""

    def __init__(self, record: DataType, wanted: Collection[str]) -> None:
        """`record` has types in KINDS, with strings as keys of maps."""
        self._record = _fields_of([("", record)], wanted)
        self._none_wanted = not any(name in wanted for name, _ in record.fields)

    def fill(self, count: int, decode: Callable[..., int]) -> Rows:
        """Returns the rows that C makes of `count` records.

        `decode` receives the declaration, buffers for the indexes of left-over records and for their number, and
        references to an array and a schema. It returns 0 if it cannot allocate memory. Raises MemoryError.
        """
        import polars as pl

        # Not a ctypes array: each size is a type of its own, which only a garbage collection frees.
        left, left_count = array("q", bytes(8 * count)), ctypes.c_int64()
        given = ctypes.byref(self._record), left.buffer_info()[0], ctypes.byref(left_count)
        rows = import_series(lambda *to: decode(*given, *to))
        found = left[: left_count.value].tolist()
        frame = pl.DataFrame(height=count - len(found)) if self._none_wanted else rows.struct.unnest()
        return Rows(frame, found)


def declare_fields(fields: Sequence[tuple[str, DataType]]) -> ctypes.Array[Field]:
    """Returns the declaration of fields all of which are wanted."""
    return _fields_of(fields, _Everything())


class _Everything(Container[str]):
    def __contains__(self, name: object) -> bool:
        return True


def _fields_of(fields: Sequence[tuple[str, DataType]], wanted: Container[str]) -> ctypes.Array[Field]:
    return (Field * len(fields))(*(_field_of(name, kind, wanted) for name, kind in fields))


def _field_of(name: str, kind: DataType, wanted: Container[str]) -> Field:
    parts = kind.fields or [("item", part) for part in parts_of(kind)]
    label = name.encode()
    return Field(
        label,
        len(label),
        KINDS.index(kind.kind),
        name in wanted,
        kind.precision,
        kind.scale,
        len(parts),
        _fields_of(parts, wanted),
    )
