"""Reduces rows to partial results, and partial results further, for all aggregates of a step at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from tidegate.operators.aggregates.contract import Aggregate, Reduction


def reduce_rows(rows: pl.DataFrame, by: Sequence[str], aggregates: Sequence[Aggregate]) -> pl.DataFrame:
    """Returns one row per group of rows, in no order: the columns `by`, then the parts of each aggregate."""
    return _reduced(rows, by, aggregates, [aggregate.from_rows(rows) for aggregate in aggregates])


def reduce_parts(parts: pl.DataFrame, by: Sequence[str], aggregates: Sequence[Aggregate]) -> pl.DataFrame:
    """Returns one row per group of partial results, with the same columns."""
    return _reduced(parts, by, aggregates, [aggregate.from_parts(parts) for aggregate in aggregates])


def fill_parts(parts: pl.DataFrame, by: Sequence[str], columns: Mapping[str, pl.Series]) -> pl.DataFrame:
    """Returns partial results with `columns`, in this order. Aggregates that `parts` lacks get the values of a group
    without rows.

    Each of `columns` has one value: that of a group without rows.
    """
    found = [
        parts[name] if name in parts.columns else nothing.new_from_index(0, parts.height)
        for name, nothing in columns.items()
    ]
    return pl.DataFrame([*(parts[name] for name in by), *found])


def _reduced(
    frame: pl.DataFrame,
    by: Sequence[str],
    aggregates: Sequence[Aggregate],
    reductions: Sequence[Reduction],
) -> pl.DataFrame:
    added = [column for reduction in reductions for column in reduction.columns]
    whole = frame.with_columns(added) if added else frame
    grouped = whole.group_by(by).agg(expression for reduction in reductions for expression in reduction.expressions)
    packed = [column for aggregate in aggregates for column in aggregate.pack(grouped)]
    return pl.DataFrame([*(grouped[name] for name in by), *packed])
