"""Operators and conditions: arithmetic with the checks of ANSI mode, comparison, and what controls the evaluation.

Polars orders as Spark does: NaN equals NaN and is the greatest number.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace

import polars as pl

from tidegate.datatypes import INT, DataType
from tidegate.expressions.compiled.calendar import outside_calendar
from tidegate.expressions.compiled.compiled import COMPILERS, Compiled, FailingRows, compiles, eager, plain, strict
from tidegate.expressions.compiled.decimals import decimal_arithmetic
from tidegate.expressions.expression import Call, ColumnReference, columns_of, divides_safely
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind

NARROW = ("tinyint", "smallint", "int")
FRACTIONAL = ("float", "double")
LIMITS = {"tinyint": 1 << 7, "smallint": 1 << 15, "int": 1 << 31, "bigint": 1 << 63}
_OPERATORS: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_TRIED = {"try_add": "+", "try_subtract": "-", "try_multiply": "*", "try_mod": "%", "try_divide": "/"}

plain({"&": operator.and_, "|": operator.or_, "^": operator.xor, "~": lambda value: -1 - value})


@compiles("+", "-", "*")
def _arithmetic(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    left, right = arguments[0].value, arguments[1].value
    apply = _OPERATORS[call.function]
    kind = call.type
    if kind.kind in FRACTIONAL:
        return strict(call, arguments, _of_doubles(call.function, *arguments))
    if kind.kind == "decimal":
        return decimal_arithmetic(call, arguments)
    if kind.kind in ("timestamp", "timestamp_ntz", "interval", "months"):
        return _time(call, arguments)
    if kind.kind in NARROW:
        wide = apply(left.cast(pl.Int64), right.cast(pl.Int64))
        return strict(call, arguments, narrow(wide, kind), (FailureKind.ARITHMETIC_OVERFLOW, outside(wide, kind)))
    value = apply(left, right)
    overflow = bigint_overflow(call.function, left, right, value)
    return strict(call, arguments, value, (FailureKind.ARITHMETIC_OVERFLOW, overflow))


def _of_doubles(function: str, left: Compiled, right: Compiled) -> pl.Expr:
    """Corrects the sign of zero: with a constant 0, Polars computes `0.0 - x` as `-x` and `x + 0.0` as `x`."""
    value = _OPERATORS[function](left.value, right.value)
    positive = {"+": "0.0" in (_zero(left), _zero(right)), "-": _zero(left) == "0.0" or _zero(right) == "-0.0"}
    return pl.when(value == 0).then(value.abs()).otherwise(value) if positive.get(function) else value


def _zero(argument: Compiled) -> str:
    """Returns a constant double that is 0, with its sign; empty for any other argument."""
    if columns_of(argument.source):
        return ""
    constant = pl.select(argument.value).item()
    return repr(constant) if constant == 0 else ""


def bigint_overflow(function: str, left: pl.Expr, right: pl.Expr, value: pl.Expr) -> pl.Expr:
    """Returns where the wrapped result of a bigint operation is wrong: by the signs, for products in 128 bits."""
    if function == "+":
        return ((left ^ value) & (right ^ value)) < 0
    if function == "-":
        return ((left ^ right) & (left ^ value)) < 0
    return left.cast(pl.Int128) * right.cast(pl.Int128) != value.cast(pl.Int128)


def _time(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Computes timestamps and intervals as microseconds in 64 bits, and intervals of months in 32 bits."""
    left, right = (argument.value.cast(pl.Int64) for argument in arguments)
    value = _OPERATORS[call.function](left, right)
    overflow = bigint_overflow(call.function, left, right, value)
    if call.type.kind == "months":
        overflow = outside(value, INT)
    elif call.type.kind != "interval":
        overflow = overflow | outside_calendar(value, call.type)
    value = value.cast(polars_type(call.type), strict=False)
    return strict(call, arguments, value, (FailureKind.ARITHMETIC_OVERFLOW, overflow))


def narrow(wide: pl.Expr, kind: DataType) -> pl.Expr:
    """Returns a 64-bit value as a smaller integer; NULL if it does not fit (`outside` reports these)."""
    return wide.cast(polars_type(kind), strict=False)


def outside(wide: pl.Expr, kind: DataType) -> pl.Expr:
    """Returns where a value does not fit into an integer type."""
    limit = LIMITS[kind.kind]
    return (wide < -limit) | (wide >= limit)


