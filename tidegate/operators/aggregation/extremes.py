"""min, max: one value, or NULL without any; -0.0 is below 0.0, and NaN above every number."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidegate.datatypes import DataType
from tidegate.formats.columns import make_column
from tidegate.operators.aggregation.contract import Direct, Reduction, Value
from tidegate.operators.aggregation.parts import Part
from tidegate.operators.aggregation.values import from_order_key, order_key, plain_key


class Extreme(Direct):
    """See MergeableAggregate. `greatest` for max."""

    def __init__(self, name: str, argument: str, kind: DataType, parts: Sequence[Part], *, greatest: bool) -> None:
        super().__init__(name, parts)
        self._argument = argument
        self._kind = kind
        self._greatest = greatest

    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        return self._reduction(rows[self._argument])

    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        return self._reduction(parts[self.columns[0]])

    def _reduction(self, values: pl.Series) -> Reduction:
        (column,) = self.columns
        key = pl.col(column)
        extreme = key.max() if self._greatest else key.min()
        return Reduction([order_key(values, self._kind).alias(column)], [extreme])

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """See MergeableAggregate."""
        return [from_order_key(column, self._kind) for column in super().pack(grouped)]

    def merge(self, left: Value, right: Value) -> Value:
        """See MergeableAggregate."""
        (one,), (other,) = left, right
        if one is None or other is None:
            return left if other is None else right
        return left if (plain_key(one) >= plain_key(other)) is self._greatest else right

    def results(self, accumulators: Sequence[Value]) -> pl.Series:
        """See MergeableAggregate."""
        return make_column(self.name, self._kind, [value for (value,) in accumulators])
