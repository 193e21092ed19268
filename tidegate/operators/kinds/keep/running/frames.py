"""Rows of a ranking as plain values, and as a frame with their ranks again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from tidegate.formats.columns import polars_type
from tidegate.operators.kinds.keep import RANK
from tidegate.operators.rowwise import plain_values
from tidegate.operators.spec import Columns
from tidegate.state.order import Row

_PHYSICAL: Final = {"date": pl.Int32(), "timestamp": pl.Int64()}


def rows_of(batch: pl.DataFrame, columns: Columns) -> list[Row]:
    """The rows of a batch."""
    return list(zip(*(plain_values(batch[name]) for name, _ in columns), strict=True))


def frame_of(rows: Sequence[Row], ranks: Sequence[int], columns: Columns) -> pl.DataFrame:
    """Rows with their ranks."""
    values = list(zip(*rows, strict=True))
    made = []
    for (name, kind), column in zip(columns, values, strict=True):
        physical, own = _PHYSICAL.get(kind.kind), polars_type(kind)
        made.append(
            pl.Series(name, column, dtype=own) if physical is None else pl.Series(name, column, physical).cast(own)
        )
    return pl.DataFrame([*made, pl.Series(RANK, ranks, dtype=pl.Int64)])
