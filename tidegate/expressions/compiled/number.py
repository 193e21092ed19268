"""Functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal

import polars as pl

from tidegate.expressions.compiled.casts import decimal_to_whole, rounded_decimal
from tidegate.expressions.compiled.compiled import Compiled, compiles, eager, plain, strict
from tidegate.expressions.compiled.decimals import decimal_arithmetic
from tidegate.expressions.compiled.operators import dividing, integer_remainder
from tidegate.expressions.compiled.rowwise import by_row
from tidegate.expressions.expression import Call
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind

BIGINT_LIMIT = float(1 << 63)
_HALF_EVEN = Context(prec=400, rounding=ROUND_HALF_EVEN)
_HALF_UP = Context(prec=400, rounding=ROUND_HALF_UP)
_EXACT = float(1 << 52)  # beyond it a double has no fractional digits
_APART, _WHOLE = 1e14, 1e17  # a tie with fewer digits is the shortest text of its double; no text has more digits


@compiles("round")
def _round(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    value = arguments[0].value
    digits = int(arguments[1].constant or 0)
    if call.type.kind == "decimal":
        return rounded_decimal(call, arguments[0], digits)
    if call.type.kind in ("float", "double"):
        value = value.cast(pl.Float64).map_batches(_RoundHalfUp(digits), return_dtype=pl.Float64, is_elementwise=True)
        return strict(call, arguments[:1], value.cast(polars_type(call.type)))
    return strict(call, arguments[:1], value)


@compiles("bround")
def _round_half_even(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    if call.type.kind == "decimal":
        return rounded_decimal(call, arguments[0], int(arguments[1].constant or 0))
    if call.type.kind not in ("float", "double"):
        return strict(call, arguments[:1], arguments[0].value)
    digits = int(arguments[1].constant or 0)
    step = Decimal(1).scaleb(-digits)

    def each(number: float) -> float:
        if not math.isfinite(number) or (digits >= 0 and abs(number) >= _EXACT * 2):
            return number
        return float(Decimal(repr(number)).quantize(step, context=_HALF_EVEN)) + 0.0

    return by_row(call, arguments[:1], each)


class _RoundHalfUp:
    """Rounding like Java's BigDecimal of the shortest decimal text: 2.675 to two digits is 2.68.

    A double is a tie exactly if it is the double nearest to the tie's decimal, which one correctly rounded division of
    two integers yields for at most 15 digits. With more digits it may also be the nearest to other texts, and its own
    text decides. This works on series, so that no step is evaluated twice.
    """

    def __init__(self, digits: int) -> None:
        self._power = float(10 ** abs(digits))
        self._tens = digits < 0
        self._step = Decimal(1).scaleb(-digits)

    def __call__(self, value: pl.Series) -> pl.Series:
        size = value.abs()
        power = (size * 0.0).fill_nan(0.0) + self._power  # a column: see `exact_quotient`
        scaled = size / power if self._tens else size * power
        whole = scaled.floor()
        tie = (whole + 0.5) * power if self._tens else (whole + 0.5) / power
        up = whole + (size >= tie).cast(pl.Float64)
        rounded = up * power if self._tens else up / power
        signed = pl.Series.zip_with(0.0 - rounded, (value < 0) & (rounded > 0), rounded)
        found = signed.zip_with(scaled < _EXACT, value)
        doubtful = (scaled >= _APART) & (scaled < _WHOLE)
        if not doubtful.any():
            return found
        rows = (doubtful & ((scaled - whole - 0.5).abs() <= scaled * 2.0**-50)).arg_true()
        return found.scatter(rows, [self._by_text(one) for one in value.gather(rows)])

    def _by_text(self, number: float) -> float:
        return float(Decimal(repr(number)).quantize(self._step, context=_HALF_UP))


@compiles("floor", "ceil")
def _to_bigint(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    value = arguments[0].value
    if call.type.kind == "decimal":
        return strict(call, arguments, decimal_to_whole(value, arguments[0].type, call.type, call.function))
    if arguments[0].type.kind not in ("float", "double"):
        return strict(call, arguments, value.cast(pl.Int64))
    double = value.cast(pl.Float64)
    whole = double.floor() if call.function == "floor" else double.ceil()
    outside = (whole >= BIGINT_LIMIT) | (whole < -BIGINT_LIMIT)
    number = pl.when(whole.is_nan()).then(pl.lit(0, pl.Int64)).otherwise(whole.cast(pl.Int64, strict=False))
    return strict(call, arguments, number, (FailureKind.ARITHMETIC_OVERFLOW, outside & ~whole.is_nan()))


_TWO_ROWS = pl.Series([1.0, 1.0])


plain(
    {
        "sqrt": pl.Expr.sqrt,
        "cbrt": pl.Expr.cbrt,
        "exp": pl.Expr.exp,
        "ln": lambda value: pl.when(value > 0).then(value).log(),
        "sin": pl.Expr.sin,
        "cos": pl.Expr.cos,
        "tan": pl.Expr.tan,
        "asin": pl.Expr.arcsin,
        "acos": pl.Expr.arccos,
        "atan": pl.Expr.arctan,
        "radians": pl.Expr.radians,
        "degrees": pl.Expr.degrees,
        "sign": lambda value: pl.when(value == 0).then(value).otherwise(value.sign()),
    }
)


@compiles("log10", "log2")
def _logarithm(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Uses the C library: Polars divides two natural logarithms, and the last two digits are wrong."""
    exact = math.log10 if call.function == "log10" else math.log2
    return by_row(call, arguments, lambda number: None if number <= 0 else exact(number))


