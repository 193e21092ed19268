"""Which types meet and how: the coercion rules of Spark SQL in ANSI mode, over types and typed expressions.

Source: Spark's `AnsiTypeCoercion` and `Cast.canAnsiCast`; `tests/expressions/compiled/test_types_like_spark.py`
compares every pair with Spark itself. Where Spark would compute with DECIMAL, Tidegate refuses: it has no such type.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction

from tidegate.datatypes import BIGINT, DOUBLE, INTERVAL, STRING, TIMESTAMP, VOID, DataType
from tidegate.expressions.errors import Refusal
from tidegate.expressions.expression import Cast, Expression, Literal, cast_can_fail
from tidegate.expressions.intervals import MONTHS
from tidegate.expressions.literals import GREATEST
from tidegate.expressions.syntax_tree import DECIMAL
from tidegate.expressions.text_values import (
    boolean_of_text,
    date_of_text,
    double_of_text,
    integer_of_text,
    timestamp_of_text,
)

INTEGRAL = ("tinyint", "smallint", "int", "bigint")
FRACTIONAL = ("float", "double")
NUMERIC = (*INTEGRAL, *FRACTIONAL)
LIMITS = {kind: 1 << (8 * size - 1) for kind, size in zip(INTEGRAL, (1, 2, 4, 8), strict=True)}
_FROM_STRING = ("boolean", "binary", "date", "timestamp")


def common_type(left: DataType, right: DataType) -> DataType | None:
    """The type both become in a comparison, CASE, COALESCE or IN; None when Spark refuses the pair."""
    if left == right or right == VOID:
        return left
    if left == VOID:
        return right
    if left.kind in NUMERIC and right.kind in NUMERIC:
        return _common_number(left, right)
    kinds = {left.kind, right.kind}
    if "string" in kinds:
        return _common_with_string(left if right == STRING else right)
    if kinds == {"date", "timestamp"}:
        return TIMESTAMP
    if "decimal" in kinds and kinds & set(FRACTIONAL):
        return DOUBLE
    if kinds == {"array"} and left.element is not None and right.element is not None:
        element = common_type(left.element, right.element)
        return element and DataType("array", element=element)
    return None


def _common_number(left: DataType, right: DataType) -> DataType:
    fractions = {left.kind, right.kind} & set(FRACTIONAL)
    if fractions:
        return DOUBLE  # float with an integer becomes double too; float with float never comes here
    return left if NUMERIC.index(left.kind) >= NUMERIC.index(right.kind) else right


def _common_with_string(other: DataType) -> DataType | None:
    if other.kind in INTEGRAL:
        return BIGINT
    if other.kind in (*FRACTIONAL, "decimal"):
        return DOUBLE
    return other if other.kind in _FROM_STRING else None


def can_cast(source: DataType, target: DataType) -> bool:
    """Whether `CAST` accepts the pair (Spark's ANSI matrix without DECIMAL, intervals, text of
    arrays, and arrays with elements that could fail).
    """
    before, after = source.kind, target.kind
    if source == target or before == "void":
        return True
    if before == "array" and source.element is not None and target.element is not None:
        return can_cast(source.element, target.element) and not cast_can_fail(source.element, target.element)
    if "struct" in (before, after) or "array" in (before, after):
        return False
    if before == "string":
        return after in (*NUMERIC, *_FROM_STRING)
    allowed = {
        "boolean": (*NUMERIC, "string"),
        "binary": ("string",),
        "date": ("string", "timestamp"),
        "timestamp": (*NUMERIC, "string", "date"),
        "decimal": FRACTIONAL,
    }
    if before in NUMERIC:
        return after in (*NUMERIC, "boolean", "string", "timestamp")
    return after in allowed.get(before, ())


def decimal_refusal(start: int, literal: Expression) -> Refusal:
    """What is said about a decimal literal that nothing turns into a double."""
    text = literal.value if isinstance(literal, Literal) else "it"
    return Refusal(
        start, f"{text} is a DECIMAL in Spark SQL, a type that Tidegate does not have", f"write {text}D for a double"
    )


def with_type(start: int, expression: Expression, target: DataType, *, attempt: bool = False) -> Expression:
    """The expression as `target`, by a cast when needed; literals are converted here and now.

    :raises Refusal: the types cannot be cast, or the literal has no value of that type.
    """
    source = expression.type
    if source == target:
        return expression
    if isinstance(expression, Literal) and expression.value is None:
        return Literal(None, target)
    if source == DECIMAL and target.kind not in FRACTIONAL:
        raise decimal_refusal(start, expression)
    if not can_cast(source, target):
        raise Refusal(start, f"{source} cannot be cast to {target}", "choose another type or another function")
    if isinstance(expression, Literal) and (source == DECIMAL or not attempt):
        folded = _fold(start, expression, target)
        if folded is not None:
            return folded
    return Cast(expression, target, attempt)


def _fold(start: int, literal: Literal, target: DataType) -> Literal | None:
    """A literal of another type, None where it is left to the engine.

    :raises Refusal: the literal has no value of that type, so that every record would fail.
    """
    value, kind = literal.value, target.kind
    if literal.type == DECIMAL:
        number = Decimal(str(value))
        if abs(number) > GREATEST[kind]:
            raise Refusal(start, f"{value} does not fit into {target}", "choose a wider type")
        return Literal(float(number) if kind == "double" else _nearest_float(number), target)
    if literal.type.kind in INTEGRAL and isinstance(value, int):
        if kind in LIMITS and not -LIMITS[kind] <= value < LIMITS[kind]:
            raise Refusal(start, f"{value} does not fit into {target}", "choose a wider type")
        if kind in INTEGRAL:
            return Literal(value, target)
        return Literal(float(value), target) if kind == "double" else None
    if literal.type == STRING and kind in _OF_TEXT:
        found = _OF_TEXT[kind](str(value))
        if found is None or (kind in LIMITS and not -LIMITS[kind] <= int(found) < LIMITS[kind]):
            raise Refusal(start, f"'{value}' is not a {target}", "correct the text, or use a value of the same type")
        # A float is rounded by the engine; NaN and the infinities do not survive the way to the slots as JSON.
        return None if kind == "float" or not math.isfinite(found) else Literal(found, target)
    return None


_OF_TEXT: Mapping[str, Callable[[str], bool | float | None]] = {
    **dict.fromkeys(INTEGRAL, integer_of_text),
    **dict.fromkeys(FRACTIONAL, double_of_text),
    "boolean": boolean_of_text,
    "date": date_of_text,
    "timestamp": timestamp_of_text,
}


def _nearest_float(number: Decimal) -> float:
    """The 32-bit float nearest to a decimal, of two as near the even one (a way over 64 bits would round twice)."""
    (bits,) = struct.unpack("<i", struct.pack("<f", abs(float(number))))
    near = [struct.unpack("<f", struct.pack("<i", bits + step))[0] for step in (-1, 0, 1) if bits + step >= 0]
    exact = abs(Fraction(number))
    found: float = min(near, key=lambda one: (abs(Fraction(one) - exact), struct.pack("<f", one)[0] & 1))
    return -found if number < 0 else found


def rounded_decimal(literal: Literal, *, up: bool) -> int:
    """A decimal literal as the next integer, for comparison with an integer column."""
    value = Decimal(str(literal.value))
    return math.ceil(value) if up else math.floor(value)


def derive_output_type(start: int, expression: Expression) -> Expression:
    """Check that the result of a whole expression can be a column.

    :raises Refusal: it is a decimal literal, a bare NULL or an interval.
    """
    if expression.type == DECIMAL:
        raise decimal_refusal(start, expression)
    if expression.type == VOID:
        raise Refusal(start, "a bare NULL has no type", "cast it: cast(null as string)")
    if expression.type in (INTERVAL, MONTHS):
        raise Refusal(start, "an interval cannot be a column", "use unix_micros(b) - unix_micros(a), or compare it")
    return expression
