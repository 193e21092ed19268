"""Typing rules of functions that derive arrays from arrays, or search them."""

from __future__ import annotations

from tidegate.datatypes import BIGINT, BOOLEAN, INTERVALS, STRING, VOID, DataType, holds_kind
from tidegate.expressions.bounds import ELEMENTS_MAX
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

_UNORDERED = ("array", "struct", "map", "void", *INTERVALS)


def _element(site: Site, array: Argument) -> DataType:
    if array.type.kind != "array" or array.type.element is None:
        raise site.refuse(array, "an array")
    return array.type.element


def _comparable(site: Site, argument: Argument) -> DataType:
    element = _element(site, argument)
    if holds_kind(element, ("map",)):
        raise site.refuse(argument, "an array without maps")
    return element


def _ordered(site: Site, argument: Argument) -> DataType:
    element = _element(site, argument)
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
        beside_text = (value.type == STRING) != (element == STRING) and value.type.kind != "void"
        if common_type(element, value.type) != element or beside_text:
            raise ExpressionRefusal(
                value.start,
                f"{value.type} is not an element of {array.type}",
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
    _element(site, array)
    return Call("slice", (array.expression, *map(site.integer, arguments[1:])), array.type)


def _flatten(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, 1)
    inner = _element(site, arguments[0])
    if inner.kind != "array":
        raise site.refuse(arguments[0], "an array of arrays")
    return Call("flatten", (arguments[0].expression,), inner)


def _repeat(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    value, count = site.any(arguments[0]), site.fixed_integer(arguments[1])
    if value.type.kind in ("void", *INTERVALS):
        raise site.refuse(arguments[0], "a value that can be a column")
    if isinstance(count, Literal) and int(count.value or 0) > ELEMENTS_MAX:
        raise ExpressionRefusal(
            arguments[1].start, f"`array_repeat` makes at most {ELEMENTS_MAX} elements", "use a smaller number"
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


FUNCTIONS = (
    _function("array_append", "array_append(a, v)", "The array with v at its end.", _with_element("array_append")),
    _function("array_prepend", "array_prepend(a, v)", "The array with v in front.", _with_element("array_prepend")),
    _function(
        "array_position",
        "array_position(a, v)",
        "The place of the first v from 1, a bigint; 0 when there is none.",
        _with_element("array_position", BIGINT),
    ),
    _function("array_remove", "array_remove(a, v)", "The array without v.", _with_element("array_remove")),
    _function("array_distinct", "array_distinct(a)", "Each value once, where it is first.", _of_one("array_distinct")),
    _function("array_compact", "array_compact(a)", "Without NULLs.", _of_one("array_compact")),
    _function(
        "array_sort",
        "array_sort(a)",
        "In ascending order, NULLs at the end.",
        _of_one("array_sort", ordered=True),
    ),
    _function(
        "sort_array",
        "sort_array(a [, ascending])",
        "In order, NULLs in front; with false in descending order, NULLs at the end.",
        _sort,
    ),
    _function(
        "array_max",
        "array_max(a)",
        "The greatest element that is not NULL; NaN is the greatest number.",
        _of_one("array_max", ordered=True, element=True),
    ),
    _function(
        "array_min",
        "array_min(a)",
        "The least element that is not NULL.",
        _of_one("array_min", ordered=True, element=True),
    ),
    _function("array_union", "array_union(a, b)", "What is in a or in b, each once.", _of_two("array_union")),
    _function(
        "array_intersect", "array_intersect(a, b)", "What is in a and in b, each once.", _of_two("array_intersect")
    ),
    _function("array_except", "array_except(a, b)", "What is in a and not in b, each once.", _of_two("array_except")),
    _function(
        "arrays_overlap",
        "arrays_overlap(a, b)",
        "Whether a value is in both; NULL when only a NULL could be it.",
        _of_two("arrays_overlap", BOOLEAN),
    ),
    _function(
        "slice",
        "slice(a, start, length)",
        "So many elements from the start-th on (1 is the first, -1 the last).",
        _slice,
    ),
    _function("flatten", "flatten(a)", "The elements of the arrays in an array, in a row.", _flatten),
    _function("array_repeat", "array_repeat(v, n)", f"v n times; a literal, at most {ELEMENTS_MAX:,}.", _repeat),
    _function(
        "sequence",
        "sequence(from, to [, step])",
        f"The integers from one to the other, at most {ELEMENTS_MAX:,}.",
        _sequence,
    ),
)
