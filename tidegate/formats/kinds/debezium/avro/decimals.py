"""Decimals from the bytes of their unscaled numbers, a whole column at once, with Polars' Avro reader."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from tidegate.datatypes import MAX_PRECISION
from tidegate.formats.kinds.avro.wire import write_block, zigzag

_SYNC: Final = b"tidegate-block--"
_PADDING: Final = bytes(4096)
"""Follows the records: an invalid length ends here rather than outside, which Polars would report on stderr."""


class DecimalReader:
    """Converts bytes to decimals with `scale` digits after the decimal point.

    The bytes are written to an Avro block, which Polars' reader reads as decimals.
    """

    def __init__(self, scale: int) -> None:
        described = {"type": "bytes", "logicalType": "decimal", "precision": MAX_PRECISION, "scale": scale}
        self._head = _container_head(
            {"type": "record", "name": "Row", "fields": [{"name": "x", "type": ["null", described]}]}
        )

    def read(self, values: pl.DataFrame) -> pl.Series:
        """Converts the only column, which has at least one row, to `decimal(38, scale)`. Numbers of 39 digits can
        occur.

        Raises what Polars raises for more than 16 bytes.
        """
        return _read_block(self._head, values.height, write_block(values)).to_series()


def without(column: pl.Series, rows: Sequence[int]) -> pl.Series:
    """Sets some rows to NULL. (`scatter` cannot set NULL in decimals.)"""
    keep = pl.Series([True], dtype=pl.Boolean).new_from_index(0, len(column)).scatter(rows, [False] * len(rows))
    return column.zip_with(keep, pl.Series([None], dtype=column.dtype).new_from_index(0, len(column)))


def _container_head(schema: Any) -> bytes:
    """Returns the beginning of a container file."""
    text = json.dumps(schema).encode()
    name = b"avro.schema"
    return b"".join((b"Obj\1", zigzag(1), zigzag(len(name)), name, zigzag(len(text)), text, b"\0", _SYNC))


def _read_block(head: bytes, count: int, data: bytes) -> pl.DataFrame:
    """Reads concatenated records. Raises what Polars raises."""
    parts = (head, zigzag(count), zigzag(len(data) + len(_PADDING)), data, _PADDING, _SYNC)
    return pl.read_avro(io.BytesIO(b"".join(parts)))
