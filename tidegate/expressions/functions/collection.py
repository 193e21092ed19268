"""Typing rules of functions on arrays, maps and structs, and of subscripts."""

from __future__ import annotations

from decimal import Decimal

from tidegate.datatypes import BIGINT, BOOLEAN, INT, INTERVALS, STRING, VOID, DataType, holds_kind, map_of
from tidegate.expressions.bounds import ELEMENTS_MAX
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression, Literal, text_of
from tidegate.expressions.functions.core import (
    Argument,
    Function,
    Resolve,
    Site,
    check_count,
    unify,
)
from tidegate.expressions.typing_rules import INTEGRAL, common_type, derive_cast_remedy, with_type


def _element(name: str) -> Resolve:
    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 2, 2)
        array, index = arguments
        if array.type.key is not None and array.type.element is not None and name != "get":
            return Call(name, (array.expression, map_key(index, array.type.key)), array.type.element)
        if array.type.kind != "array" or array.type.element is None:
            refusal = site.refuse(array, "an array")
            if array.type.kind == "struct":
                field = index.expression.value if isinstance(index.expression, Literal) else "name"
                raise ExpressionRefusal(
                    array.start, refusal.problem, f"write `.{field}`: the fields of a struct have names"
                )
            raise refusal
        refused = {"[]": (), "get": ("bigint",)}.get(name, ("bigint", "void"))
        if index.type.kind not in (*INTEGRAL, "void") or index.type.kind in refused:
            raise site.refuse(index, "an integer")
        if (
            name in ("element_at", "try_element_at")
            and isinstance(index.expression, Literal)
            and index.expression.value == 0
        ):
            raise ExpressionRefusal(
                index.start,
                f"`{site.function}` counts from 1, or from -1 at the end",
                f"write `{text_of(array.expression)}[0]` for the first one",
            )
        return Call(
            name, (array.expression, with_type(index.start, index.expression, DataType("bigint"))), array.type.element
        )

    return resolve


def _of_element(name: str, result: DataType) -> Resolve:
    """Types a function of an array and a value of its element type."""

    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 2, 2)
        array, value = arguments
        element = array.type.element if array.type.kind == "array" else None
        site.comparable(array)
        if element is None or value.type == VOID:
            raise site.refuse(value if element else array, "a value" if element else "an array")
        kind = common_type(element, value.type)
        if kind is None or kind != element or (value.type == STRING) != (element == STRING):
            raise ExpressionRefusal(
                value.start,
                f"{array.type} has no elements of type {value.type}",
                derive_cast_remedy(value.expression, element),
            )
        return Call(name, (array.expression, with_type(value.start, value.expression, element)), result)

    return resolve


def _array(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, None)
    elements = unify(site, arguments)
    if elements[0].type.kind in ("void", *INTERVALS):
        raise site.refuse(arguments[0], "values that can be a column")
    return Call("array", elements, DataType("array", element=elements[0].type))


def _size(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, 1)
    if arguments[0].type.kind != "map" or site.function == "array_size":
        return Call("size", (site.array(arguments[0]),), INT)
    return Call("size", (arguments[0].expression,), INT)


