"""count(*) and count(x)."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidegate.datatypes import BIGINT
from tidegate.formats.columns import make_column
from tidegate.operators.aggregation.contract import Direct, Reduction, Value
from tidegate.operators.aggregation.parts import COUNT


class Count(Direct):
    """See MergeableAggregate. `argument` is None for count(*)."""

    def __init__(self, name: str, argument: str | None) -> None:
        super().__init__(name, (COUNT,))
        self._argument = argument

    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        (column,) = self.columns
        if self._argument is None:
            return Reduction([], [pl.len().cast(pl.Int64).alias(column)])
        return Reduction([rows[self._argument].alias(column)], [pl.col(column).count().cast(pl.Int64)])

    def from_parts(self, parts: pl.DataFrame) -> Reduction:  # noqa: ARG002  # whatever they are
        """See MergeableAggregate."""
        return Reduction([], [pl.col(self.columns[0]).sum()])

    def merge(self, left: Value, right: Value) -> Value:
        """See MergeableAggregate."""
        return (left[0] + right[0],)

    def results(self, accumulators: Sequence[Value]) -> pl.Series:
        """See MergeableAggregate."""
        return make_column(self.name, BIGINT, [count for (count,) in accumulators])
