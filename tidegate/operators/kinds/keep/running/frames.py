"""Rows of a ranking as plain values, and as a frame with their ranks again."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

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
