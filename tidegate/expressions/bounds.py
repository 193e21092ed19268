"""How large what is computed can become, as a bound that is linear in what comes in. Pure.

Every value is bounded by itself (`MAX_VALUE_BYTES`, checked record by record), but 5,000 values of 10 MiB in one batch
would still end a slot. `plan/growth.py` sizes batches by these bounds. Only text, bytes and what is nested can grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tidegate.datatypes import DataType
from tidegate.expressions.expression import Call, Cast, Column, Expression, Field, Literal

MAX_VALUE_BYTES: Final = 16 << 20
"""Of one result of a function that makes its arguments larger: a record whose result were larger fails."""

BATCH_BYTES_MAX: Final = 64 << 20
"""Of all that a vertex makes of one batch."""

FIXED_BYTES: Final = 16
"""Of a value whose size does not depend on the record, with its share of a batch."""
GROWING: Final = frozenset({"string", "binary", "array", "struct"})
"""Kinds of values whose size depends on the record."""
_TEXT_OF_FIXED_BYTES = 32
_FACTORS = {"hex": 2.0, "base64": 1.5, "upper": 3.0, "lower": 3.0, "initcap": 3.0, "reverse": 18.0, "split": 18.0}
"""Result for each byte of the argument; `reverse` and `split` make a view of 16 bytes for each character at worst."""
_ENOUGH = 1e18


class Bound(msgspec.Struct, frozen=True):
    """At most `factors[column]` bytes for each byte of a column, and `constant` bytes for each row."""

    factors: Mapping[str, float] = {}
    constant: float = 0.0

    def __add__(self, other: Bound) -> Bound:
        names = {*self.factors, *other.factors}
        factors = {name: self.factors.get(name, 0.0) + other.factors.get(name, 0.0) for name in names}
        return Bound(factors, self.constant + other.constant)

    def times(self, factor: float) -> Bound:
        """The bound, multiplied by `factor`; beyond `_ENOUGH` all is the same."""
        factors = {name: min(_ENOUGH, factor * own) for name, own in self.factors.items()}
        return Bound(factors, min(_ENOUGH, factor * self.constant))


Bounds = Mapping[str, Bound]
"""Of the columns of a frame, in terms of the columns that come into the vertex."""


def derive_bound(expression: Expression, columns: Bounds) -> Bound:
    """Everything that is made to compute an expression, the value included."""
    return derive_value_bound(expression, columns)[1]


def derive_identity(name: str, kind: DataType) -> Bound:
    """A column as it comes in."""
    return Bound({name: 1.0}, FIXED_BYTES) if kind.kind in GROWING else Bound({}, FIXED_BYTES)


def derive_identities(columns: Iterable[tuple[str, DataType]]) -> Bounds:
    """Columns as they come in."""
    return {name: derive_identity(name, kind) for name, kind in columns}


def sum_bounds(bounds: Iterable[Bound]) -> Bound:
    """All of them together."""
    total = Bound()
    for bound in bounds:
        total += bound
    return total


def derive_value_bound(expression: Expression, columns: Bounds) -> tuple[Bound, Bound]:
    """The value's bound, and that of all that is made for it."""
    match expression:
        case Literal(value=literal):
            bound = Bound({}, FIXED_BYTES + (len(literal.encode()) if isinstance(literal, str) else 0))
            return bound, bound
        case Column(name=name):
            return columns[name], columns[name]
        case Field(base=base):
            return derive_value_bound(base, columns)
        case Cast(operand=operand, type=kind):
            before, whole = derive_value_bound(operand, columns)
            after = _cast(before, operand.type.kind, kind.kind)
            return after, whole + after
        case Call(arguments=arguments):
            parts = [derive_value_bound(argument, columns) for argument in arguments]
            result = _value_of(expression, [bound for bound, _ in parts])
            return result, sum_bounds([result, *(whole for _, whole in parts)])
    raise TypeError(f"{type(expression).__name__} is not an expression")


def _cast(operand: Bound, before: str, after: str) -> Bound:
    if after not in GROWING:
        return Bound({}, FIXED_BYTES)
    if before not in GROWING:
        return Bound({}, _TEXT_OF_FIXED_BYTES)
    return operand.times(8) if after == "array" else operand  # an array of tinyints, say, as one of bigints


def _value_of(call: Call, arguments: list[Bound]) -> Bound:
    if call.type.kind not in GROWING:
        return Bound({}, FIXED_BYTES)
    everything = sum_bounds(arguments)
    match call.function:
        case "repeat":
            return arguments[0].times(max(1, _number(call, 1)))
        case "lpad" | "rpad":
            return Bound({}, FIXED_BYTES + 4.0 * max(0, _number(call, 1)))
        case "concat_ws":
            return everything + Bound({}, len(arguments) * _length(call, 0))
        case "array_join":
            return arguments[0].times(1 + _length(call, 1))
        case "replace":
            return arguments[0].times(1 + _length(call, 2) / max(1, _length(call, 1)))
        case "regexp_replace":
            return arguments[0].times(1 + _length(call, 2))  # a group is at most as long as what it stands in
    return everything.times(_FACTORS.get(call.function, 1.0))


def _number(call: Call, index: int) -> int:
    argument = call.arguments[index]
    return int(argument.value or 0) if isinstance(argument, Literal) else 0


def _length(call: Call, index: int) -> int:
    argument = call.arguments[index]
    return len(str(argument.value).encode()) if isinstance(argument, Literal) else 0
