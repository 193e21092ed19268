"""Converts the rows of a ranking to plain values, and back to a frame with their ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from tidegate.expressions.bounds import ELEMENT_BYTES, GROWING
from tidegate.formats.columns import make_column, plain_values
from tidegate.operators.kinds.keep import RANK
from tidegate.operators.spec import Columns
from tidegate.state.order import Row


def rows_of(batch: pl.DataFrame, columns: Columns) -> list[Row]:
    """Returns the rows of a batch as tuples of plain values."""
    return list(zip(*(plain_values(batch[name]) for name, _ in columns), strict=True))


def frame_of(rows: Sequence[Row], ranks: Sequence[int], columns: Columns) -> pl.DataFrame:
    """Returns a frame of rows with their ranks."""
    values = zip(*rows, strict=True)
    made = [make_column(name, kind, column) for (name, kind), column in zip(columns, values, strict=True)]
    return pl.DataFrame([*made, pl.Series(RANK, ranks, dtype=pl.Int64)])


def cut_rows(rows: Sequence[Row], columns: Columns, rows_max: int, bytes_max: int) -> Iterator[slice]:
    """Yields parts of at most `rows_max` rows and about `bytes_max` bytes, with at least one row each.

    Rows of a state may be of any length, independent of the batch that causes them to be emitted.
    """
    growing = [place for place, (_, kind) in enumerate(columns) if kind.kind in GROWING]
    start, size = 0, 0
    for place, row in enumerate(rows):
        weight = sum(_weigh(row[column]) for column in growing)
        if place - start >= rows_max or (place > start and size + weight > bytes_max):
            yield slice(start, place)
            start, size = place, 0
        size += weight
    if start < len(rows):
        yield slice(start, len(rows))


def _weigh(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    return sum(ELEMENT_BYTES + _weigh(part) for part in value) if isinstance(value, tuple) else 0
