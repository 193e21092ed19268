"""The coercion rules of Spark SQL in ANSI mode: which types can be combined, and how, over types and typed expressions.

Source: Spark's `AnsiTypeCoercion` and `Cast.canAnsiCast`. `tests/expressions/compiled/test_types_like_spark.py`
compares every pair with Spark itself. `decimal_types.py` has the rules between decimals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial

from tidegate.datatypes import BIGINT, DOUBLE, INTERVAL, INTERVALS, STRING, TIMESTAMP, TIMESTAMP_NTZ, VOID, DataType
from tidegate.expressions.decimal_types import decimal_for, decimal_of_literal, fitted, wider_decimal
from tidegate.expressions.errors import ExpressionRefusal, with_article
from tidegate.expressions.expression import Call, Cast, Expression, Literal, argument_text, cast_can_fail, text_of
from tidegate.expressions.intervals import DAYS
from tidegate.expressions.text_values import (
    boolean_of_text,
    date_of_text,
    decimal_of_text,
    double_of_text,
    integer_of_text,
    nearest_float,
    timestamp_of_text,
)

INTEGRAL = ("tinyint", "smallint", "int", "bigint")
FRACTIONAL = ("float", "double")
NUMERIC = (*INTEGRAL, *FRACTIONAL)
"""All except decimals, which have many types."""
LIMITS = {kind: 1 << (8 * size - 1) for kind, size in zip(INTEGRAL, (1, 2, 4, 8), strict=True)}
_FROM_STRING = ("boolean", "binary", "date", "timestamp", "timestamp_ntz")
_MOMENTS = ("date", "timestamp_ntz", "timestamp")
"""In the order in which they are coerced to each other."""


def common_type(left: DataType, right: DataType) -> DataType | None:
    """Returns the type that both become in a comparison, CASE, COALESCE or IN; None if Spark rejects the pair."""
    if left == right or right == VOID:
        return left
    if left == VOID:
        return right
    if left.kind in NUMERIC and right.kind in NUMERIC:
        return _common_number(left, right)
    kinds = {left.kind, right.kind}
    if kinds == {"interval"}:
        return INTERVAL
    if "string" in kinds:
        return _common_with_string(left if right == STRING else right)
    if kinds <= set(_MOMENTS):
        return TIMESTAMP if "timestamp" in kinds else TIMESTAMP_NTZ
    if "decimal" in kinds:
        return _common_with_decimal(left, right)
    if kinds == {"array"} and left.element is not None and right.element is not None:
        element = common_type(left.element, right.element)
        return element and DataType("array", element=element)
    return None


def _common_number(left: DataType, right: DataType) -> DataType:
    fractions = {left.kind, right.kind} & set(FRACTIONAL)
    if fractions:
        return DOUBLE  # float with an integer also becomes double; float with float never gets here
    return left if NUMERIC.index(left.kind) >= NUMERIC.index(right.kind) else right


def _common_with_decimal(left: DataType, right: DataType) -> DataType | None:
    kinds = {left.kind, right.kind}
    if kinds & set(FRACTIONAL):
        return DOUBLE
    if kinds <= {*INTEGRAL, "decimal"}:
        return wider_decimal(decimal_for(left), decimal_for(right))
    return None


def _common_with_string(other: DataType) -> DataType | None:
    if other.kind in INTEGRAL:
        return BIGINT
    if other.kind in (*FRACTIONAL, "decimal"):
        return DOUBLE
    return other if other.kind in _FROM_STRING else None


def can_cast(source: DataType, target: DataType) -> bool:
    """Returns whether `CAST` accepts the pair. This is Spark's ANSI matrix without intervals, casts of structs and
    maps, arrays as text, and arrays with elements that could fail.
    """
    before, after = source.kind, target.kind
    if source == target or before == "void":
        return True
    if before == "array" and source.element is not None and target.element is not None:
        return can_cast(source.element, target.element) and not cast_can_fail(source.element, target.element)
    return after in _CASTS.get(before, ())


_NUMBERS = (*NUMERIC, "decimal")
_CASTS: Mapping[str, tuple[str, ...]] = {
    "string": (*_NUMBERS, *_FROM_STRING),
    "boolean": (*_NUMBERS, "string"),
    "binary": ("string",),
    "date": ("string", "timestamp", "timestamp_ntz"),
    "timestamp": (*_NUMBERS, "string", "date", "timestamp_ntz"),
    "timestamp_ntz": ("string", "date", "timestamp"),
    **dict.fromkeys(_NUMBERS, (*_NUMBERS, "boolean", "string", "timestamp")),
}


def with_type(start: int, expression: Expression, target: DataType, *, attempt: bool = False) -> Expression:
    """Returns the expression as `target`, with a cast if necessary. Literals are converted immediately.

    Raises ExpressionRefusal if the types cannot be cast, or the literal has no value of that type.
    """
    source = expression.type
    if source == target:
        return expression
    if isinstance(expression, Literal) and (expression.value is None or source.kind == target.kind == "interval"):
        return Literal(expression.value, target)
    if source.kind == target.kind == "interval":
        return expression
    if not can_cast(source, target):
        raise ExpressionRefusal(
            start, f"{source} cannot be cast to {target}", "choose another type or another function"
        )
    if isinstance(expression, Literal) and (not attempt or (source.kind == "decimal" and target.kind in FRACTIONAL)):
        folded = _fold(start, expression, target)
        if folded is not None:
            return folded
    return Cast(expression, target, attempt)


def derive_cast_remedy(expression: Expression, target: DataType | None) -> str:
    """Returns the remedy: a cast to the other type if possible."""
    if target is not None and can_cast(expression.type, target):
        return f"write `cast({text_of(expression)} as {target})`"
    return "use a value of another type"


def derive_condition_remedy(expression: Expression) -> str:
    """Returns the remedy for a value that is used as a condition but is not boolean."""
    return f"compare it with something, for instance `{text_of(expression)} is not null`"


def _fold(start: int, literal: Literal, target: DataType) -> Literal | None:
    """Returns the literal in another type; None if the engine has to convert it.

    Raises ExpressionRefusal if the literal has no value of that type, so that every record would fail.
    """
    value, kind = literal.value, target.kind
    if kind == "decimal":
        return _decimal_literal(start, literal, target)
    if literal.type.kind == "decimal" and kind in FRACTIONAL:
        number = Decimal(str(value))
        return Literal(float(number) if kind == "double" else nearest_float(number), target)
    if literal.type.kind in INTEGRAL and isinstance(value, int):
        if kind in LIMITS and not -LIMITS[kind] <= value < LIMITS[kind]:
            raise ExpressionRefusal(start, f"{value} does not fit into {target}", "choose a wider type")
        if kind in INTEGRAL:
            return Literal(value, target)
        return Literal(float(value), target) if kind == "double" else None
    if literal.type == STRING and kind in _OF_TEXT:
        found = _OF_TEXT[kind](str(value))
        if found is None or (kind in LIMITS and not -LIMITS[kind] <= int(found) < LIMITS[kind]):
            raise ExpressionRefusal(
                start, f"'{value}' is not {with_article(target)}", "correct the text, or use a value of the same type"
            )
        # The engine rounds a float. NaN and the infinities cannot be sent to the slots as JSON.
        return None if kind == "float" or not math.isfinite(found) else Literal(found, target)
    return None


def _decimal_literal(start: int, literal: Literal, target: DataType) -> Literal | None:
    source, value = literal.type, literal.value
    if source == STRING:
        number = decimal_of_text(str(value))
        if number is None:
            raise ExpressionRefusal(
                start, f"'{value}' is not {with_article(target)}", "correct the text, or use a value of the same type"
            )
    elif source.kind in (*INTEGRAL, "decimal"):
        number = Decimal(str(value))
    else:
        return None
    found = fitted(number, target)
    if found is None:
        raise ExpressionRefusal(start, f"{value} does not fit into {target}", "choose a wider type")
    return Literal(format(found, "f"), target)


_OF_TEXT: Mapping[str, Callable[[str], bool | float | None]] = {
    **dict.fromkeys(INTEGRAL, integer_of_text),
    **dict.fromkeys(FRACTIONAL, double_of_text),
    "boolean": boolean_of_text,
    "date": date_of_text,
    "timestamp": timestamp_of_text,
    "timestamp_ntz": partial(timestamp_of_text, zone=False),
}


def literal_as_decimal(literal: Literal) -> Literal:
    """Returns an integer literal in the smallest decimal that holds it, as Spark does next to a decimal."""
    kind = decimal_of_literal(Decimal(str(literal.value)))
    return literal if kind is None else Literal(str(literal.value), kind)


def rounded_decimal(literal: Literal, *, up: bool) -> int:
    """Returns a decimal literal as the next integer, for comparison with an integer column."""
    value = Decimal(str(literal.value))
    return math.ceil(value) if up else math.floor(value)


def derive_output_type(start: int, expression: Expression) -> Expression:
    """Checks that the result of a whole expression can be a column.

    Raises ExpressionRefusal for a bare NULL or an interval.
    """
    if expression.type == VOID:
        raise ExpressionRefusal(start, "a bare NULL has no type", "write `cast(null as string)`")
    if expression.type.kind in INTERVALS:
        raise ExpressionRefusal(start, "an interval cannot be a column", _instead_of_interval(expression))
    return expression


def _instead_of_interval(expression: Expression) -> str:
    """Suggests an expression that can be a column: the days or seconds of a difference, or a later timestamp."""
    match expression:
        case Call(function="-", arguments=(_, start), type=kind) if start.type.kind not in INTERVALS:
            left, right = argument_text(expression, 0), argument_text(expression, 1)
            if kind == DAYS:
                return f"write `datediff({left}, {right})`, or compare it"
            return f"write `timestampdiff(SECOND, {right}, {left})`, or compare it"
    return f"add it to a timestamp: `ts + ({text_of(expression)})`"
