"""Typing rules of decimal arithmetic and comparison: the decimal types in which operands are combined."""

from __future__ import annotations

from tidegate.datatypes import BIGINT
from tidegate.expressions.decimal_types import decimal_for, derive_result
from tidegate.expressions.expression import Call, Expression, Literal
from tidegate.expressions.functions.core import Argument
from tidegate.expressions.typing_rules import INTEGRAL, literal_as_decimal, with_type


def decimal_operand(argument: Argument, other: Argument) -> Argument:
    """Converts an integer literal next to a decimal to the smallest decimal that holds it, except a tinyint literal."""
    found = argument.expression
    if other.type.kind != "decimal" or argument.type.kind not in INTEGRAL[1:] or not argument.is_literal:
        return argument
    assert isinstance(found, Literal)
    return Argument(literal_as_decimal(found), argument.start)


def decimal_arithmetic(name: str, left: Argument, right: Argument) -> Call:
    """Types `+ - * / % div pmod` of two numbers, of which one is a decimal and none a float or double."""
    operands = (_as_decimal(left, right), _as_decimal(right, left))
    kind = BIGINT if name == "div" else derive_result(name, operands[0].type, operands[1].type)
    return Call(name, operands, kind)


def _as_decimal(argument: Argument, other: Argument) -> Expression:
    argument = decimal_operand(argument, other)
    kind = other.type if argument.type.kind == "void" else argument.type
    return with_type(argument.start, argument.expression, decimal_for(kind))
