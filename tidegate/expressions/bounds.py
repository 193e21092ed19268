"""Bounds of the size of computed values, as linear functions of the input size. Pure.

Every single value is bounded (`MAX_VALUE_BYTES`, checked for each record), but 5,000 values of 10 MiB in one batch
would still exhaust a slot. `plan/growth.py` sizes batches by these bounds. Only text, bytes and nested values can grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from tidegate.datatypes import NESTED, DataType
from tidegate.expressions.expression import (
    Call,
    Cast,
    ColumnReference,
    Expression,
    FieldAccess,
    Lambda,
    Literal,
    parts_of,
)

MAX_VALUE_BYTES: Final = 16 << 20
"""The maximum size of one result of a function that enlarges its arguments: a record with a larger result fails."""

BATCH_BYTES_MAX: Final = 64 << 20
"""The maximum size of everything that a vertex creates from one batch."""

FIXED_BYTES: Final = 16
"""The size of a value of fixed size, including its share of the batch."""
GROWING: Final = frozenset({"string", "binary", *NESTED})
"""Kinds of values whose size depends on the record."""

ELEMENT_BYTES: Final = 16
"""The size of an array element in addition to its text, as `formats/sizes.py` counts it."""

ELEMENTS_MAX: Final = 10_000
"""The maximum length of an array that is created by count (`array_repeat`, `sequence`) or processed by `aggregate`:
each position of the longest array takes 0.2 ms."""
MULTIPLIED_MAX: Final = 1_000
"""The maximum length of an array for which a lambda function repeats a part of the record in its result."""
_TEXT_OF_FIXED_BYTES = 48
"""A decimal of 38 digits with sign, point and a leading zero has 41 characters."""
_FACTORS = {
    "hex": 2.0,
    "base64": 1.5,
    "upper": 3.0,
    "lower": 3.0,
    "initcap": 3.0,
    "reverse": 18.0,
    "split": 18.0,
    "regexp_extract_all": 18.0,
    "encode": 4.0,
    "decode": 3.0,
    "url_encode": 3.0,
    "url_decode": 3.0,
    "try_url_decode": 3.0,
    "get_json_object": 8.0,
    "json_object_keys": 18.0,
}
"""Result bytes per byte of the argument. `reverse` and `split` create at worst a view of 16 bytes per character."""
_FIELD_TEXT = 48.0
_JSON_FACTOR = 32.0
"""The cost of a two-byte element in JSON, including the Python objects created on the way."""
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
        """Returns the bound multiplied by `factor`. Results are capped at `_ENOUGH`."""
        factors = {name: min(_ENOUGH, factor * own) for name, own in self.factors.items()}
        return Bound(factors, min(_ENOUGH, factor * self.constant))


Bounds = Mapping[str, Bound]
"""Bounds of the columns of a frame, in terms of the columns that enter the vertex."""


def derive_bound(expression: Expression, columns: Bounds) -> Bound:
    """Bounds everything that is created to compute an expression, including the value."""
    return derive_value_bound(expression, columns)[1]


def derive_identity(name: str, kind: DataType) -> Bound:
    """Bounds a column that enters the vertex."""
    return Bound({name: 1.0}, FIXED_BYTES) if kind.kind in GROWING else Bound({}, FIXED_BYTES)


def derive_identities(columns: Iterable[tuple[str, DataType]]) -> Bounds:
    """Bounds columns that enter the vertex."""
    return {name: derive_identity(name, kind) for name, kind in columns}


def sum_bounds(bounds: Iterable[Bound]) -> Bound:
    """Returns the sum of the bounds."""
    total = Bound()
    for bound in bounds:
        total += bound
    return total


def derive_value_bound(expression: Expression, columns: Bounds) -> tuple[Bound, Bound]:
    """Bounds the value, and everything that is created for it."""
    match expression:
        case Literal(value=literal):
            bound = Bound({}, FIXED_BYTES + (len(literal.encode()) if isinstance(literal, str) else 0))
            return bound, bound
        case ColumnReference(name=name):
            return columns[name], columns[name]
        case FieldAccess(base=base):
            return derive_value_bound(base, columns)
        case Cast(operand=operand, type=kind):
            before, whole = derive_value_bound(operand, columns)
            after = _cast(before, operand.type.kind, kind.kind)
            return after, whole + after
        case Call(arguments=arguments):
            plain = [argument for argument in arguments if not isinstance(argument, Lambda)]
            parts = [derive_value_bound(argument, columns) for argument in plain]
            bounds = [bound for bound, _ in parts]
            result = (
                _value_of(expression, bounds)
                if len(plain) == len(arguments)
                else _mapped(expression, bounds[0], columns)
            )
            return result, sum_bounds([result, *(whole for _, whole in parts)])
    raise TypeError(f"{type(expression).__name__} is not an expression")


def _cast(operand: Bound, before: str, after: str) -> Bound:
    if after not in GROWING:
        return Bound({}, FIXED_BYTES)
    if before not in GROWING:
        return Bound({}, _TEXT_OF_FIXED_BYTES)
    return operand.times(8) if after == "array" else operand  # for example, an array of tinyints becomes one of bigints


def _value_of(call: Call, arguments: list[Bound]) -> Bound:
    if call.type.kind not in GROWING:
        return Bound({}, FIXED_BYTES)
    everything = sum_bounds(arguments)
    match call.function:
        case "repeat":
            return arguments[0].times(max(1, _number(call, 1)))
        case "lpad" | "rpad":
            return Bound({}, FIXED_BYTES + 4.0 * max(0, _number(call, 1)))
        case "array_repeat":
            count = max(1, _number(call, 1))
            return arguments[0].times(count) + Bound({}, float(ELEMENT_BYTES * count))
        case "sequence":
            return Bound({}, float(ELEMENTS_MAX * ELEMENT_BYTES))
        case "array_append" | "array_prepend":
            return everything + Bound({}, ELEMENT_BYTES)
        case "to_json":
            return arguments[0].times(8.0 + _text_around(call.arguments[0].type) / ELEMENT_BYTES) + Bound(
                {}, _text_around(call.arguments[0].type)
            )
        case "from_json":
            return arguments[0].times(_JSON_FACTOR * max(1.0, _text_around(call.type) / _FIELD_TEXT))
        case "format_string":
            return everything.times(_count_arguments(call)) + Bound({}, _count_arguments(call) * 1_500.0)
        case "uuid5":
            return Bound({}, 64.0)
        case "aes_encrypt":
            return arguments[0] + Bound({}, 64.0)
        case "concat_ws":
            return everything + Bound({}, len(arguments) * _length(call, 0))
        case "array_join":
            return arguments[0].times(1 + _length(call, 1))
        case "replace":
            return arguments[0].times(1 + _length(call, 2) / max(1, _length(call, 1)))
        case "regexp_replace":
            return arguments[0].times(1 + _length(call, 2))  # a group is at most as long as the text that contains it
    return everything.times(_FACTORS.get(call.function, 1.0))


def _text_around(kind: DataType) -> float:
    """Returns the JSON bytes of a value of a type in addition to its text and bytes: names, numbers, signs."""
    inner = sum(len(name.encode()) * 6 + _text_around(field) for name, field in kind.fields)
    return _FIELD_TEXT + inner + (_text_around(kind.element) if kind.element else 0.0)


def is_of_fixed_size(kind: DataType) -> bool:
    """Returns whether all values of a type have the same size."""
    if kind.kind == "struct":
        return all(is_of_fixed_size(field) for _, field in kind.fields)
    return kind.kind not in GROWING


def multiplies(call: Call) -> bool:
    """Returns whether a lambda function repeats a part of the record for each element in the result.

    The result would be as large as the product of the two, so these arrays have at most `MULTIPLIED_MAX` elements.
    """
    columns = dict(column for argument in call.arguments for column in _identities(argument))
    return bool(set(_body_bound(call, columns).factors) - {_ELEMENT})


def _identities(expression: Expression) -> Iterator[tuple[str, Bound]]:
    for part in parts_of(expression):
        if isinstance(part, ColumnReference):
            yield part.name, derive_identity(part.name, part.type)


_ELEMENT = "->"
"""The name that represents the elements of an array among the columns of a bound."""


def derive_body_bound(source: Lambda) -> Bound:
    """Bounds everything that is created to evaluate a lambda function for one element, by parameters and columns."""
    columns = {name: Bound({name: 1.0}, FIXED_BYTES) for name, _ in _identities(source.body)}
    return derive_bound(source.body, columns)


def _body_bound(call: Call, columns: Bounds) -> Bound:
    """Bounds the value of the first lambda function of a call."""
    [body] = [argument for argument in call.arguments if isinstance(argument, Lambda)][:1]
    if is_of_fixed_size(body.type):
        return Bound({}, FIXED_BYTES)
    outer = {
        name: Bound({f"{one}\n": factor for one, factor in bound.factors.items()}, bound.constant)
        for name, bound in columns.items()
    }
    own = {name: Bound({_ELEMENT: 1.0}, FIXED_BYTES) for name, _ in body.parameters}
    return derive_value_bound(body.body, {**outer, **own})[0]


def _mapped(call: Call, collection: Bound, columns: Bounds) -> Bound:
    """Bounds a call with a lambda function. The collection has at most one element per `ELEMENT_BYTES` of its size."""
    if call.type.kind not in GROWING:
        return Bound({}, FIXED_BYTES)
    if call.function in ("filter", "map_filter"):
        return collection
    body = _body_bound(call, columns)
    others = {
        name.removesuffix("\n"): factor * MULTIPLIED_MAX for name, factor in body.factors.items() if name != _ELEMENT
    }
    elements = collection.times(1 + body.factors.get(_ELEMENT, 0.0) + body.constant / ELEMENT_BYTES)
    return elements + Bound(others)


def _count_arguments(call: Call) -> float:
    """Returns the maximum number of references to values and of pieces in a format."""
    return 1.0 + str(call.arguments[0].value if isinstance(call.arguments[0], Literal) else "").count("%")


def _number(call: Call, index: int) -> int:
    argument = call.arguments[index]
    return int(argument.value or 0) if isinstance(argument, Literal) else 0


def _length(call: Call, index: int) -> int:
    argument = call.arguments[index]
    return len(str(argument.value).encode()) if isinstance(argument, Literal) else 0