def _join(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    array = site.array(arguments[0])
    if array.type.element != STRING:
        raise site.refuse(arguments[0], "an array of strings")
    return Call("array_join", (array, site.fixed_text(arguments[1])), STRING)


def _struct(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    if not arguments or len(arguments) % 2:
        raise ExpressionRefusal(
            site.start, "`named_struct` takes alternating names and values", "write `named_struct('a', 1, 'b', 2)`"
        )
    names, fields = [site.fixed_text(argument) for argument in arguments[::2]], []
    for name, argument in zip(names, arguments[1::2], strict=True):
        value = site.any(argument)
        if value.type.kind in ("void", *INTERVALS):
            raise site.refuse(argument, "a value that can be a column")
        fields.append((str(name.value) if isinstance(name, Literal) else "", value.type))
    if len({name.lower() for name, _ in fields}) < len(fields):
        raise ExpressionRefusal(site.start, "two fields have the same name", "rename one")
    return Call("named_struct", tuple(map(site.any, arguments)), DataType("struct", fields=tuple(fields)))


_UNORDERED = ("array", "struct", "map", "void", *INTERVALS)


def _element_of(site: Site, array: Argument) -> DataType:
    if array.type.kind != "array" or array.type.element is None:
        raise site.refuse(array, "an array")
    return array.type.element


def _comparable(site: Site, argument: Argument) -> DataType:
    element = _element_of(site, argument)
    if holds_kind(element, ("map",)):
        raise site.refuse(argument, "an array without maps")
    return element


def _ordered(site: Site, argument: Argument) -> DataType:
    element = _element_of(site, argument)
    if element.kind in _UNORDERED:
        raise site.refuse(argument, "an array of values that have an order")
    return element


def _with_element(name: str, result: DataType | None = None) -> Resolve:
    """Types a function of an array and a value of its element type. Without `result`, it returns such an array."""

    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 2, 2)
        array, value = arguments
        element = _comparable(site, array)
        appends = name in ("array_append", "array_prepend")
        if value.type.kind == "void" and not appends:
            raise site.refuse(value, "a value")
        mixes_text = (value.type == STRING) != (element == STRING) and value.type.kind != "void"
        if common_type(element, value.type) != element or mixes_text:
            raise ExpressionRefusal(
                value.start,
                f"{array.type} has no elements of type {value.type}",
                derive_cast_remedy(value.expression, element),
            )
        typed = with_type(value.start, value.expression, element)
        return Call(name, (array.expression, typed), result or array.type)

    return resolve


def _of_one(name: str, *, ordered: bool = False, element: bool = False) -> Resolve:
    """Types a function of one array that returns such an array, or an element."""

    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 1, 1)
        [array] = arguments
        inner = _ordered(site, array) if ordered else _comparable(site, array)
        return Call(name, (array.expression,), inner if element else array.type)

    return resolve


def _of_two(name: str, result: DataType | None = None) -> Resolve:
    """Types a function of two arrays with the same element type."""

    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 2, 2)
        for argument in arguments:
            _comparable(site, argument)
        arrays = unify(site, arguments)
        return Call(name, arrays, result or arrays[0].type)

    return resolve


def _sort(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, 2)
    _ordered(site, arguments[0])
    ascending: Expression = Literal(True, BOOLEAN)
    if len(arguments) == 2:
        ascending = arguments[1].expression
        if not isinstance(ascending, Literal) or ascending.type not in (BOOLEAN, VOID):
            raise ExpressionRefusal(arguments[1].start, "`sort_array` needs true or false here", "write true or false")
        ascending = site.boolean(arguments[1])
    return Call("sort_array", (arguments[0].expression, ascending), arguments[0].type)


def _slice(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 3, 3)
    array = arguments[0]
    _element_of(site, array)
    return Call("slice", (array.expression, *map(site.integer, arguments[1:])), array.type)


def _flatten(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, 1)
    inner = _element_of(site, arguments[0])
    if inner.kind != "array":
        raise site.refuse(arguments[0], "an array of arrays")
    return Call("flatten", (arguments[0].expression,), inner)


def _repeat_element(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    value, count = site.any(arguments[0]), site.fixed_integer(arguments[1])
    if value.type.kind in ("void", *INTERVALS):
        raise site.refuse(arguments[0], "a value that can be a column")
    if isinstance(count, Literal) and int(count.value or 0) > ELEMENTS_MAX:
        raise ExpressionRefusal(
            arguments[1].start, f"`array_repeat` creates at most {ELEMENTS_MAX:,} elements", "use a smaller number"
        )
    return Call("array_repeat", (value, count), DataType("array", element=value.type))


def _sequence(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 3)
    for argument in arguments:
        if argument.type.kind not in INTEGRAL:
            raise site.refuse(argument, "integers")
    bounds = unify(site, arguments)
    return Call("sequence", bounds, DataType("array", element=bounds[0].type))


def _function(name: str, signature: str, summary: str, resolve: Resolve) -> Function:
    return Function(name, "arrays", signature, summary, resolve)


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
        raise ExpressionRefusal(site.start, "`map` takes alternating keys and values", "write `map('a', 1, 'b', 2)`")
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
            raise ExpressionRefusal(place.start, "the keys of a map are unique and never NULL", "leave it out")
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
            argument.start, f"maps with keys of type {kind} are not supported here", "cast them to string"
        )


