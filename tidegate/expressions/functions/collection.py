"""Typing rules of functions on arrays, maps and structs, and of subscripts."""

from __future__ import annotations

from decimal import Decimal

from tidegate.datatypes import BIGINT, BOOLEAN, INT, INTERVALS, STRING, VOID, DataType, holds_kind, map_of
from tidegate.expressions.bounds import ELEMENTS_MAX
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Expression, Literal, text_of
from tidegate.expressions.functions.core import Argument, Site, resolves, unify
from tidegate.expressions.typing_rules import INTEGRAL, common_type, derive_cast_remedy, with_type

_UNORDERED = ("array", "struct", "map", "void", *INTERVALS)
_NO_KEYS = ("float", "double", "array", "struct", "map", "void", *INTERVALS)


def array_of(element: DataType) -> DataType:
    """Returns the type of arrays with such elements."""
    return DataType("array", element=element)


@resolves("[]", "element_at", "try_element_at", "get", takes=2)
def _element(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    array, index = arguments
    if array.type.key is not None and array.type.element is not None and site.name != "get":
        return site.call(array.type.element, array.expression, _map_key(index, array.type.key))
    if array.type.kind == "struct":
        field = index.expression.value if isinstance(index.expression, Literal) else "name"
        problem = site.refuse(array, "an array").problem
        raise ExpressionRefusal(array.start, problem, f"write `.{field}`: the fields of a struct have names")
    element = site.array(array)
    refused = {"[]": (), "get": ("bigint",)}.get(site.name, ("bigint", "void"))
    if index.type.kind in refused:
        raise site.refuse(index, "an integer")
    found = site.bigint(index)
    if site.name.endswith("element_at") and isinstance(found, Literal) and found.value == 0:
        raise ExpressionRefusal(
            index.start,
            f"`{site.function}` counts from 1, or from -1 at the end",
            f"write `{text_of(array.expression)}[0]` for the first one",
        )
    return site.call(element, array.expression, found)


@resolves("array", takes=(1, None))
def _array(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    elements = unify(site, arguments)
    site.column(Argument(elements[0], arguments[0].start), "values that can be a column")
    return site.call(array_of(elements[0].type), *elements)


@resolves("size", takes=1)
def _size(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    if arguments[0].type.kind != "map" or site.function == "array_size":
        site.array(arguments[0])
    return site.call(INT, arguments[0].expression)


@resolves("array_join", takes=2)
def _join(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    if site.array(arguments[0]) != STRING:
        raise site.refuse(arguments[0], "an array of strings")
    return site.call(STRING, arguments[0].expression, site.fixed_text(arguments[1]))


@resolves("named_struct", takes=(0, None))
def _struct(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    if not arguments or len(arguments) % 2:
        raise ExpressionRefusal(
            site.start, "`named_struct` takes alternating names and values", "write `named_struct('a', 1, 'b', 2)`"
        )
    names = [site.fixed_text(argument) for argument in arguments[::2]]
    values = [site.column(argument, "a value that can be a column") for argument in arguments[1::2]]
    if len({name.lower() for name in names}) < len(names):
        raise ExpressionRefusal(site.start, "two fields have the same name", "rename one")
    fields = tuple((name, value.type) for name, value in zip(names, values, strict=True))
    return site.call(DataType("struct", fields=fields), *(argument.expression for argument in arguments))


def _comparable(site: Site, argument: Argument) -> DataType:
    element = site.array(argument)
    if holds_kind(element, ("map",)):
        raise site.refuse(argument, "an array without maps")
    return element


def _ordered(site: Site, argument: Argument) -> DataType:
    element = site.array(argument)
    if element.kind in _UNORDERED:
        raise site.refuse(argument, "an array of values that have an order")
    return element


@resolves("array_append", "array_prepend", "array_remove", "array_position", "array_contains", takes=2)
def _with_element(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    """Types a function of an array and a value of its element type."""
    array, value = arguments
    element = _comparable(site, array)
    if value.type == VOID and site.name not in ("array_append", "array_prepend"):
        raise site.refuse(value, "a value")
    mixes_text = (value.type == STRING) != (element == STRING) and value.type != VOID
    if common_type(element, value.type) != element or mixes_text:
        raise ExpressionRefusal(
            value.start,
            f"{array.type} has no elements of type {value.type}",
            derive_cast_remedy(value.expression, element),
        )
    result = {"array_position": BIGINT, "array_contains": BOOLEAN}.get(site.name, array.type)
    return site.call(result, array.expression, with_type(value.start, value.expression, element))


@resolves("array_distinct", "array_compact", takes=1)
def _reduced(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    _comparable(site, arguments[0])
    return site.call(arguments[0].type, arguments[0].expression)


@resolves("array_max", "array_min", takes=1)
def _extreme(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    return site.call(_ordered(site, arguments[0]), arguments[0].expression)


@resolves("array_sort", takes=1)
@resolves("sort_array", takes=(1, 2))
def _sort(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    array, *directions = arguments
    _ordered(site, array)
    for direction in directions:
        if not isinstance(direction.expression, Literal) or direction.type not in (BOOLEAN, VOID):
            raise ExpressionRefusal(direction.start, "`sort_array` needs true or false here", "write true or false")
    return site.call(array.type, array.expression, *map(site.boolean, directions))


@resolves("array_union", "array_intersect", "array_except", "arrays_overlap", takes=2)
def _of_two(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    """Types a function of two arrays with the same element type."""
    for argument in arguments:
        _comparable(site, argument)
    arrays = unify(site, arguments)
    return site.call(BOOLEAN if site.name == "arrays_overlap" else arrays[0].type, *arrays)


@resolves("slice", takes=3)
def _slice(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    site.array(arguments[0])
    return site.call(arguments[0].type, arguments[0].expression, *map(site.integer, arguments[1:]))


@resolves("flatten", takes=1)
def _flatten(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    inner = site.array(arguments[0])
    if inner.kind != "array":
        raise site.refuse(arguments[0], "an array of arrays")
    return site.call(inner, arguments[0].expression)


@resolves("array_repeat", takes=2)
def _repeat_element(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    value = site.column(arguments[0], "a value that can be a column")
    count = site.fixed_integer(arguments[1])
    if count > ELEMENTS_MAX:
        raise ExpressionRefusal(
            arguments[1].start, f"`array_repeat` creates at most {ELEMENTS_MAX:,} elements", "use a smaller number"
        )
    return site.call(array_of(value.type), value, count)


@resolves("sequence", takes=(2, 3))
def _sequence(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    for argument in arguments:
        if argument.type.kind not in INTEGRAL:
            raise site.refuse(argument, "integers")
    bounds = unify(site, arguments)
    return site.call(array_of(bounds[0].type), *bounds)


def _map_key(argument: Argument, kind: DataType) -> Expression:
    """Returns the key to look up in a map with such keys. A literal or a narrower number is cast, as in Spark."""
    literal = argument.expression
    if isinstance(literal, Literal) and argument.type.kind in ("string", "void"):
        return with_type(argument.start, literal, kind)
    numbers = {argument.type.kind, kind.kind} <= {*INTEGRAL, "decimal"}
    if isinstance(literal, Literal) and literal.value is not None and numbers and kind.kind == "decimal":
        found = with_type(argument.start, literal, kind)
        if isinstance(found, Literal) and Decimal(str(found.value)) == Decimal(str(literal.value)):
            return found
    if common_type(kind, argument.type) != kind:
        raise ExpressionRefusal(
            argument.start,
            f"the keys of the map are {kind}, not {argument.type}",
            derive_cast_remedy(argument.expression, kind),
        )
    return with_type(argument.start, argument.expression, kind)


@resolves("map_keys", "map_values", "map_entries", takes=1)
def _parts(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    key, value = site.map(arguments[0])
    entry = DataType("struct", fields=(("key", key), ("value", value)))
    part = {"map_keys": key, "map_values": value, "map_entries": entry}[site.name]
    return site.call(array_of(part), arguments[0].expression)


@resolves("map_contains_key", takes=2)
def _contains_key(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    key, _ = site.map(arguments[0])
    if arguments[1].type.kind == "void":
        raise site.refuse(arguments[1], "a key")
    return site.call(BOOLEAN, arguments[0].expression, _map_key(arguments[1], key))


@resolves("map", takes=(0, None))
def _construct(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    if not arguments or len(arguments) % 2:
        raise ExpressionRefusal(site.start, "`map` takes alternating keys and values", "write `map('a', 1, 'b', 2)`")
    keys, values = unify(site, arguments[::2]), unify(site, arguments[1::2])
    _check_key(arguments[0], keys[0].type)
    site.column(Argument(values[0], arguments[1].start), "values that can be a column")
    _check_known(keys, arguments[::2])
    parts = (part for pair in zip(keys, values, strict=True) for part in pair)
    return site.call(map_of(keys[0].type, values[0].type), *parts)


def _check_known(keys: tuple[Expression, ...], places: tuple[Argument, ...]) -> None:
    seen = set[object]()
    for key, place in zip(keys, places, strict=True):
        if not isinstance(key, Literal):
            continue
        if key.value is None or key.value in seen:
            raise ExpressionRefusal(place.start, "the keys of a map are unique and never NULL", "leave it out")
        seen.add(key.value)


@resolves("map_from_entries", takes=1)
def _from_entries(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    entry = arguments[0].type.element if arguments[0].type.kind == "array" else None
    if entry is None or entry.kind != "struct" or len(entry.fields) != 2:
        raise site.refuse(arguments[0], "an array of structs with two fields, key and value")
    (_, key), (_, value) = entry.fields
    _check_key(arguments[0], key)
    return site.call(map_of(key, value), arguments[0].expression)


def _check_key(argument: Argument, kind: DataType) -> None:
    if kind.kind in _NO_KEYS:
        raise ExpressionRefusal(
            argument.start, f"maps with keys of type {kind} are not supported here", "cast them to string"
        )
