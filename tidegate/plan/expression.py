"""The typed form of an expression: what validation produces, what travels to the slots, what is compiled there.

Plain values without Polars or sqlglot. `parse.py` makes them from text; `tidegate.operators.expressions` compiles
them to Polars.
"""

from __future__ import annotations

import msgspec

from tidegate.datatypes import DataType


class Literal(msgspec.Struct, frozen=True, tag_field="node", tag="literal"):
    """A constant. Timestamps are microseconds since 1970 UTC, dates days since 1970, intervals microseconds."""

    value: bool | int | float | str | None
    type: DataType


class Column(msgspec.Struct, frozen=True, tag_field="node", tag="column"):
    """A column of the input."""

    name: str
    type: DataType


class Field(msgspec.Struct, frozen=True, tag_field="node", tag="field"):
    """A field of a struct: `base.name`."""

    base: Expression
    name: str
    type: DataType


class Call(msgspec.Struct, frozen=True, tag_field="node", tag="call"):
    """A function or operator by its Spark name in lower case (`+`, `and`, `upper`, `case` ...).

    `case` has the arguments condition, value, condition, value ... [, default].
    """

    function: str
    arguments: tuple[Expression, ...]
    type: DataType


class Cast(msgspec.Struct, frozen=True, tag_field="node", tag="cast"):
    """`CAST` (a failing value fails its record, ANSI) or `TRY_CAST` (`attempt`: a failing value becomes NULL)."""

    operand: Expression
    type: DataType
    attempt: bool = False


Expression = Literal | Column | Field | Call | Cast


class AggregateCall(msgspec.Struct, frozen=True):
    """One aggregate function over a group: `count sum min max avg first last`; `argument` is None for `count(*)`."""

    function: str
    argument: Expression | None
    type: DataType


def columns_of(expression: Expression | None) -> frozenset[str]:
    """The input columns that an expression reads."""
    match expression:
        case Column(name=name):
            return frozenset([name])
        case Field(base=base):
            return columns_of(base)
        case Call(arguments=arguments):
            return frozenset().union(*map(columns_of, arguments))
        case Cast(operand=operand):
            return columns_of(operand)
    return frozenset()
