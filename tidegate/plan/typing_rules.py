"""Which types meet and how: the coercion rules of Spark SQL in ANSI mode, over types and typed expressions.

Source: Spark's `AnsiTypeCoercion` and `Cast.canAnsiCast`; `tests/operators/expressions/test_types_like_spark.py`
compares every pair with Spark itself. Where Spark would compute with DECIMAL, Tidegate refuses: it has no such type.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from tidegate.datatypes import BIGINT, DOUBLE, INTERVAL, STRING, TIMESTAMP, VOID, DataType
from tidegate.plan.errors import Refusal
from tidegate.plan.expression import Cast, Expression, Literal, cast_can_fail
from tidegate.plan.intervals import MONTHS, date_literal, timestamp_literal
from tidegate.plan.syntax_tree import DECIMAL

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
    if isinstance(expression, Literal) and not attempt:
        folded = _fold(start, expression, target)
        if folded is not None:
            return folded
    return Cast(expression, target, attempt)


def _fold(start: int, literal: Literal, target: DataType) -> Literal | None:
    """A literal of another type, None where only the engine can tell (unusual spellings, floats)."""
    value, kind = literal.value, target.kind
    if literal.type == DECIMAL:
        return Literal(float(Decimal(str(value))), target) if kind == "double" else None
    if literal.type.kind in INTEGRAL and isinstance(value, int):
        if kind in LIMITS and not -LIMITS[kind] <= value < LIMITS[kind]:
            raise Refusal(start, f"{value} does not fit into {target}", "choose a wider type")
        if kind in INTEGRAL:
            return Literal(value, target)
        return Literal(float(value), target) if kind == "double" else None
    if literal.type == STRING:
        return _fold_text(start, str(value), target)
    return None


def _fold_text(start: int, text: str, target: DataType) -> Literal | None:
    if target.kind in INTEGRAL:
        if not re.fullmatch(r"\s*[+-]?[0-9]+\s*", text) or not -LIMITS[target.kind] <= int(text) < LIMITS[target.kind]:
            raise Refusal(start, f"'{text}' is not a {target}", "compare with a value of the same type")
        return Literal(int(text), target)
    if target == DOUBLE and re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", text):
        return Literal(float(text), target)
    found = {"date": date_literal, "timestamp": timestamp_literal}.get(target.kind, lambda _: None)(text)
    return Literal(found, target) if found is not None else None


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
