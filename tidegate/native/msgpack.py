"""Columns to records of MessagePack with `msgpack_rows.c`."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from tidegate.datatypes import DataType, holds_kind
from tidegate.native.arrow import export_series, import_series
from tidegate.native.columns import declare

if TYPE_CHECKING:
    import polars as pl


class RowEncoder:
    """Encodes rows of a struct as maps. Texts stand for types that MessagePack does not have."""

    def __init__(self, library: ctypes.CDLL, record: DataType) -> None:
        """`record` has no decimals, dates and timestamps without zone."""
        assert not holds_kind(record, ("decimal", "date", "timestamp_ntz"))
        self._encode = library.tg_msgpack_encode
        self._encode.restype = ctypes.c_int32
        self._encode.argtypes = [ctypes.c_void_p] * 4
        self._record = declare(record)

    def encode(self, frame: pl.DataFrame) -> pl.Series:
        """Returns a Binary column. `frame` has the columns of the record in order. Raises MemoryError."""
        with export_series(frame.to_struct()) as rows:
            made = import_series(lambda *to: self._encode(ctypes.byref(self._record), ctypes.byref(rows), *to))
        return made.struct.field("value")
