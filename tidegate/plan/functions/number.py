"""Functions of numbers: how they are typed."""

from __future__ import annotations

from tidegate.plan.expression import Call, Expression, Literal
from tidegate.datatypes import BIGINT, DOUBLE, INT
from tidegate.plan.functions.core import Argument, Function, Site, check_count, simple, unify


def _round(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, 2)
    value = site.number(arguments[0])
    digits = site.fixed_integer(arguments[1]) if len(arguments) == 2 else Literal(0, INT)
    return Call(site.function, (value, digits), value.type)


def _to_bigint(name: str) -> Function:
    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 1, 1)
        return Call(name, (site.number(arguments[0]),), BIGINT)

    aliases = ("ceiling",) if name == "ceil" else ()
    direction = "below" if name == "floor" else "above"
    return Function(name, "numbers", f"{name}(a)", f"The next integer {direction} or equal, a bigint.", resolve, aliases)


def _extreme(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, None)
    operands = unify(site, arguments)
    if operands[0].type.kind in ("array", "struct"):
        raise site.refuse(arguments[0], "values that have an order")
    return Call(site.function, operands, operands[0].type)


def _abs(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, 1)
    value = site.number(arguments[0])
    return Call("abs", (value,), value.type)


FUNCTIONS = (
    Function("abs", "numbers", "abs(a)", "Without the sign.", _abs),
    Function("round", "numbers", "round(a [, digits])", "Rounded half away from zero, by the decimal text of the number.", _round),
    _to_bigint("floor"),
    _to_bigint("ceil"),
    Function("sqrt", "numbers", "sqrt(a)", "Square root; NaN for negative numbers.", simple("sqrt", "double", DOUBLE)),
    Function("greatest", "numbers", "greatest(a, b, ...)", "The greatest that is not NULL; NaN is the greatest number.", _extreme),
    Function("least", "numbers", "least(a, b, ...)", "The least that is not NULL.", _extreme),
)  # fmt: skip