FUNCTIONS = (
    Function(
        "[]",
        "arrays",
        "a[i], m[key]",
        "The element at index i, counted from 0; an index outside the array fails the record. For a map, the value of "
        "a key, or NULL.",
        _element("[]"),
    ),
    Function(
        "element_at",
        "arrays",
        "element_at(a, i), element_at(m, key)",
        "The element at position i, counted from 1, or from -1 at the end; a position outside fails the record. For a "
        "map, as m[key].",
        _element("element_at"),
    ),
    Function(
        "try_element_at",
        "arrays",
        "try_element_at(a, i)",
        "Like element_at, but NULL outside the array.",
        _element("try_element_at"),
    ),
    Function("get", "arrays", "get(a, i)", "Like a[i], but NULL outside the array.", _element("get")),
    Function(
        "size",
        "arrays",
        "size(a)",
        "The number of elements of an array or entries of a map; NULL for NULL.",
        _size,
        ("cardinality", "array_size"),
    ),
    Function(
        "array_contains",
        "arrays",
        "array_contains(a, v)",
        "Whether v is an element; NULL if only a NULL could be v.",
        _of_element("array_contains", BOOLEAN),
    ),
    Function(
        "array_join",
        "arrays",
        "array_join(a, separator)",
        "The strings joined with a separator; NULLs are skipped.",
        _join,
    ),
    Function("array", "arrays", "array(a, b, ...)", "An array of values.", _array),
    Function("named_struct", "structs", "named_struct('name', value, ...)", "A struct; `s.name` is a field.", _struct),
    _function("array_append", "array_append(a, v)", "The array with v at its end.", _with_element("array_append")),
    _function(
        "array_prepend", "array_prepend(a, v)", "The array with v at its beginning.", _with_element("array_prepend")
    ),
    _function(
        "array_position",
        "array_position(a, v)",
        "The position of the first v, counted from 1, as a bigint; 0 if there is none.",
        _with_element("array_position", BIGINT),
    ),
    _function("array_remove", "array_remove(a, v)", "The array without v.", _with_element("array_remove")),
    _function(
        "array_distinct",
        "array_distinct(a)",
        "The distinct values, each at its first position.",
        _of_one("array_distinct"),
    ),
    _function("array_compact", "array_compact(a)", "The array without NULLs.", _of_one("array_compact")),
    _function(
        "array_sort",
        "array_sort(a)",
        "The array in ascending order, NULLs last.",
        _of_one("array_sort", ordered=True),
    ),
    _function(
        "sort_array",
        "sort_array(a [, ascending])",
        "The array in ascending order, NULLs first; with false in descending order, NULLs last.",
        _sort,
    ),
    _function(
        "array_max",
        "array_max(a)",
        "The greatest element that is not NULL. NaN is greater than any number.",
        _of_one("array_max", ordered=True, element=True),
    ),
    _function(
        "array_min",
        "array_min(a)",
        "The smallest element that is not NULL.",
        _of_one("array_min", ordered=True, element=True),
    ),
    _function("array_union", "array_union(a, b)", "The distinct values that are in a or in b.", _of_two("array_union")),
    _function(
        "array_intersect",
        "array_intersect(a, b)",
        "The distinct values that are in a and in b.",
        _of_two("array_intersect"),
    ),
    _function(
        "array_except", "array_except(a, b)", "The distinct values that are in a and not in b.", _of_two("array_except")
    ),
    _function(
        "arrays_overlap",
        "arrays_overlap(a, b)",
        "Whether a value is in both; NULL if only a NULL could be one.",
        _of_two("arrays_overlap", BOOLEAN),
    ),
    _function(
        "slice",
        "slice(a, start, length)",
        "Up to `length` elements from position `start` (1 is the first, -1 the last).",
        _slice,
    ),
    _function("flatten", "flatten(a)", "The elements of an array of arrays as one array.", _flatten),
    _function(
        "array_repeat",
        "array_repeat(v, n)",
        f"An array of n times v; a literal n is at most {ELEMENTS_MAX:,}.",
        _repeat_element,
    ),
    _function(
        "sequence",
        "sequence(from, to [, step])",
        f"The integers from one to the other, at most {ELEMENTS_MAX:,} of them.",
        _sequence,
    ),
    Function(
        "map",
        "maps",
        "map(key, value, ...)",
        "A map. A NULL or duplicate key fails the record.",
        _construct,
    ),
    Function(
        "map_from_entries",
        "maps",
        "map_from_entries(a)",
        "A map from an array of structs with two fields; NULL if one of the structs is NULL.",
        _from_entries,
    ),
    Function("map_keys", "maps", "map_keys(m)", "The keys as an array.", _parts("map_keys")),
    Function("map_values", "maps", "map_values(m)", "The values as an array.", _parts("map_values")),
    Function("map_contains_key", "maps", "map_contains_key(m, key)", "Whether the map has the key.", _contains_key),
)
