"""Variance and standard deviation: computed from exact sums of the values and of their squares, and rounded at the end.

There is no cancellation: if all values are equal, both are exactly 0. Infinities and NaN give NaN.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from tidegate.expressions.expression import AggregateCall
from tidegate.operators.aggregates.contract import Aggregate, AggregateUse, Functions, Reduction, Value
from tidegate.operators.aggregates.counting import COUNT
from tidegate.operators.aggregates.exact import (
    EXACT_SUM,
    divide,
    merge_sums,
    sum_of_square,
    sum_of_value,
    total_of,
)

if TYPE_CHECKING:
    import polars as pl

    from tidegate.operators.aggregates.columnar.exact import ExactSum

_SUM, _SQUARES = slice(0, len(EXACT_SUM)), slice(len(EXACT_SUM), 2 * len(EXACT_SUM))
_ROOT_BITS: Final = 140
"""The bits of a number before its root is taken: they give 70 bits of the root, of which a double keeps 53."""


class Moments(Aggregate):
    """Variance and standard deviation. The `_samp` forms divide by the count less one; stddev is a root."""

    fields = (*EXACT_SUM, *(field._replace(suffix=f"squares_{field.suffix}") for field in EXACT_SUM), COUNT)

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        super().__init__(name, call, use)
        self._sample = call.function.endswith("_samp")
        self._root = call.function.startswith("stddev")

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        return self.merge(accumulator, (*sum_of_value(value), *sum_of_square(value), 1))

    @override
    def merge(self, left: Value, right: Value) -> Value:
        total = merge_sums(left[_SUM], right[_SUM])
        return (*total, *merge_sums(left[_SQUARES], right[_SQUARES]), left[-1] + right[-1])

    @override
    def result(self, accumulator: Value) -> Any:
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

    @cached_property
    def _sums(self) -> tuple[ExactSum, ExactSum]:
        from tidegate.operators.aggregates.columnar.exact import ExactSum

        return ExactSum(self.columns[_SUM]), ExactSum(self.columns[_SQUARES])

    @override
    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        values = rows[self.arguments[0]]
        total, squares = self._sums
        return total.from_rows(values).joined(squares.from_squares(values)).counting(values, self.columns[-1])

    @override
    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        total, squares = self._sums
        return total.from_parts(parts).joined(squares.from_parts(parts)).adding(self.columns[-1])

    @override
    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        total, squares = self._sums
        return [*total.pack(grouped), *squares.pack(grouped, power=2), grouped[self.columns[-1]]]


def divide_root(numerator: int, denominator: int) -> float:
    """Returns the square root of a nonnegative fraction."""
    lacking = max(0, _ROOT_BITS + denominator.bit_length() - numerator.bit_length())
    shift = lacking + lacking % 2
    return divide(math.isqrt((numerator << shift) // denominator), 1 << (shift // 2))


FUNCTIONS: Final[Functions] = {
    function: {AggregateUse.RUNNING: Moments, AggregateUse.WINDOW: Moments}
    for function in ("stddev_samp", "stddev_pop", "var_samp", "var_pop")
}
