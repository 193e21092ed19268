"""Variance and standard deviation: from exact sums of the values and of their squares, rounded at the end.

Nothing is cancelled out: of values that are all alike they are 0. Infinities and NaN give NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from tidegate.datatypes import DOUBLE
from tidegate.formats.columns import make_column
from tidegate.operators.aggregation.contract import Reduction, Value
from tidegate.operators.aggregation.division import divide
from tidegate.operators.aggregation.exact import ExactSum, merge_sums, total_of
from tidegate.operators.aggregation.parts import COUNT, EXACT_SUM, SQUARES

_SUM, _SQUARES = slice(0, len(EXACT_SUM)), slice(len(EXACT_SUM), len(EXACT_SUM) + len(SQUARES))
_ROOT_BITS = 140
"""Of a number before its root is taken: 70 bits of the root, of which a double keeps 53."""


class Moments:
    """See MergeableAggregate. `sample` divides by one less than the count; `root` is the standard deviation."""

    parts = (*EXACT_SUM, *SQUARES, COUNT)

    def __init__(self, name: str, argument: str, *, sample: bool, root: bool) -> None:
        self._name = name
        self._argument = argument
        self._sample = sample
        self._root = root
        self._sum = ExactSum(name)
        self._squares = ExactSum(name, "squares_")
        self._count = f"{name}.count"

    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        values = rows[self._argument]
        return _joined(self._sum.from_rows(values), self._squares.from_squares(values)).counting(values, self._count)

    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        count = pl.col(self._count).sum()
        return _joined(self._sum.from_parts(parts), self._squares.from_parts(parts)).plus(count)

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """See MergeableAggregate."""
        return [*self._sum.pack(grouped), *self._squares.pack(grouped, power=2), grouped[self._count]]

    def merge(self, left: Value, right: Value) -> Value:
        """See MergeableAggregate."""
        total = merge_sums(left[_SUM], right[_SUM])
        return (*total, *merge_sums(left[_SQUARES], right[_SQUARES]), left[-1] + right[-1])

    def results(self, accumulators: Sequence[Value]) -> pl.Series:
        """See MergeableAggregate."""
        return make_column(self._name, DOUBLE, [self._result(one) for one in accumulators])

    def _result(self, accumulator: Value) -> float | None:
        count = accumulator[-1]
        divisor = count - self._sample
        if divisor <= 0:
            return None
        total, squares = total_of(accumulator[_SUM]), total_of(accumulator[_SQUARES])
        if total.flags or squares.flags:
            return math.nan
        bits = max(2 * total.bits, squares.bits)
        numerator = count * (squares.units << (bits - squares.bits)) - (total.units**2 << (bits - 2 * total.bits))
        denominator = count * divisor << bits
        return divide_root(numerator, denominator) if self._root else divide(numerator, denominator)


def divide_root(numerator: int, denominator: int) -> float:
    """The root of a fraction that is not negative."""
    lacking = max(0, _ROOT_BITS + denominator.bit_length() - numerator.bit_length())
    shift = lacking + lacking % 2
    return divide(math.isqrt((numerator << shift) // denominator), 1 << (shift // 2))


def _joined(one: Reduction, other: Reduction) -> Reduction:
    return Reduction([*one.columns, *other.columns], [*one.expressions, *other.expressions])
