"""sum and avg of decimals: exact whatever the order, kept as three bigints, and checked once, at the result.

A sum is a whole number of the units that the scale says, `high * 2^128 + carry * 2^64 + low`: 2^64 decimals of 38
digits stay within 192 bits. In a frame, which has less than 2^32 rows, each of the words is added in 128 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from tidegate.datatypes import DataType, decimal_of_units
from tidegate.expressions.decimals import derive_sum_type, divide_average
from tidegate.formats.columns import make_column
from tidegate.operators.aggregation.contract import Reduction, Value, blank
from tidegate.operators.aggregation.parts import COUNT, DECIMAL_SUM
from tidegate.operators.aggregation.sums import Averaging, Summing
from tidegate.operators.aggregation.wide import WORD, carry_words

_BIGINT_DIGITS: Final = 18
_HALF: Final = 1 << 63
_MASK: Final = (1 << 64) - 1


class ExactDecimalSum:
    """One sum among the parts of an aggregate. `kind` is that of a sum: its digits are what a result may have."""

    def __init__(self, name: str, kind: DataType) -> None:
        self.kind = kind
        self._columns = [f"{name}.{suffix}" for suffix, _, _ in DECIMAL_SUM]
        self._some = f"{name}.some"
        self._limit: int = 10**kind.precision

    def from_rows(self, values: pl.Series) -> Reduction:
        """Of decimals."""
        low, carry, _ = self._columns
        units = values.to_physical().cast(pl.Int128)
        if _digits_of(values) <= _BIGINT_DIGITS:
            return self._reduction([units.alias(low)])
        upper = units // WORD
        return self._reduction([(units - upper * WORD).alias(low), upper.alias(carry)])

    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        """Of partial sums."""
        return self._reduction([parts[column].cast(pl.Int128) for column in self._columns])

    def _reduction(self, words: list[pl.Series]) -> Reduction:
        sums = [pl.col(word.name).sum() for word in words]
        return Reduction(words, [*sums, pl.col(words[0].name).count().alias(self._some)])

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """The columns of the parts."""
        zero = pl.zeros(grouped.height, pl.Int128, eager=True)
        low, carry, high = (grouped.get_column(column, default=zero) for column in self._columns)
        low, over = carry_words(low)
        carry, above = carry_words(carry + over.cast(pl.Int128))
        high = (high + above.cast(pl.Int128)).cast(pl.Int64)
        none = grouped[self._some] == 0
        return [blank(part, none).alias(column) for part, column in zip((low, carry, high), self._columns, strict=True)]

    def units_of(self, accumulator: Value) -> int | None:
        """The sum. Raises OverflowError for one that leaves the range of the type."""
        units = _join(accumulator)
        if units is not None and not -self._limit < units < self._limit:
            raise OverflowError(f"a sum leaves the range of {self.kind}")
        return units


def _digits_of(values: pl.Series) -> int:
    kind = values.dtype
    assert isinstance(kind, pl.Decimal)
    return kind.precision


def _join(accumulator: Value) -> int | None:
    low, carry, high = accumulator
    if low is None:
        return None
    units: int = (high << 128) + (carry << 64) + low
    return units


def _split(units: int) -> Value:
    """Two words with a sign each, and what is above them."""
    words = []
    for _ in range(2):
        word = ((units + _HALF) & _MASK) - _HALF
        words.append(word)
        units = (units - word) >> 64
    return (*words, units)


def merge_sums(left: Value, right: Value) -> Value:
    """The sum of two sums as the states have them."""
    one, other = _join(left), _join(right)
    if one is None or other is None:
        return left if other is None else right
    return _split(one + other)


class DecimalSum(Summing):
    """See MergeableAggregate."""

    parts = DECIMAL_SUM

    def __init__(self, name: str, argument: str, kind: DataType) -> None:
        self._name = name
        self._sum = ExactDecimalSum(name, kind)
        super().__init__(argument, self._sum, merge_sums)

    def results(self, accumulators: Sequence[Value]) -> pl.Series:
        """See MergeableAggregate."""
        kind = self._sum.kind
        sums = map(self._sum.units_of, accumulators)
        return make_column(
            self._name, kind, [None if units is None else decimal_of_units(units, kind.scale) for units in sums]
        )


class DecimalAverage(Averaging):
    """See MergeableAggregate. `kind` is the type of the values, `result` that of the average."""

    parts = (*DECIMAL_SUM, COUNT)

    def __init__(self, name: str, argument: str, kind: DataType, result: DataType) -> None:
        self._name = name
        self._scale = kind.scale
        self._result = result
        self._sum = ExactDecimalSum(name, derive_sum_type(kind))
        super().__init__(name, argument, self._sum, merge_sums)

    def results(self, accumulators: Sequence[Value]) -> pl.Series:
        """See MergeableAggregate."""
        sums = [(self._sum.units_of(one[:-1]), one[-1]) for one in accumulators]
        averages = [
            None if units is None else divide_average(units, self._scale, count, self._result) for units, count in sums
        ]
        return make_column(self._name, self._result, averages)
