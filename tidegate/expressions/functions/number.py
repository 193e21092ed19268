"""Typing rules of functions of numbers."""

from __future__ import annotations

from tidegate.datatypes import BIGINT, DOUBLE, INT, MAX_PRECISION
from tidegate.expressions.decimal_types import derive_rounded, derive_whole
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression, Literal, text_of
from tidegate.expressions.functions.core import Argument, Function, Site, check_count, decimal_arithmetic, simple, unify
from tidegate.expressions.typing_rules import INTEGRAL, common_type, with_type

MAX_DIGITS = 15  # ten to this power and everything it scales is exact in a double


def _round(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, 2)
    value = site.number(arguments[0])
    digits = site.fixed_integer(arguments[1]) if len(arguments) == 2 else Literal(0, INT)
    number = int(digits.value or 0) if isinstance(digits, Literal) else 0
    if value.type.kind == "decimal" and abs(number) <= MAX_PRECISION:
        return Call(site.function, (value, digits), derive_rounded(value.type, number))
    if number < 0 and value.type.kind in INTEGRAL:
        raise ExpressionRefusal(
            arguments[1].start,
            "an integer cannot be rounded to tens",
            f"write `cast(round(cast({text_of(value)} as double), {number}) as {value.type})`",
        )
    if abs(number) > MAX_DIGITS:
        raise ExpressionRefusal(arguments[1].start, f"rounding supports at most {MAX_DIGITS} digits", "use fewer")
    return Call(site.function, (value, digits), value.type)


def _to_bigint(name: str) -> Function:
    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 1, 1)
        value = site.number(arguments[0])
        return Call(name, (value,), derive_whole(value.type) if value.type.kind == "decimal" else BIGINT)

    aliases = ("ceiling",) if name == "ceil" else ()
    direction = "above" if name == "floor" else "below"
    return Function(
        name,
        "numbers",
        f"{name}(a)",
        f"The nearest integer that is not {direction} a, as a bigint or a decimal.",
        resolve,
        aliases,
    )


def _extreme(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, None)
    operands = unify(site, arguments)
    if operands[0].type.kind in ("array", "struct", "map"):
        raise site.refuse(arguments[0], "values that have an order")
    found = operands[0]
    for operand in operands[1:]:  # in pairs: the compiler needs each operand several times
        found = Call(site.function, (found, operand), operand.type)
    return found


def _abs(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, 1)
    value = site.number(arguments[0])
    return Call("abs", (value,), value.type)


def _positive_remainder(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    for argument in arguments:
        if argument.type.kind not in (*INTEGRAL, "decimal"):
            raise site.refuse(argument, "integers or decimals")
    if "decimal" in (arguments[0].type.kind, arguments[1].type.kind):
        return decimal_arithmetic("pmod", *arguments)
    kind = common_type(arguments[0].type, arguments[1].type) or BIGINT
    return Call("pmod", tuple(with_type(one.start, one.expression, kind) for one in arguments), kind)


def _extreme_text_free(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    """Rejects text combined with other types, as Spark does here, unlike in COALESCE."""
    kinds = {argument.type.kind for argument in arguments}
    if "string" in kinds and kinds - {"string", "void"}:
        raise ExpressionRefusal(
            site.start, f"`{site.function}` does not combine strings with other types", "cast one of them"
        )
    return _extreme(site, arguments)


FUNCTIONS = (
    Function("abs", "numbers", "abs(a)", "The absolute value.", _abs),
    Function(
        "round",
        "numbers",
        "round(a [, digits])",
        "Rounded half away from zero, by the decimal text of the number.",
        _round,
    ),
    Function(
        "bround",
        "numbers",
        "bround(a [, digits])",
        "Rounded half to even, by the decimal text of the number.",
        _round,
    ),
    _to_bigint("floor"),
    _to_bigint("ceil"),
    Function("sqrt", "numbers", "sqrt(a)", "Square root; NaN for negative numbers.", simple("sqrt", "double", DOUBLE)),
    Function("cbrt", "numbers", "cbrt(a)", "Cube root.", simple("cbrt", "double", DOUBLE)),
    Function(
        "power",
        "numbers",
        "power(a, b)",
        "a to the power of b, a double.",
        simple("power", "double double", DOUBLE),
        ("pow",),
    ),
    Function("exp", "numbers", "exp(a)", "e to the power of a.", simple("exp", "double", DOUBLE)),
    Function(
        "ln",
        "numbers",
        "ln(a), log(a)",
        "Natural logarithm; NULL for zero and negative numbers.",
        simple("ln", "double", DOUBLE),
        ("log",),
    ),
    Function(
        "log10",
        "numbers",
        "log10(a)",
        "Logarithm to base 10; NULL for zero and negative numbers.",
        simple("log10", "double", DOUBLE),
    ),
    Function(
        "log2",
        "numbers",
        "log2(a)",
        "Logarithm to base 2; NULL for zero and negative numbers.",
        simple("log2", "double", DOUBLE),
    ),
    *(
        Function(name, "numbers", f"{name}(a)", text, simple(name, "double", DOUBLE))
        for name, text in {
            "sin": "Sine of radians.",
            "cos": "Cosine of radians.",
            "tan": "Tangent of radians.",
            "asin": "The angle with this sine, in radians; NaN outside -1 to 1.",
            "acos": "The angle with this cosine, in radians; NaN outside -1 to 1.",
            "atan": "The angle with this tangent, in radians.",
            "radians": "Degrees as radians.",
            "degrees": "Radians as degrees.",
        }.items()
    ),
    Function(
        "atan2",
        "numbers",
        "atan2(y, x)",
        "The angle of the point (x, y), in radians, from -pi to pi.",
        simple("atan2", "double double", DOUBLE),
    ),
    Function(
        "sign", "numbers", "sign(a)", "The sign: -1, 0 or 1 as a double.", simple("sign", "double", DOUBLE), ("signum",)
    ),
    Function(
        "pmod",
        "numbers",
        "pmod(a, b)",
        "Remainder of integers or decimals that is never negative for positive b; zero b fails the record.",
        _positive_remainder,
    ),
    Function(
        "greatest",
        "numbers",
        "greatest(a, b, ...)",
        "The greatest value that is not NULL. NaN is greater than any number.",
        _extreme_text_free,
    ),
    Function("least", "numbers", "least(a, b, ...)", "The smallest value that is not NULL.", _extreme_text_free),
)
