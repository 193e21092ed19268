"""Columns to JSON: one object per row, fields in column order, NULL fields kept as `null`.

Text of values as in `text.py`. JSON has no NaN and no infinities: they are written as `null` (a reader that
expects a number could not use a string, and a record is worth more than its worst field).
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidegate.datatypes import DataType
from tidegate.formats.columns import polars_type
from tidegate.formats.text import json_ready


class JsonEncoder:
    """Encodes the named columns of a frame; other columns are left out."""

    def __init__(self, columns: Sequence[tuple[str, DataType]]) -> None:
        fields = [json_ready(pl.col(name), polars_type(kind)).alias(name) for name, kind in columns]
        text = pl.struct(fields).struct.json_encode() if fields else pl.repeat("{}", pl.len())
        self.expression = text.cast(pl.Binary)
        """The object's UTF-8 as a Binary expression over the input frame."""

    def encode(self, frame: pl.DataFrame) -> list[bytes]:
        """One JSON object per row."""
        encoded = frame.select(value=self.expression).to_series()
        values: list[bytes] = encoded.to_list()
        return values
