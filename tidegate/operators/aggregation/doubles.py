"""sum and avg of doubles: the exact sum, rounded once.

So ten times 0.1 are 1.0, and 1e308 + 1e308 - 1e308 is 1e308, where adding one after the other gives 0.9999999999999999
and an infinity. A sum that is 0 is 0.0, never -0.0.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidegate.datatypes import DOUBLE
from tidegate.formats.columns import make_column
from tidegate.operators.aggregation.contract import Reduction, Value
from tidegate.operators.aggregation.exact import ExactSum, merge_sums, total_of
from tidegate.operators.aggregation.parts import COUNT, EXACT_SUM


class DoubleSum:
    """See MergeableAggregate."""

    parts = EXACT_SUM

    def __init__(self, name: str, argument: str) -> None:
        self._name = name
        self._argument = argument
        self._sum = ExactSum(name)

    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        return self._sum.from_rows(rows[self._argument])

    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        return self._sum.from_parts(parts)

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """See MergeableAggregate."""
        return self._sum.pack(grouped)

    def merge(self, left: Value, right: Value) -> Value:
        """See MergeableAggregate."""
        return merge_sums(left, right)

    def results(self, accumulators: Sequence[Value]) -> pl.Series:
        """See MergeableAggregate."""
        sums = [None if one[0] is None else total_of(one).divided() for one in accumulators]
        return make_column(self._name, DOUBLE, sums)


class Average:
    """See MergeableAggregate."""

    parts = (*EXACT_SUM, COUNT)

    def __init__(self, name: str, argument: str) -> None:
        self._name = name
        self._argument = argument
        self._sum = ExactSum(name)
        self._count = f"{name}.count"

    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        count = pl.col(self._argument).count().cast(pl.Int64).alias(self._count)
        return self._sum.from_rows(rows[self._argument]).plus(count)

    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        return self._sum.from_parts(parts).plus(pl.col(self._count).sum())

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """See MergeableAggregate."""
        return [*self._sum.pack(grouped), grouped[self._count]]

    def merge(self, left: Value, right: Value) -> Value:
        """See MergeableAggregate."""
        return (*merge_sums(left[:-1], right[:-1]), left[-1] + right[-1])

    def results(self, accumulators: Sequence[Value]) -> pl.Series:
        """See MergeableAggregate."""
        averages = [None if not one[-1] else total_of(one[:-1]).divided(one[-1]) for one in accumulators]
        return make_column(self._name, DOUBLE, averages)
