"""first and last by event time, min_by, max_by: the value of the row that is first or last by another column.

Of rows with the same the smallest value for the first, the greatest for the last. Rows do not count where the other
column is NULL; event times never are.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidegate.formats.columns import make_column
from tidegate.operators.aggregation.contract import Direct, Reduction, Value, blank
from tidegate.operators.aggregation.parts import Part
from tidegate.operators.aggregation.values import from_order_key, order_key, plain_key, rank


class Picked(Direct):
    """See MergeableAggregate. The value may be NULL, which is before all others."""

    def __init__(self, name: str, argument: str, by: str, parts: Sequence[Part], *, last: bool) -> None:
        super().__init__(name, parts)
        self._kinds = [kind for _, kind, _ in parts]
        self._argument = argument
        self._by = by
        self._last = last

    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        return self._reduction(rows[self._by], rows[self._argument])

    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        return self._reduction(*(parts[column] for column in self.columns))

    def _reduction(self, by: pl.Series, value: pl.Series) -> Reduction:
        keys = [
            order_key(series, kind).alias(column)
            for series, kind, column in zip((by, value), self._kinds, self.columns, strict=True)
        ]
        nulls_last = [not self._last, False]  # `by` is never picked when it is NULL, a NULL value is before all others
        ordered = [pl.col(column).sort_by(self.columns, nulls_last=nulls_last) for column in self.columns]
        return Reduction(keys, [one.last() if self._last else one.first() for one in ordered])

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """See MergeableAggregate."""
        by, value = (
            from_order_key(column, kind) for column, kind in zip(super().pack(grouped), self._kinds, strict=True)
        )
        none = by.is_null()
        return [by, blank(value, none)]

    def merge(self, left: Value, right: Value) -> Value:
        """See MergeableAggregate."""
        if left[0] is None or right[0] is None:
            return left if right[0] is None else right
        one, other = (plain_key(left[0]), rank(left[1])), (plain_key(right[0]), rank(right[1]))
        return left if (one >= other) is self._last else right

    def results(self, accumulators: Sequence[Value]) -> pl.Series:
        """See MergeableAggregate."""
        return make_column(self.name, self._kinds[1], [value for _, value in accumulators])
