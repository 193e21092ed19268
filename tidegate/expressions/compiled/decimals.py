"""Decimals: exact arithmetic on their unscaled 128-bit integers, rounded half away from zero as in Java.

Polars' own decimal arithmetic rounds half to even, has other scales, and raises for the whole column. A decimal is
therefore converted to its integer, and every step is a step on integers that provably stay below 2^127. The proof uses
the types (then it is a plain Polars expression) or the values of the current batch. If neither is sufficient, Python's
unbounded integers compute row by row (`_Exactly`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from tidegate.datatypes import DataType
from tidegate.expressions.compiled.compiled import Compiled, strict
from tidegate.expressions.decimal_types import can_overflow
from tidegate.expressions.expression import Call, divides_safely
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind

_LIMIT = 1 << 127
_BIGINT = 1 << 63


def integer(value: int) -> pl.Expr:
    """Returns a 128-bit constant."""
    return pl.lit(value, pl.Int128())


def _power(digits: int) -> int:
    return int(10**digits)


def signed(size: pl.Expr, negative: pl.Expr) -> pl.Expr:
    """Returns a number with this absolute value and sign."""
    return pl.when(negative).then(integer(0) - size).otherwise(size)


def unscaled(value: pl.Expr) -> pl.Expr:
    """Returns the integer of a decimal: 1250 for 12.50."""
    return value.to_physical()


def packed(number: pl.Expr, kind: DataType) -> pl.Expr:
    """Returns unscaled integers as decimals; NULL if they have too many digits."""
    return below(number, kind.precision).reinterpret(dtype=polars_type(kind))


def below(number: pl.Expr, digits: int) -> pl.Expr:
    """Returns a number if it has at most this many digits, else NULL."""
    limit = _power(max(0, digits))
    return pl.when((number < integer(limit)) & (number > integer(-limit))).then(number)


def rescaled(number: pl.Expr, scale: int, kind: DataType) -> pl.Expr:
    """Returns integers with `scale` fractional digits as decimals, rounded half away from zero; NULL if too large."""
    if scale > kind.scale:
        return packed(over_power(number, scale - kind.scale), kind)
    more = kind.scale - scale
    return (below(number, kind.precision - more) * integer(_power(more))).reinterpret(dtype=polars_type(kind))


def over_power(number: pl.Expr, digits: int) -> pl.Expr:
    """Divides by a power of ten, rounding half away from zero. Removes up to 39 digits of numbers below 1.2 * 10^38."""
    if digits > 38:
        return number * integer(0)
    power = integer(10**digits)
    size = (number.abs() + integer(10**digits // 2)) // power
    return signed(size, number < 0)


def even_over_power(number: pl.Expr, digits: int) -> pl.Expr:
    """Divides by a power of ten, rounding half to even."""
    if digits > 38:
        return number * integer(0)
    power, half = integer(_power(digits)), integer(_power(digits) // 2)
    below = number.abs() // power
    rest = number.abs() - below * power
    up = (rest > half) | ((rest == half) & (below % integer(2) == 1))
    return signed(below + up.cast(pl.Int128), number < 0)


def truncated_over_power(number: pl.Expr, digits: int) -> pl.Expr:
    """Divides by a power of ten, rounding towards zero."""
    size = number.abs() // integer(10**digits)
    return signed(size, number < 0)


@dataclass(frozen=True, slots=True)
class _Way:
    """One operation on unscaled integers: on columns if it `fits` 128 bits, else one by one.

    `fits` gets the greatest absolute values of both sides. `column` returns NULL for results that do not fit and for a
    zero divisor. `one` is never called with a zero divisor, and its result is rounded to the scale of the result type.
    """

    fits: Callable[[int, int], bool]
    column: Callable[[pl.Expr, pl.Expr], pl.Expr]
    one: Callable[[int, int], int]
    divides: bool = False


def _sum(function: str, left: DataType, right: DataType, kind: DataType) -> _Way:
    scale = max(left.scale, right.scale)
    up, down = (_power(scale - left.scale), _power(scale - right.scale)), max(0, scale - kind.scale)
    sign = 1 if function == "+" else -1

    def fits(a: int, b: int) -> bool:
        return a * up[0] + b * up[1] + _power(down) < _LIMIT

    def column(a: pl.Expr, b: pl.Expr) -> pl.Expr:
        return rescaled(a * integer(up[0]) + b * integer(sign * up[1]), scale, kind)

    return _Way(fits, column, lambda a, b: _rounded(a * up[0] + sign * b * up[1], _power(down)))


def _product(left: DataType, right: DataType, kind: DataType) -> _Way:
    scale = left.scale + right.scale
    down = scale - kind.scale

    def fits(a: int, b: int) -> bool:
        return down < 39 and a * b + _power(down) < _LIMIT

    return _Way(fits, lambda a, b: rescaled(a * b, scale, kind), lambda a, b: _rounded(a * b, _power(down)))


def _quotient(left: DataType, right: DataType, kind: DataType) -> _Way:
    up = kind.scale + right.scale - left.scale

    def fits(a: int, b: int) -> bool:
        return up >= 0 and 2 * a * _power(up) < _LIMIT and 2 * b < _LIMIT

    def column(a: pl.Expr, b: pl.Expr) -> pl.Expr:
        dividend, divisor = a.abs() * integer(_power(up)), pl.when(b != 0).then(b.abs())
        below = dividend // divisor
        size = below + ((dividend - below * divisor) * 2 >= divisor).cast(pl.Int128)
        return packed(signed(size, (a < 0) != (b < 0)), kind)

    def one(a: int, b: int) -> int:
        return _rounded(a * _power(max(0, up)), b * _power(max(0, -up)))

    return _Way(fits, column, one, divides=True)


def _remainder(function: str, left: DataType, right: DataType, kind: DataType) -> _Way:
    """Returns `%`, with the sign of the dividend, or `pmod`: r = a % n, or (r + n) % n if r is negative."""
    scale = max(left.scale, right.scale)
    up, down = (_power(scale - left.scale), _power(scale - right.scale)), max(0, scale - kind.scale)

    def fits(a: int, b: int) -> bool:
        return a * up[0] < _LIMIT // 4 and b * up[1] + _power(down) < _LIMIT // 4

    def column(a: pl.Expr, b: pl.Expr) -> pl.Expr:
        divisor = pl.when(b != 0).then(b) * integer(up[1])
        found = _signed_remainder(a * integer(up[0]), divisor)
        if function == "pmod":
            found = pl.when(found < 0).then(_signed_remainder(found + divisor, divisor)).otherwise(found)
        return rescaled(found, scale, kind)

    def one(a: int, b: int) -> int:
        found = _one_remainder(a * up[0], b * up[1])
        if function == "pmod" and found < 0:
            found = _one_remainder(found + b * up[1], b * up[1])
        return _rounded(found, _power(down))

    return _Way(fits, column, one, divides=True)


def _signed_remainder(dividend: pl.Expr, divisor: pl.Expr) -> pl.Expr:
    size = dividend.abs() % divisor.abs()
    return signed(size, dividend < 0)


def _one_remainder(dividend: int, divisor: int) -> int:
    size = abs(dividend) % abs(divisor)
    return -size if dividend < 0 else size


def _whole_quotient(left: DataType, right: DataType) -> _Way:
    scale = max(left.scale, right.scale)
    up = (_power(scale - left.scale), _power(scale - right.scale))

    def fits(a: int, b: int) -> bool:
        return a * up[0] < _LIMIT and b * up[1] < _LIMIT

    def column(a: pl.Expr, b: pl.Expr) -> pl.Expr:
        size = (a.abs() * integer(up[0])) // (pl.when(b != 0).then(b.abs()) * integer(up[1]))
        return signed(size, (a < 0) != (b < 0)).cast(pl.Int64, strict=False)

    def one(a: int, b: int) -> int:
        size = abs(a) * up[0] // (abs(b) * up[1])
        return -size if (a < 0) != (b < 0) else size

    return _Way(fits, column, one, divides=True)


def _rounded(dividend: int, divisor: int) -> int:
    """Returns the quotient, rounded half away from zero."""
    size, rest = divmod(abs(dividend), abs(divisor))
    size += 2 * rest >= abs(divisor)
    return -size if (dividend < 0) != (divisor < 0) else size


def _way(function: str, left: DataType, right: DataType, kind: DataType) -> _Way:
    match function:
        case "+" | "-":
            return _sum(function, left, right, kind)
        case "*":
            return _product(left, right, kind)
        case "/":
            return _quotient(left, right, kind)
        case "div":
            return _whole_quotient(left, right)
    return _remainder(function, left, right, kind)


def _greatest(numbers: pl.Series) -> int:
    """Returns the greatest absolute value; 0 if there are no values."""
    return max((abs(end) for end in (numbers.min(), numbers.max()) if isinstance(end, int)), default=0)


class _Exactly:
    """An operation on a batch: on columns if its values are small enough, else one by one."""

    def __init__(self, way: _Way, kind: DataType) -> None:
        self._way = way
        self._dtype = polars_type(kind)
        self._limit = _BIGINT if kind.kind == "bigint" else 10**kind.precision
        self._column = way.column(pl.col("a"), pl.col("b")).alias("r") if way.fits(1, 1) else None

    def __call__(self, pairs: pl.Series) -> pl.Series:
        frame = pl.DataFrame([pairs.struct.field(name).to_physical().alias(name) for name in "ab"])
        if self._column is not None and self._way.fits(_greatest(frame["a"]), _greatest(frame["b"])):
            return frame.select(self._column)["r"]
        found = pl.Series([self._one(a, b) for a, b in frame.iter_rows()], dtype=pl.Int128)
        return found.cast(self._dtype) if self._dtype == pl.Int64 else found.reinterpret(dtype=self._dtype)

    def _one(self, a: int | None, b: int | None) -> int | None:
        if a is None or b is None or (b == 0 and self._way.divides):
            return None
        found = self._way.one(a, b)
        return found if -self._limit < found < self._limit or found == -_BIGINT == -self._limit else None


def decimal_arithmetic(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Compiles one of `+ - * / % div pmod`. Spark's order: divisor first. Zero fails unless the dividend is NULL."""
    left, right = arguments
    way = _way(call.function, left.type, right.type, call.type)
    if way.fits(10**left.type.precision - 1, 10**right.type.precision - 1):
        value = way.column(unscaled(left.value), unscaled(right.value))
    else:
        value = pl.struct(left.value.alias("a"), right.value.alias("b")).map_batches(
            _Exactly(way, call.type), return_dtype=polars_type(call.type), is_elementwise=True
        )
    checks = []
    if way.divides and not divides_safely(call.function, right.source):
        checks.append((FailureKind.DIVIDE_BY_ZERO, (right.value == 0) & left.value.is_not_null()))
    if call.function == "div" or can_overflow(call.function, left.type, right.type):
        kind = FailureKind.ARITHMETIC_OVERFLOW if call.function == "div" else FailureKind.NUMERIC_VALUE_OUT_OF_RANGE
        checks.append((kind, value.is_null() & left.value.is_not_null() & right.value.is_not_null()))
    return strict(call, [right, left] if way.divides else arguments, value, *checks)
