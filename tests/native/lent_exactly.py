"""Columns that are lent to C in blocks of exactly their size, where sanitizers see each byte that is read beyond."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import polars as pl

from tidegate.native.arrow import ArrowArray, Lent

OFFSETS = (0, 0, 1, 3, 8, 70)
_KINDS = {"UInt32": ctypes.c_uint32, "Int64": ctypes.c_int64, "Float64": ctypes.c_double}


class LentExactly(Lent):
    """See `Lent`: columns of numbers and booleans; of any others only which values are known."""

    chance = random.Random(1)

    def __init__(self, column: pl.Series) -> None:
        offset = self.chance.choice(OFFSETS)
        known = [*[self.chance.random() < 0.5] * offset, *column.is_not_null().to_list()]
        blocks = [None if all(known) and self.chance.random() < 0.9 else _block(_bits(known))]
        values = [0] * offset + column.fill_null(0).to_list() if column.dtype.is_numeric() else []
        if column.dtype == pl.Boolean:
            blocks.append(_block(_bits([True] * offset + column.fill_null(value=True).to_list())))
        elif column.dtype.is_numeric():
            kind: Any = _KINDS[str(column.dtype)]
            blocks.append((kind * len(values))(*values))
        self._blocks = blocks
        self._list = (ctypes.c_void_p * len(blocks))(
            *(None if one is None else ctypes.addressof(one) for one in blocks)
        )
        self._array = ArrowArray(
            length=len(column),
            null_count=-1,
            offset=offset,
            n_buffers=len(blocks),
            buffers=ctypes.addressof(self._list),
        )
        self.address = ctypes.addressof(self._array)


def _bits(values: list[bool]) -> bytes:
    found = bytearray((len(values) + 7) // 8)
    for place, value in enumerate(values):
        found[place // 8] |= value << place % 8
    return bytes(found)


def _block(data: bytes) -> Any:
    return (ctypes.c_uint8 * len(data)).from_buffer_copy(data) if data else (ctypes.c_uint8 * 1)()
