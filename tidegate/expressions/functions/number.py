"""Typing rules of functions of numbers."""

from __future__ import annotations

from tidegate.datatypes import BIGINT, DOUBLE, MAX_PRECISION
from tidegate.expressions.decimal_types import derive_rounded, derive_whole
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression, text_of
from tidegate.expressions.functions.core import Argument, Site, decimal_arithmetic, resolves, simple, unify
from tidegate.expressions.typing_rules import INTEGRAL, common_type, with_type

MAX_DIGITS = 15  # ten to this power and everything it scales is exact in a double

simple("double", DOUBLE, "sqrt", "cbrt", "exp", "ln", "log10", "log2", "sign")
simple("double", DOUBLE, "sin", "cos", "tan", "asin", "acos", "atan", "radians", "degrees")
simple("double double", DOUBLE, "power", "atan2")


@resolves("abs", takes=1)
def _abs(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    value = site.number(arguments[0])
    return site.call(value.type, value)


@resolves("round", "bround", takes=(1, 2))
def _round(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    value = site.number(arguments[0])
    digits = site.fixed_integer(arguments[1]) if len(arguments) == 2 else 0
    if value.type.kind == "decimal" and abs(digits) <= MAX_PRECISION:
        return site.call(derive_rounded(value.type, digits), value, digits)
    if digits < 0 and value.type.kind in INTEGRAL:
        raise ExpressionRefusal(
            arguments[1].start,
            "an integer cannot be rounded to tens",
            f"write `cast(round(cast({text_of(value)} as double), {digits}) as {value.type})`",
        )
    if abs(digits) > MAX_DIGITS:
        raise ExpressionRefusal(arguments[1].start, f"rounding supports at most {MAX_DIGITS} digits", "use fewer")
    return site.call(value.type, value, digits)


@resolves("floor", "ceil", takes=1)
def _to_bigint(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    value = site.number(arguments[0])
    return site.call(derive_whole(value.type) if value.type.kind == "decimal" else BIGINT, value)


@resolves("pmod", takes=2)
def _positive_remainder(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    for argument in arguments:
        if argument.type.kind not in (*INTEGRAL, "decimal"):
            raise site.refuse(argument, "integers or decimals")
    if "decimal" in (arguments[0].type.kind, arguments[1].type.kind):
        return decimal_arithmetic("pmod", *arguments)
    kind = common_type(arguments[0].type, arguments[1].type) or BIGINT
    return site.call(kind, *(with_type(one.start, one.expression, kind) for one in arguments))


@resolves("greatest", "least", takes=(2, None))
def _extreme(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    """Rejects text combined with other types, as Spark does here, unlike in COALESCE."""
    kinds = {argument.type.kind for argument in arguments}
    if "string" in kinds and kinds - {"string", "void"}:
        raise ExpressionRefusal(
            site.start, f"`{site.function}` does not combine strings with other types", "cast one of them"
        )
    found, *others = unify(site, arguments)
    if found.type.kind in ("array", "struct", "map"):
        raise site.refuse(arguments[0], "values that have an order")
    for operand in others:  # in pairs: the compiler needs each operand several times
        found = Call(site.name, (found, operand), operand.type)
    return found
