"""Rows of a ranking as plain values, and as a frame with their ranks again."""

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
    """The rows of a batch."""
    return list(zip(*(plain_values(batch[name]) for name, _ in columns), strict=True))


def frame_of(rows: Sequence[Row], ranks: Sequence[int], columns: Columns) -> pl.DataFrame:
    """Rows with their ranks."""
    values = zip(*rows, strict=True)
    made = [make_column(name, kind, column) for (name, kind), column in zip(columns, values, strict=True)]
    return pl.DataFrame([*made, pl.Series(RANK, ranks, dtype=pl.Int64)])


def cut_rows(rows: Sequence[Row], columns: Columns, rows_max: int, bytes_max: int) -> Iterator[slice]:
    """Parts of at most so many rows and about so many bytes, at least one row in each.

    Rows of a state are as long as they are, whatever the batch is that they leave for.
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
