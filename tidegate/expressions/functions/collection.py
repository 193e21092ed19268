"""Typing rules of functions of arrays and structs."""

from __future__ import annotations

from tidegate.datatypes import BOOLEAN, INT, INTERVALS, STRING, VOID, DataType
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
from tidegate.expressions.functions.maps import map_key
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
                f"{value.type} is not an element of {array.type}",
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
            site.start, "`named_struct` takes names and values in turn", "write `named_struct('a', 1, 'b', 2)`"
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


FUNCTIONS = (
    Function(
        "[]",
        "arrays",
        "a[i], m[key]",
        "The element at i from 0; outside the array its record fails. Of a map the value of a key, or NULL.",
        _element("[]"),
    ),
    Function(
        "element_at",
        "arrays",
        "element_at(a, i), element_at(m, key)",
        "The element at i from 1, from the end when negative; outside the record fails. Of a map as m[key].",
        _element("element_at"),
    ),
    Function(
        "try_element_at",
        "arrays",
        "try_element_at(a, i)",
        "As element_at, but NULL outside the array.",
        _element("try_element_at"),
    ),
    Function("get", "arrays", "get(a, i)", "As a[i], but NULL outside the array.", _element("get")),
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
        "Whether v is an element; NULL when only a NULL could be it.",
        _of_element("array_contains", BOOLEAN),
    ),
    Function("array_join", "arrays", "array_join(a, separator)", "The strings joined; NULLs are left out.", _join),
    Function("array", "arrays", "array(a, b, ...)", "An array of values.", _array),
    Function("named_struct", "structs", "named_struct('name', value, ...)", "A struct; `s.name` is a field.", _struct),
)
