"""Decimals of the bytes of their unscaled numbers, whole columns at once: by Polars' reader of Avro."""

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
"""After the records: a length that is wrong ends there rather than outside, which Polars reports on stderr."""


class DecimalReader:
    """Decimals with `scale` digits after the point, of their bytes: these are put into a block of their own, of which
    Polars' reader makes decimals.
    """

    def __init__(self, scale: int) -> None:
        described = {"type": "bytes", "logicalType": "decimal", "precision": MAX_PRECISION, "scale": scale}
        self._head = _container_head(
            {"type": "record", "name": "Row", "fields": [{"name": "x", "type": ["null", described]}]}
        )

    def read(self, values: pl.DataFrame) -> pl.Series:
        """Of the one column, with at least one row: `decimal(38, scale)`. Numbers of 39 digits come through, too.

        Raises whatever Polars raises for more than 16 bytes.
        """
        return _read_block(self._head, values.height, write_block(values)).to_series()


def without(column: pl.Series, rows: Sequence[int]) -> pl.Series:
    """With NULL in some rows. (`scatter` puts no NULL among decimals.)"""
    keep = pl.Series([True], dtype=pl.Boolean).new_from_index(0, len(column)).scatter(rows, [False] * len(rows))
    return column.zip_with(keep, pl.Series([None], dtype=column.dtype).new_from_index(0, len(column)))


def _container_head(schema: Any) -> bytes:
    """What a container file begins with."""
    text = json.dumps(schema).encode()
    name = b"avro.schema"
    return b"".join((b"Obj\1", zigzag(1), zigzag(len(name)), name, zigzag(len(text)), text, b"\0", _SYNC))


def _read_block(head: bytes, count: int, data: bytes) -> pl.DataFrame:
    """Records that follow each other. Raises whatever Polars raises."""
    parts = (head, zigzag(count), zigzag(len(data) + len(_PADDING)), data, _PADDING, _SYNC)
    return pl.read_avro(io.BytesIO(b"".join(parts)))
