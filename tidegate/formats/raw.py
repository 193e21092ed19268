"""The raw format: Kafka records as they are.

A raw source has a fixed schema; a raw sink writes the column `value` (string or binary; NULL is a tombstone) and
takes its key from the sink's `key` column or, without one, from a column named `key`.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidegate.datatypes import BIGINT, BINARY, INT, STRING, TIMESTAMP, DataType

RAW_SCHEMA: tuple[tuple[str, DataType], ...] = (
    ("key", BINARY),
    ("value", BINARY),
    ("timestamp", TIMESTAMP),
    ("topic", STRING),
    ("partition", INT),
    ("offset", BIGINT),
)
"""What a raw source emits. `timestamp` is the record's timestamp of either type, NULL if it has none."""


def raw_value(columns: Sequence[tuple[str, DataType]]) -> pl.Expr:
    """The value of a raw sink's records as a Binary expression."""
    kinds = dict(columns)
    if kinds.get("value") not in (STRING, BINARY):
        raise ValueError("a raw sink needs a column `value` of type string or binary")
    return pl.col("value").cast(pl.Binary)