@compiles("atan2")
def _angle(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Takes -0.0 as 0.0, as Spark does."""
    y, x = (pl.when(one.value == 0).then(0.0).otherwise(one.value) for one in arguments)
    return strict(call, arguments, pl.arctan2(y, x))


@compiles("greatest", "least")
def _extreme(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Skips NULL, and compares explicitly because Polars' horizontal functions skip NaN."""
    greatest = call.function == "greatest"
    value, other = arguments[0].value, arguments[1].value
    better = other > value if greatest else other < value
    return eager(call, arguments, pl.when(value.is_null() | better.fill_null(False)).then(other).otherwise(value))


@compiles("power")
def _power(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Computes C's pow, except that Java defines (+-1) to the power of infinity and 1 to the power of NaN as NaN."""
    base, exponent = arguments[0].value, arguments[1].value
    no_number = (base.abs() == 1) & exponent.is_infinite() | (base == 1) & exponent.is_nan()
    power = pl.map_batches([base, exponent], _to_the_power, return_dtype=pl.Float64, is_elementwise=True)
    return strict(call, arguments, pl.when(no_number).then(pl.lit(float("nan"))).otherwise(power))


def _to_the_power(columns: Sequence[pl.Series]) -> pl.Series:
    """Computes the power with at least two rows. For a single exponent (a constant, or a batch of one row) Polars
    multiplies and takes roots, which yields other last digits and another square root of minus infinity. A value
    must not depend on the other rows, or a change could not be retracted.
    """
    rows = min(map(len, columns)) and max(map(len, columns))
    base, exponent = (
        pl.concat([column.new_from_index(0, rows) if len(column) == 1 else column, _TWO_ROWS]) for column in columns
    )
    return base.pow(exponent).head(rows)


@compiles("pmod")
def _positive_remainder(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Computes Spark's pmod: r = a % n; r if it is not negative, else (r + n) % n."""
    if call.type.kind == "decimal":
        return decimal_arithmetic(call, arguments)
    left, right = arguments[0].value, arguments[1].value
    if call.type.kind in ("tinyint", "smallint"):  # Java adds them as ints
        left, right = left.cast(pl.Int32), right.cast(pl.Int32)
    remainder = integer_remainder(left, right)
    value = pl.when(remainder < 0).then(integer_remainder(remainder + right, right)).otherwise(remainder)
    return dividing(call, arguments, value.cast(polars_type(call.type)))
