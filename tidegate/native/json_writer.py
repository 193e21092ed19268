"""JSON written in C from columns of a frame (`json_write.c`)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tidegate.native.arrow import Lent, import_series
from tidegate.native.columns import KINDS

if TYPE_CHECKING:
    import polars as pl

WRITTEN_KINDS: Final = frozenset(
    {
        *("boolean", "tinyint", "smallint", "int", "bigint", "double", "string"),
        *("date", "timestamp", "timestamp_ntz"),
    }
)
"""Kinds of columns that C writes."""


_WORD_BYTES: Final = 8


class _Field(ctypes.Structure):
    """`written_field` of `json_write.c`."""

    _fields_ = (
        ("prefix", ctypes.c_char_p),
        ("prefix_length", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("column", ctypes.c_void_p),
    )


class _LeftOver(Exception):
    """C does not write one of the values."""


class JsonWriter:
    """Writes objects with these fields. Not thread-safe."""

    def __init__(self, library: ctypes.CDLL, fields: Sequence[tuple[bytes, str]]) -> None:
        """`fields` has what is written before each value (`{` or `,`, the name and a colon), and its kind."""
        assert fields
        library.tg_prepare_doubles()
        self._write = library.tg_write_json
        self._write.restype = ctypes.c_int32
        self._write.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
        self._fields = (_Field * len(fields))()
        for field, (prefix, kind) in zip(self._fields, fields, strict=True):
            field.prefix = prefix + bytes(-len(prefix) % _WORD_BYTES)
            field.prefix_length = len(prefix)
            field.kind = KINDS.index(kind)

    def write(self, columns: Sequence[pl.Series]) -> pl.Series | None:
        """Returns the object of each row as a Binary column `value`; None if C does not write one of them.

        The columns have the types of the fields. Raises MemoryError.
        """
        lent = [Lent(column) for column in columns]
        return self.write_at([one.address for one in lent], len(columns[0]))

    def write_at(self, addresses: Sequence[int], rows: int) -> pl.Series | None:
        """Returns the same for columns at the addresses of their arrays."""
        for field, address in zip(self._fields, addresses, strict=True):
            field.column = address

        def fill(*to: Any) -> int:
            written: int = self._write(self._fields, len(addresses), rows, *to)
            if written < 0:
                raise _LeftOver
            return written

        try:
            return import_series(fill)
        except _LeftOver:
            return None