@compiles("/")
def _divide(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    if call.type.kind == "decimal":
        return decimal_arithmetic(call, arguments)
    return dividing(call, arguments, exact_quotient(arguments[0].value, arguments[1].value, arguments[1].constant))


def exact_quotient(left: pl.Expr, right: pl.Expr, constant: object = None) -> pl.Expr:
    """Returns the correctly rounded quotient of doubles.

    Polars multiplies by the reciprocal if the divisor is one value for the whole column (a literal, but also a column
    that an earlier step filled with a constant). The last digit is then wrong for a third of all numbers. The divisor
    is therefore first spread over a column of zeros, unless its reciprocal is exact.

    `constant`: the divisor if it is known.
    """
    if isinstance(constant, (int, float)) and constant and math.frexp(constant)[0] in (0.5, -0.5):
        return left / right
    zeros = (left * 0.0).fill_nan(0.0)
    return left / (zeros + right)


def dividing(call: Call, arguments: Sequence[Compiled], value: pl.Expr, *own: tuple[FailureKind, pl.Expr]) -> Compiled:
    """Compiles a division. The divisor is evaluated first, as in Spark. Zero fails unless the dividend is NULL."""
    dividend, divisor = arguments
    checks = list(own)
    if not divisor.constant:
        checks.insert(0, (FailureKind.DIVIDE_BY_ZERO, (divisor.value == 0) & dividend.value.is_not_null()))
    return strict(call, [divisor, dividend], value, *checks)


@compiles("%")
def _remainder(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    if call.type.kind == "decimal":
        return decimal_arithmetic(call, arguments)
    left, right = arguments[0].value, arguments[1].value
    if call.type.kind in FRACTIONAL:
        return dividing(call, arguments, float_remainder(left, right).cast(polars_type(call.type)))
    return dividing(call, arguments, integer_remainder(left, right))


def integer_remainder(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Returns the remainder with the sign of the dividend; Polars uses the divisor's. NULL for a zero divisor."""
    floored = left % right
    other_side = (floored != 0) & ((left < 0) != (right < 0))
    return pl.when(other_side).then(floored - right).otherwise(floored)


def float_remainder(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Computes C's fmod, which is exact, in a Python loop. Polars computes x - y * floor(x / y), which is not exact."""
    return pl.struct(left.cast(pl.Float64).alias("a"), right.cast(pl.Float64).alias("b")).map_batches(
        _fmod, return_dtype=pl.Float64, is_elementwise=True
    )


def _fmod(pairs: pl.Series) -> pl.Series:
    rows = zip(pairs.struct.field("a"), pairs.struct.field("b"), strict=True)
    found = [None if a is None or b is None else _fmod_one(a, b) for a, b in rows]
    return pl.Series(found, dtype=pl.Float64)


def _fmod_one(dividend: float, divisor: float) -> float:
    if divisor == 0 or math.isinf(dividend) or math.isnan(dividend) or math.isnan(divisor):
        return math.nan
    return math.fmod(dividend, divisor)


@compiles("div")
def _integer_quotient(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    if arguments[0].type.kind == "decimal":
        return decimal_arithmetic(call, arguments)
    left, right = arguments[0].value, arguments[1].value
    floored = left // right
    inexact_negative = (left % right != 0) & ((left < 0) != (right < 0))
    value = floored + inexact_negative.cast(pl.Int64)
    overflow = (left == -(1 << 63)) & (right == -1)
    checks = [] if divides_safely("div", arguments[1].source) else [(FailureKind.ARITHMETIC_OVERFLOW, overflow)]
    return dividing(call, arguments, value, *checks)


@compiles(*_TRIED)
def _try(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Compiles the operator without its own failures, which become NULL. Failures of the operands remain."""
    sign = _TRIED[call.function]
    # A constant remains one, because the treatment of a known zero also applies here.
    plain = [
        replace(one, failures=(), source=ColumnReference("", one.type) if columns_of(one.source) else one.source)
        for one in arguments
    ]
    found = COMPILERS[sign](Call(sign, tuple(one.source for one in plain), call.type), plain)
    value = found.value
    if found.failures:
        lost = pl.any_horizontal([failure.condition.fill_null(False) for failure in found.failures])
        value = pl.when(~lost).then(value)
    if sign in _OPERATORS:
        return strict(call, arguments, value)
    dividend, divisor = arguments  # the dividend is evaluated last, and not if the divisor is 0
    failures = (failure.guarded(divisor.value != 0) for failure in dividend.failures)
    return Compiled(value, call, (*divisor.failures, *failures))


@compiles("negative", "abs")
def _signed(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    operand = arguments[0].value
    if call.function == "abs":
        value = operand.abs()
    else:
        value = 0 - operand if call.type.kind in LIMITS else -operand
    if call.type.kind not in LIMITS:
        return strict(call, arguments, value)
    return strict(call, arguments, value, (FailureKind.ARITHMETIC_OVERFLOW, operand == -LIMITS[call.type.kind]))


_COMPARISONS: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED: dict[str, str] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compared(function: str, left: Compiled, right: Compiled) -> pl.Expr:
    """Compares with a constant on the right: on the left of decimals that are all NULL, Polars returns one row."""
    if columns_of(right.source) and not columns_of(left.source):
        function, left, right = _MIRRORED[function], right, left
    return _COMPARISONS[function](left.value, right.value)


@compiles(*_COMPARISONS)
def _compare(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    left, right = arguments
    return strict(call, arguments, compared(call.function, left, right))


@compiles("<=>")
def _same(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    left, right = arguments if columns_of(arguments[0].source) else reversed(arguments)
    return eager(call, arguments, left.value.eq_missing(right.value))


plain({"not": operator.invert})
_TESTS: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "isnull": pl.Expr.is_null,
    "isnotnull": pl.Expr.is_not_null,
    "isnan": lambda value: value.is_nan().fill_null(False),
}


@compiles(*_TESTS)
def _test(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return eager(call, arguments, _TESTS[call.function](arguments[0].value))


@compiles("nanvl")
def _nan_value(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    value, other = arguments
    chosen = pl.when(value.value.is_nan()).then(other.value).otherwise(value.value)
    failures = (*value.failures, *(failure.guarded(value.value.is_nan()) for failure in other.failures))
    return Compiled(chosen, call, failures)


@compiles("and", "or")
def _logic(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Compiles AND and OR: the right side is not evaluated if the left side decides."""
    left, right = arguments
    decides = call.function == "or"
    value = left.value | right.value if decides else left.value & right.value
    undecided = left.value.ne_missing(decides)
    return Compiled(value, call, (*left.failures, *(failure.guarded(undecided) for failure in right.failures)))


@compiles("case")
def _case(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Compiles CASE (condition, value, ..., default): only the taken branch is evaluated, and no condition after it."""
    conditions, values = arguments[0:-1:2], [*arguments[1::2], arguments[-1]]
    failures: list[FailingRows] = []
    open_yet: pl.Expr | None = None
    value = values[-1].value
    for condition, branch in zip(conditions, values, strict=False):
        here = condition.value.eq_missing(True)
        failures += _guard_all(condition.failures, open_yet)
        failures += _guard_all(branch.failures, here if open_yet is None else open_yet & here)
        open_yet = ~here if open_yet is None else open_yet & ~here
    failures += _guard_all(values[-1].failures, open_yet)
    for condition, branch in reversed(list(zip(conditions, values, strict=False))):
        value = pl.when(condition.value).then(branch.value).otherwise(value)
    return Compiled(value, call, tuple(failures))


def _guard_all(failures: Sequence[FailingRows], guard: pl.Expr | None) -> Sequence[FailingRows]:
    return failures if guard is None else [failure.guarded(guard) for failure in failures]


@compiles("coalesce")
def _coalesce(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    failures: list[FailingRows] = []
    open_yet: pl.Expr | None = None
    for argument in arguments:
        failures += _guard_all(argument.failures, open_yet)
        missing = argument.value.is_null()
        open_yet = missing if open_yet is None else open_yet & missing
    return Compiled(pl.coalesce(*(argument.value for argument in arguments)), call, tuple(failures))


@compiles("in")
def _in(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Compiles IN: compares from the left until one is equal. The result is NULL if none is equal and one was NULL."""
    subject, *choices = arguments
    value = compared("=", subject, choices[0])
    open_yet = subject.value.is_not_null()
    failures = list(subject.failures)
    for index, choice in enumerate(choices):
        failures += _guard_all(choice.failures, open_yet)
        if index:
            value = value | compared("=", subject, choice)
        if any(later.failures for later in choices[index + 1 :]):
            open_yet = open_yet & compared("=", subject, choice).ne_missing(True)
    plain = [choice.constant for choice in choices]
    if len(choices) > 2 and None not in plain and subject.type.kind in ("string", "int", "bigint"):
        value = subject.value.is_in(pl.Series(plain, dtype=polars_type(subject.type)).implode())
    return Compiled(value, call, tuple(failures))
