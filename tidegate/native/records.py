"""Columns of records that C reads in place (`records` of `produce.c`)."""

from __future__ import annotations

import ctypes
from array import array
from functools import cache
from typing import TYPE_CHECKING, Final

from tidegate.native.arrow import Lent

if TYPE_CHECKING:
    import polars as pl

    from tidegate.native.library import Library

VIEW_BYTES: Final = 16
_PARTS: Final = ("values", "keys", "timestamps_ms", "partitions", "headers")


class RecordColumns(ctypes.Structure):
    """`records` of `produce.c`."""

    _fields_ = tuple((part, ctypes.c_void_p) for part in _PARTS)


class _Arrangement(ctypes.Structure):
    """`arrangement` of `produce.c`."""

    _fields_ = tuple((part, ctypes.c_void_p) for part in ("rows", "partitions"))


class Arrangement:
    """The order in which records are handed over: partition by partition, and in each in the order of rows.

    :param choose: address of librdkafka's function that chooses the partition of a key.
    :param partitions: how many the topic has; 0 if the client has to choose by keys. Then rows keep their order.
    """

    def __init__(self, library: Library, columns: RecordColumns, count: int, choose: int, partitions: int) -> None:
        """Raises MemoryError."""
        self.rows = array("i", bytes(4 * count))
        """The row at each place."""
        self._partitions = array("i", bytes(4 * count))
        self.arrays = _Arrangement(self.rows.buffer_info()[0], self._partitions.buffer_info()[0])
        """For C."""
        if not library.free.tg_arrange(ctypes.byref(columns), count, choose, partitions, ctypes.byref(self.arrays)):
            raise MemoryError("no memory to arrange records by partition")


class LentRecords:
    """Columns of equal length, lent to C as long as this object lives; None for parts that no record has."""

    def __init__(
        self,
        values: pl.Series,
        keys: pl.Series | None = None,
        timestamps_ms: pl.Series | None = None,
        partitions: pl.Series | None = None,
        headers: pl.Series | None = None,
    ) -> None:
        """Raises TypeError for a column of another type, MemoryError."""
        self.count = len(values)
        self.columns = RecordColumns()
        self._lent: list[Lent] = []
        columns = (values, keys, timestamps_ms, partitions, headers)
        for part, column, dtype in zip(_PARTS, columns, _types(), strict=True):
            if column is None:
                continue
            if column.dtype != dtype or len(column) != self.count:
                raise TypeError(f"{part} are {len(column)} of {column.dtype}, not {self.count} of {dtype}")
            lent = Lent(column)
            setattr(self.columns, part, lent.address)
            self._lent.append(lent)

    @property
    def memory_bytes(self) -> int:
        """Memory of all strings and bytes that the columns keep, and of the views of them."""
        return sum(VIEW_BYTES * self.count + lent.text_bytes for lent in self._lent)

    def size_bytes(self, library: Library) -> int:
        """Returns the size of all keys, values and headers."""
        size: int = library.free.tg_records_bytes(ctypes.byref(self.columns), self.count)
        return size


@cache
def _types() -> tuple[pl.DataType, ...]:
    import polars as pl

    headers = pl.List(pl.Struct({"key": pl.String(), "value": pl.Binary()}))
    return pl.Binary(), pl.Binary(), pl.Int64(), pl.Int32(), headers
