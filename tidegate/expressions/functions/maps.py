"""Typing rules of functions of maps."""

from __future__ import annotations

from decimal import Decimal

from tidegate.datatypes import BOOLEAN, INTERVALS, DataType, map_of
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression, Literal
from tidegate.expressions.functions.core import (
    Argument,
    Function,
    Resolve,
    Site,
    check_count,
    unify,
)
from tidegate.expressions.typing_rules import INTEGRAL, common_type, derive_cast_remedy, with_type

_NO_KEYS = ("float", "double", "array", "struct", "map", "void", *INTERVALS)


def map_key(argument: Argument, kind: DataType) -> Expression:
    """Returns the key to look up in a map with such keys. A literal or a narrower number is cast, as in Spark."""
    if isinstance(argument.expression, Literal) and argument.type.kind in ("string", "void"):
        return with_type(argument.start, argument.expression, kind)
    if (
        isinstance(argument.expression, Literal)
        and argument.expression.value is not None
        and kind.kind == "decimal"
        and argument.type.kind in (*INTEGRAL, "decimal")
    ):
        found = with_type(argument.start, argument.expression, kind)
        if isinstance(found, Literal) and Decimal(str(found.value)) == Decimal(str(argument.expression.value)):
            return found
    if common_type(kind, argument.type) != kind:
        raise ExpressionRefusal(
            argument.start,
            f"the keys of the map are {kind}, not {argument.type}",
            derive_cast_remedy(argument.expression, kind),
        )
    return with_type(argument.start, argument.expression, kind)


def _map(site: Site, argument: Argument) -> tuple[DataType, DataType]:
    """Returns the types of keys and values."""
    if argument.type.key is None or argument.type.element is None:
        raise site.refuse(argument, "a map")
    return argument.type.key, argument.type.element


def _parts(name: str) -> Resolve:
    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 1, 1)
        key, value = _map(site, arguments[0])
        element = key if name == "map_keys" else value
        return Call(name, (arguments[0].expression,), DataType("array", element=element))

    return resolve


def _contains_key(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    key, _ = _map(site, arguments[0])
    if arguments[1].type.kind == "void":
        raise site.refuse(arguments[1], "a key")
    return Call("map_contains_key", (arguments[0].expression, map_key(arguments[1], key)), BOOLEAN)


def _construct(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    if not arguments or len(arguments) % 2:
        raise ExpressionRefusal(site.start, "`map` takes keys and values in turn", "write `map('a', 1, 'b', 2)`")
    keys, values = unify(site, arguments[::2]), unify(site, arguments[1::2])
    _check_key(arguments[0], keys[0].type)
    if values[0].type.kind in ("void", *INTERVALS):
        raise site.refuse(arguments[1], "values that can be a column")
    _check_known(keys, arguments[::2])
    parts = tuple(part for pair in zip(keys, values, strict=True) for part in pair)
    return Call("map", parts, map_of(keys[0].type, values[0].type))


def _check_known(keys: tuple[Expression, ...], places: tuple[Argument, ...]) -> None:
    seen = set[object]()
    for key, place in zip(keys, places, strict=True):
        if not isinstance(key, Literal):
            continue
        if key.value is None or key.value in seen:
            raise ExpressionRefusal(place.start, "a key of a map is never NULL, and is there once", "leave it out")
        seen.add(key.value)


def _from_entries(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, 1)
    entry = arguments[0].type.element if arguments[0].type.kind == "array" else None
    if entry is None or entry.kind != "struct" or len(entry.fields) != 2:
        raise site.refuse(arguments[0], "an array of structs with two fields, key and value")
    (_, key), (_, value) = entry.fields
    _check_key(arguments[0], key)
    return Call("map_from_entries", (arguments[0].expression,), map_of(key, value))


def _check_key(argument: Argument, kind: DataType) -> None:
    if kind.kind in _NO_KEYS:
        raise ExpressionRefusal(
            argument.start, f"a map with keys of type {kind} cannot be made here", "cast them to string"
        )


FUNCTIONS = (
    Function(
        "map",
        "maps",
        "map(key, value, ...)",
        "A map; a key that is NULL or there twice fails the record.",
        _construct,
    ),
    Function(
        "map_from_entries",
        "maps",
        "map_from_entries(a)",
        "A map from an array of structs with two fields; NULL where one of them is NULL.",
        _from_entries,
    ),
    Function("map_keys", "maps", "map_keys(m)", "The keys as an array.", _parts("map_keys")),
    Function("map_values", "maps", "map_values(m)", "The values as an array.", _parts("map_values")),
    Function("map_contains_key", "maps", "map_contains_key(m, key)", "Whether there is such a key.", _contains_key),
)
