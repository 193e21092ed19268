"""sum of integers: exact in 128 bits, kept as two bigints, and checked once, at the result.

A frame has less than 2^32 rows, so 128 bits do not overflow for a sum of bigints, nor for one of partial sums as long
as all of them together stand for less than 2^63 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from tidegate.datatypes import BIGINT
from tidegate.formats.columns import make_column
from tidegate.operators.aggregation.contract import Direct, Reduction, Value, blank
from tidegate.operators.aggregation.parts import INTEGER_SUM
from tidegate.operators.aggregation.wide import WORD, carry_words

OVERFLOW: Final = "a sum leaves the range of bigint"
_HALF: Final = 1 << 63


class IntegerSum(Direct):
    """See MergeableAggregate. The sum is `carry * 2^64 + low`; both are NULL without values."""

    def __init__(self, name: str, argument: str) -> None:
        super().__init__(name, INTEGER_SUM)
        self._argument = argument

    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        return self._reduction(rows[self._argument].cast(pl.Int128))

    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        low, carry = (parts[column].cast(pl.Int128) for column in self.columns)
        return self._reduction(carry * WORD + low)

    def _reduction(self, values: pl.Series) -> Reduction:
        total, count = self.columns
        column = pl.col(total)
        return Reduction([values.alias(total)], [column.sum(), column.count().alias(count)])

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """See MergeableAggregate."""
        total, count = super().pack(grouped)
        low, carry = carry_words(total)
        none = count == 0
        return [blank(part, none) for part in (low, carry.alias(count.name))]

    def merge(self, left: Value, right: Value) -> Value:
        """See MergeableAggregate."""
        if left[0] is None or right[0] is None:
            return left if right[0] is None else right
        low = left[0] + right[0]
        carry = (low + _HALF) >> 64
        return low - (carry << 64), left[1] + right[1] + carry

    def results(self, accumulators: Sequence[Value]) -> pl.Series:
        """See MergeableAggregate."""
        lows, carries = zip(*accumulators, strict=True) if accumulators else ((), ())
        if any(carries):
            raise OverflowError(OVERFLOW)
        return make_column(self.name, BIGINT, lows)
