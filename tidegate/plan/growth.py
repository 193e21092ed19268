"""How large a batch can become on its way through a vertex, as a bound that is linear in what comes in. Pure.

Every value is bounded by itself (`MAX_VALUE_BYTES`, checked record by record), but 5,000 values of 10 MiB in one batch
would still end a slot. So a vertex takes so few rows at a time that, by the bounds below, everything that is made of
them has room in `BATCH_BYTES_MAX`; a single row is always taken. Only text, bytes and what is nested can grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tidegate.expressions.expression import Call, Cast, Column, Expression, Field, Literal
from tidegate.plan.graph import (
    AggregateOperator,
    Columns,
    FilterOperator,
    Operator,
    SelectOperator,
    SinkOperator,
    Vertex,
)

MAX_VALUE_BYTES: Final = 16 << 20
"""Of one result of a function that makes its arguments larger: a record whose result were larger fails."""
BATCH_BYTES_MAX: Final = 64 << 20

_FIXED_BYTES = 16
"""Of a value whose size does not depend on the record, with its share of a batch."""
_TEXT_OF_FIXED_BYTES = 32
_GROWING = frozenset({"string", "binary", "array", "struct"})
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
        """So many times as much; beyond `_ENOUGH` all is the same."""
        factors = {name: min(_ENOUGH, factor * own) for name, own in self.factors.items()}
        return Bound(factors, min(_ENOUGH, factor * self.constant))


class BatchLimits(msgspec.Struct, frozen=True):
    """What a vertex takes at a time; one row in any case."""

    rows: int
    size_bytes: int


Bounds = Mapping[str, Bound]
"""Of the columns of a frame, in terms of the columns that come into the vertex."""


def derive_batch_limits(vertex: Vertex) -> BatchLimits:
    """From all that the vertex makes of a row: the columns of every operator and what is needed to compute them."""
    total = Bound()
    incoming: dict[int, Bounds] = {0: _incoming(vertex.nodes[0].operator)}
    for index, node in enumerate(vertex.nodes):  # children come after their parent
        outgoing, made = _through(node.operator, incoming[index])
        total += made
        for child in node.children:
            incoming[child] = outgoing
    factor = max(total.factors.values(), default=0.0)
    return BatchLimits(
        rows=max(1, int(BATCH_BYTES_MAX / max(1.0, total.constant))),
        size_bytes=max(1, int(BATCH_BYTES_MAX / max(1.0, factor))),
    )


def derive_bound(expression: Expression, columns: Bounds) -> Bound:
    """Everything that is made to compute an expression, the value included."""
    return _made(expression, columns)[1]


def _incoming(head: Operator) -> Bounds:
    columns: Columns = getattr(head, "output", ())
    if isinstance(head, AggregateOperator):
        arguments = [call.argument for _, call in head.aggregates if isinstance(call.argument, Column)]
        columns = (*columns, *((argument.name, argument.type) for argument in arguments))
    return {name: _identity(name, kind.kind) for name, kind in columns}


def _identity(name: str, kind: str) -> Bound:
    return Bound({name: 1.0}, _FIXED_BYTES) if kind in _GROWING else Bound({}, _FIXED_BYTES)


def _through(operator: Operator, columns: Bounds) -> tuple[Bounds, Bound]:
    """The columns behind an operator, and all that it makes."""
    match operator:
        case FilterOperator(predicate=predicate, output=output):
            kept = {name: columns[name] for name, _ in output}
            return kept, derive_bound(predicate, columns) + _sum(kept.values())
        case SelectOperator(columns=selected):
            made = {name: _made(expression, columns) for name, expression in selected}
            return {name: value for name, (value, _) in made.items()}, _sum(whole for _, whole in made.values())
        case AggregateOperator(aggregates=aggregates, keys=keys):
            results = {
                name: columns[call.argument.name]
                if isinstance(call.argument, Column) and call.type.kind in _GROWING
                else Bound({}, _FIXED_BYTES)
                for name, call in aggregates
            }
            outgoing = {key: columns[key] for key in keys} | results
            return outgoing, _sum(outgoing.values())
        case SinkOperator(columns=written, key=key):
            names = [name for name, _ in written] + ([key] if key is not None else [])
            return {}, _sum(columns[name] + Bound({}, len(name)) for name in names)
    return columns, _sum(columns.values())


def _sum(bounds: Iterable[Bound]) -> Bound:
    total = Bound()
    for bound in bounds:
        total += bound
    return total


def _made(expression: Expression, columns: Bounds) -> tuple[Bound, Bound]:
    """The value's bound, and that of all that is made for it."""
    match expression:
        case Literal(value=literal):
            bound = Bound({}, _FIXED_BYTES + (len(literal.encode()) if isinstance(literal, str) else 0))
            return bound, bound
        case Column(name=name):
            return columns[name], columns[name]
        case Field(base=base):
            return _made(base, columns)
        case Cast(operand=operand, type=kind):
            before, whole = _made(operand, columns)
            after = _cast(before, operand.type.kind, kind.kind)
            return after, whole + after
        case Call(arguments=arguments):
            parts = [_made(argument, columns) for argument in arguments]
            result = _value_of(expression, [bound for bound, _ in parts])
            return result, _sum([result, *(whole for _, whole in parts)])
    raise TypeError(f"{type(expression).__name__} is no expression")


def _cast(operand: Bound, before: str, after: str) -> Bound:
    if after not in _GROWING:
        return Bound({}, _FIXED_BYTES)
    if before not in _GROWING:
        return Bound({}, _TEXT_OF_FIXED_BYTES)
    return operand.times(8) if after == "array" else operand  # an array of tinyints, say, as one of bigints


def _value_of(call: Call, arguments: list[Bound]) -> Bound:
    if call.type.kind not in _GROWING:
        return Bound({}, _FIXED_BYTES)
    everything = _sum(arguments)
    match call.function:
        case "repeat":
            return arguments[0].times(max(1, _number(call, 1)))
        case "lpad" | "rpad":
            return Bound({}, _FIXED_BYTES + 4.0 * max(0, _number(call, 1)))
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
