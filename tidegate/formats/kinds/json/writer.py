"""Columns to JSON: one object per row, fields in column order, NULL fields kept as `null`.

Values are written as in `text.py` and `json_text.py`. JSON has no NaN and no infinities, which are written as `null`: a
reader that expects a number could not use a string, and a single field should not fail the record.
"""

from __future__ import annotations

import polars as pl

from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Columns
from tidegate.formats.json_text import is_composed, json_objects_of
from tidegate.formats.text import json_ready


def json_objects(columns: Columns) -> pl.Expr:
    """Returns a Binary expression with the object of each row, in UTF-8; other columns are left out."""
    if any(is_composed(kind) for _, kind in columns):
        return json_objects_of(columns).cast(pl.Binary)
    fields = [json_ready(pl.col(name), polars_type(kind)).alias(name) for name, kind in columns]
    text = pl.struct(fields).struct.json_encode() if fields else pl.repeat("{}", pl.len())
    return text.cast(pl.Binary)
