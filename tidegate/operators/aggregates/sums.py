"""sum, avg, variance and standard deviation: exact, and rounded or checked once, at the result.

So ten times 0.1 is 1.0, and 1e308 + 1e308 - 1e308 is 1e308, where one-by-one addition gives 0.9999999999999999 and an
infinity. A sum of doubles that is 0 is 0.0, never -0.0. Integers and decimals are added as whole numbers in units of
their scale. Only in running totals, where a row that overflows the sum fails, are they kept unchanged.

Variance and standard deviation are computed from exact sums of the values and of their squares. There is no
cancellation: if all values are equal, both are exactly 0. Infinities and NaN give NaN.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from decimal import localcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from tidegate.datatypes import BIGINT, BINARY, DOUBLE, EXACT, decimal_of_units, units_of
from tidegate.expressions.decimal_types import derive_sum_type, divide_average
from tidegate.expressions.expression import AggregateCall
from tidegate.native.running import TotalFunction
from tidegate.operators.aggregates.contract import (
    Aggregate,
    AggregateField,
    AggregateUse,
    Functions,
    Numbers,
    Reduction,
    Value,
    argument_type,
)
from tidegate.operators.aggregates.counting import COUNT, run_count
from tidegate.operators.aggregates.exact import (
    EXACT_SUM,
    EXACT_ZERO,
    REST_BITS,
    ExactRemainder,
    Total,
    decode_rest,
    divide,
    divide_pair,
    encode_rest,
    merge_sums,
    rest_of_values,
    sum_of_square,
    sum_of_value,
    total_of,
)

if TYPE_CHECKING:
    import polars as pl

    from tidegate.operators.aggregates.columnar.exact import ExactSum, WordSum

_HALF: Final = 1 << 63


def add_words(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    """Returns the sum; the last word takes what exceeds the others."""
    words, carry = [], 0
    for one, other in zip(left[:-1], right[:-1], strict=True):
        word = one + other + carry
        carry = (word + _HALF) >> 64
        words.append(word - (carry << 64))
    return (*words, left[-1] + right[-1] + carry)


def split_words(number: int, count: int) -> tuple[int, ...]:
    """Splits a number into `count` words."""
    words = []
    for _ in range(count - 1):
        carry = (number + _HALF) >> 64
        words.append(number - (carry << 64))
        number = carry
    return (*words, number)


def join_words(words: Sequence[int]) -> int:
    """Returns the number that the words represent."""
    number = 0
    for word in reversed(words):
        number = (number << 64) + word
    return number


OVERFLOW: Final = "a sum leaves the range of {}"
_WORDS: Final = tuple(AggregateField(suffix, BIGINT, nullable=True) for suffix in ("low", "carry", "high"))
INTEGER_SUM, DECIMAL_SUM = _WORDS[:2], _WORDS
"""2^64 bigints fit in 128 bits, 2^64 decimals of 38 digits fit in 192."""


class _Sum(Aggregate):
    """A sum, followed by the number of values if it is needed. `sum_fields` are those of the sum."""

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse, sum_fields: Sequence[AggregateField]) -> None:
        super().__init__(name, call, use)
        self.average = call.function == "avg"
        self.counted = self.average or use is AggregateUse.CHANGES
        self.width = len(sum_fields)
        self.fields = (*sum_fields, COUNT) if self.counted else sum_fields

    def _is_empty(self, accumulator: Value) -> bool:
        return not accumulator[self.width] if self.counted else accumulator[0] is None


class CheckedSum(_Sum):
    """The sum of integers and decimals in running totals. Each result is within the range of its type, so the sum has
    that type.

    An overflow is detected when the result column is created (`make_column`), and the row fails.
    """

    native_function = TotalFunction.SUM

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        average = call.function == "avg"
        kind = derive_sum_type(argument_type(call)) if average else call.type
        super().__init__(name, call, use, (AggregateField("sum", kind, nullable=True),))
        self._kind = kind

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        with localcontext(EXACT):
            total = value if accumulator[0] is None else accumulator[0] + value
        return (total, *(count + 1 for count in accumulator[1:]))

    @override
    def result(self, accumulator: Value) -> Any:
        (found,) = self.results([accumulator])
        return found

    @override
    def results(self, accumulators: Sequence[Value]) -> list[Any]:
        if not self.average:
            return [total for (total,) in accumulators]
        totals, counts = zip(*accumulators, strict=True) if accumulators else ((), ())
        return self._averages(totals, counts)

    @override
    def run(self, numbers: Numbers, values: Sequence[Any], columns: list[list[Any]]) -> list[Any]:
        if self._kind.kind != "decimal":
            return run_sum(numbers, values, columns[0])
        with localcontext(EXACT):
            totals = run_sum(numbers, values, columns[0])
        return self._averages(totals, run_count(numbers, values, columns[1])) if self.average else totals

    def _averages(self, totals: Sequence[Any], counts: Sequence[int]) -> list[Any]:
        kind = self._kind
        limit = decimal_of_units(10**kind.precision, kind.scale)
        if any(total is not None and total.copy_abs() >= limit for total in totals):
            raise OverflowError(OVERFLOW.format(kind))
        return [
            None if total is None else divide_average(units_of(total, kind.scale), kind.scale, count, self.call.type)
            for total, count in zip(totals, counts, strict=True)
        ]


def run_sum(numbers: Numbers, values: Sequence[Any], sums: list[Any]) -> list[Any]:
    """Returns the sum of the key after each row; NULL until the first value."""
    results: list[Any] = []
    append = results.append
    for number, value in zip(numbers, values, strict=True):
        total = sums[number]
        if value is not None:
            sums[number] = total = (0 if total is None else total) + value
        append(total)
    return results


class _MergedSum(_Sum):
    """A sum that accepts rows in any order."""

    @property
    def _frames(self) -> ExactSum | WordSum:
        raise NotImplementedError

    @override
    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        values = rows[self.arguments[0]]
        reduction = self._frames.from_rows(values)
        return reduction.counting(values, self.columns[self.width]) if self.counted else reduction

    @override
    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        reduction = self._frames.from_parts(parts)
        return reduction.adding(self.columns[self.width]) if self.counted else reduction

    @override
    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        return [*self._frames.pack(grouped), *(grouped[column] for column in self.columns[self.width :])]


class WholeSum(_MergedSum):
    """The sum of integers and decimals."""

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        argument = argument_type(call)
        self._decimal = argument.kind == "decimal"
        self._scale = argument.scale if self._decimal else 0
        self._kind = derive_sum_type(argument) if self._decimal else BIGINT
        self._most = 10**self._kind.precision - 1 if self._decimal else _HALF - 1
        self._least = -self._most if self._decimal else -_HALF
        words = DECIMAL_SUM if self._decimal else INTEGER_SUM
        zero = use is AggregateUse.CHANGES
        super().__init__(name, call, use, [one._replace(nullable=False, zero=0) if zero else one for one in words])
        if self._decimal or use is AggregateUse.CHANGES:
            self.encoding = f"units of scale {self._scale}"

    @cached_property
    def _frames(self) -> WordSum:
        from tidegate.operators.aggregates.columnar.exact import WordSum

        return WordSum(self.columns[: self.width])

    def _moved(self, accumulator: Value, units: int, count: int) -> Value:
        moved = list(accumulator)
        low = moved[0]
        if low is not None and -_HALF <= low + units < _HALF:
            moved[0] = low + units
        else:
            words = split_words(units, self.width)
            moved[: self.width] = words if low is None else add_words(moved[: self.width], words)
        if self.counted:
            moved[-1] += count
        return tuple(moved)

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        return self._moved(accumulator, units_of(value, self._scale) if self._decimal else value, 1)

    @override
    def retract(self, accumulator: Value, value: Any) -> Value | None:
        if not accumulator[self.width]:
            return None
        return self._moved(accumulator, -units_of(value, self._scale) if self._decimal else -value, -1)

    @override
    def merge(self, left: Value, right: Value) -> Value:
        if left[0] is None or right[0] is None:
            return left if right[0] is None else right
        words = add_words(left[: self.width], right[: self.width])
        return (*words, left[self.width] + right[self.width]) if self.counted else words

    @override
    def results(self, accumulators: Sequence[Value]) -> list[Any]:
        if not (self.counted or self._decimal):
            lows, carries = zip(*accumulators, strict=True) if accumulators else ((), ())
            if any(carries):
                raise OverflowError(OVERFLOW.format(self._kind))
            return list(lows)
        return list(map(self.result, accumulators))

    @override
    def result(self, accumulator: Value) -> Any:
        if self._is_empty(accumulator):
            return None
        units = join_words(accumulator[: self.width])
        if not self._least <= units <= self._most:
            raise OverflowError(OVERFLOW.format(self._kind))
        if self.average:
            return divide_average(units, self._scale, accumulator[self.width], self.call.type)
        return decimal_of_units(units, self._scale) if self._decimal else units


_SPECIAL: Final = tuple(
    AggregateField(suffix, BIGINT, nullable=False, zero=0) for suffix in ("nan", "infinite", "negative")
)
"""The fields for changes: the number of NaNs and infinities, so that retracting them leaves no trace."""


class DoubleSum(_MergedSum):
    """The sum of doubles."""

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        super().__init__(name, call, use, EXACT_ZERO if use is AggregateUse.CHANGES else EXACT_SUM)
        if use is AggregateUse.CHANGES:
            self.fields = (*self.fields, *_SPECIAL)
            self.encoding = "values"

    @cached_property
    def _frames(self) -> ExactSum:
        from tidegate.operators.aggregates.columnar.exact import ExactSum

        return ExactSum(self.columns[: self.width])

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        if self.use is AggregateUse.CHANGES:
            return self._moved(accumulator, value, 1)
        total = merge_sums(accumulator[: self.width], sum_of_value(value))
        return (*total, accumulator[self.width] + 1) if self.counted else total

    @override
    def retract(self, accumulator: Value, value: Any) -> Value | None:
        counted = accumulator[self.width] if math.isfinite(value) else accumulator[self._place(value)]
        return self._moved(accumulator, value, -1) if counted else None

    def _moved(self, accumulator: Value, value: float, sign: int) -> Value:
        moved = list(accumulator)
        if math.isfinite(value):
            moved[: self.width] = merge_sums(accumulator[: self.width], sum_of_value(sign * value))
        else:
            moved[self._place(value)] += sign
        moved[self.width] += sign
        return tuple(moved)

    def _place(self, value: float) -> int:
        return self.width + (1 if math.isnan(value) else 2 if value > 0 else 3)

    @override
    def merge(self, left: Value, right: Value) -> Value:
        total = merge_sums(left[: self.width], right[: self.width])
        counts = zip(left[self.width :], right[self.width :], strict=True)
        return (*total, *(one + other for one, other in counts)) if self.counted else total

    @override
    def result(self, accumulator: Value) -> Any:
        if self._is_empty(accumulator):
            return None
        nan, infinite, negative = accumulator[self.width + 1 :] or (0, 0, 0)
        if nan or (infinite and negative):
            return math.nan
        if infinite or negative:
            return math.inf if infinite else -math.inf
        return total_of(accumulator[: self.width]).divided(accumulator[self.width] if self.average else 1)


class CompensatedSum(_Sum):
    """The sum of doubles in running totals: the rounded sum, and in `error` the exact rounding loss. This is the
    cheapest form.

    Two doubles represent nearly every sum. If they do not, `rest` has the whole sum.
    """

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        fields = (
            AggregateField("sum", DOUBLE, nullable=True),
            AggregateField("error", DOUBLE, nullable=False, zero=0.0, optional=True),
            AggregateField("rest", BINARY, nullable=True, optional=True),
        )
        super().__init__(name, call, use, fields)
        self.native_function = TotalFunction.AVERAGE if self.average else TotalFunction.SUM

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        """Adds a value.

        The addition yields its own error (Knuth: The Art of Computer Programming, 4.2.2), and so does the addition of
        both errors. As long as the latter is 0, nothing is lost, and the sum is the exact one, rounded once.
        """
        total, error, rest, *counts = accumulator
        counts = [count + 1 for count in counts]
        if rest is None:
            before = 0.0 if total is None else total
            added = before + value
            back = added - before
            lost = (before - (added - back)) + (value - back)
            left = error + lost
            if left - error == lost and left - lost == error and abs(added) < sys.float_info.max:
                total = added + left
                return (total, left - (total - added), None, *counts)
        return (*_add_exactly(total, error, rest, value), *counts)

    @override
    def result(self, accumulator: Value) -> Any:
        return average_compensated(*accumulator) if self.average else accumulator[0]


def _add_exactly(total: float | None, error: float, rest: bytes | None, value: float) -> Value:
    """Returns the sum, the error and the rest after adding a value."""
    whole = _whole_of(total, error, rest).plus(*_split(value))
    high = Total(whole.units, REST_BITS, whole.flags).divided()
    if math.isfinite(high):
        left = whole.units - _split(high)[0]
        low = divide(left, 1 << REST_BITS)
        if _split(low)[0] == left:
            return high, low, None
    return high, 0.0, encode_rest(whole)


def _whole_of(total: float | None, error: float, rest: bytes | None) -> ExactRemainder:
    if rest is not None:
        return decode_rest(rest)
    return ExactRemainder() if total is None else rest_of_values((total, error))


def _split(value: float) -> tuple[int, int]:
    rest = rest_of_values((value,))
    return rest.units, rest.flags


def average_compensated(total: float | None, error: float, rest: bytes | None, count: int) -> float | None:
    """Returns the average from a CompensatedSum: the exact quotient, rounded once."""
    if total is None:
        return None
    if rest is not None:
        whole = decode_rest(rest)
        return Total(whole.units, REST_BITS, whole.flags).divided(count)
    return divide_pair(total, error, count) if error else total / count


def _make(name: str, call: AggregateCall, use: AggregateUse) -> Aggregate:
    running = use is AggregateUse.RUNNING
    if call.type.kind == "double":
        return (CompensatedSum if running else DoubleSum)(name, call, use)
    return (CheckedSum if running else WholeSum)(name, call, use)


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
    **{function: dict.fromkeys(AggregateUse, _make) for function in ("sum", "avg")},
    **{
        function: {AggregateUse.RUNNING: Moments, AggregateUse.WINDOW: Moments}
        for function in ("stddev_samp", "stddev_pop", "var_samp", "var_pop")
    },
}
