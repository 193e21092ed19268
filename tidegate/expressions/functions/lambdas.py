"""Typing rules of functions that evaluate an expression for every element of an array or every entry of a map."""

from __future__ import annotations

from tidegate.datatypes import BOOLEAN, INT, INTERVALS, MAX_PRECISION, DataType, map_of
from tidegate.expressions.bounds import is_of_fixed_size
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression, Lambda
from tidegate.expressions.functions.core import Argument, Function, Site, check_count
from tidegate.expressions.typing_rules import with_type

_NO_COLUMN = ("void", *INTERVALS)


def _bound(
    site: Site, argument: Argument, kinds: tuple[DataType, ...], result: DataType | None = None, least: int = 1
) -> Lambda:
    """Returns the lambda function over these types, with its body cast to `result` if given.

    `least`: the number of parameters that it needs.
    """
    if argument.bind is None:
        raise ExpressionRefusal(argument.start, f"`{site.function}` needs a lambda function here", "write `x -> x + 1`")
    found = argument.bind(kinds)
    if len(found.parameters) < least:
        raise ExpressionRefusal(
            argument.start, f"the lambda function needs {least} parameters", "write `(a, b) -> a + b`"
        )
    if result is None:
        if found.type.kind in _NO_COLUMN:
            raise ExpressionRefusal(
                argument.start, f"the lambda function returns {found.type}", "cast it, as in `x -> cast(null as int)`"
            )
        return found
    if found.type not in (result, DataType("void")):
        raise ExpressionRefusal(
            argument.start,
            f"the lambda function returns {found.type}, but `{site.function}` needs {result}",
            _cast_remedy(found.type, result),
        )
    return Lambda(found.parameters, with_type(argument.start, found.body, result), result)


def _cast_remedy(given: DataType, needed: DataType) -> str:
    if given.kind == needed.kind == "decimal":  # a sum has more digits than its initial value
        wide = DataType("decimal", precision=MAX_PRECISION, scale=max(given.scale, needed.scale))
        return f"start with a type that holds all results, `cast(0 as {wide})`, and cast each result to it"
    return f"cast it to {needed}"


def _collection(site: Site, argument: Argument, kind: str) -> Expression:
    if argument.bind is not None or argument.type.kind != kind:
        what = "a lambda function" if argument.bind is not None else argument.type
        raise ExpressionRefusal(
            argument.start, f"`{site.function}` needs {'an array' if kind == 'array' else 'a map'}, not {what}",
            "name a column of that type",
        )  # fmt: skip
    return argument.expression


def _of_array(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    array = _collection(site, arguments[0], "array")
    element = array.type.element or DataType("void")
    names = (element, INT) if site.function in ("transform", "filter") else (element,)
    body = _bound(site, arguments[1], names, None if site.function == "transform" else BOOLEAN)
    if site.function == "transform":
        return Call("transform", (array, body), DataType("array", element=body.type))
    return Call(site.function, (array, body), array.type if site.function == "filter" else BOOLEAN)


def _of_map(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    entries = _collection(site, arguments[0], "map")
    key, value = entries.type.key or DataType("void"), entries.type.element or DataType("void")
    body = _bound(site, arguments[1], (key, value), BOOLEAN if site.function == "map_filter" else None, least=2)
    if site.function == "transform_keys" and body.type.kind in ("map", "struct", "array"):
        raise ExpressionRefusal(arguments[1].start, f"a key cannot be {body.type}", "make it a string or a number")
    kinds = {"map_filter": entries.type, "transform_keys": map_of(body.type, value)}
    return Call(site.function, (entries, body), kinds.get(site.function, map_of(key, body.type)))


def _map_entries(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, 1)
    entries = _collection(site, arguments[0], "map")
    fields = (("key", entries.type.key or DataType("void")), ("value", entries.type.element or DataType("void")))
    return Call("map_entries", (entries,), DataType("array", element=DataType("struct", fields=fields)))


def _aggregate(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 3, 4)
    array = _collection(site, arguments[0], "array")
    if arguments[1].bind is not None:
        raise ExpressionRefusal(arguments[1].start, f"`{site.function}` needs a value to start with", "write `0`")
    start = site.any(arguments[1])
    if not is_of_fixed_size(start.type) or start.type.kind in _NO_COLUMN:
        raise ExpressionRefusal(
            arguments[1].start,
            f"`{site.function}` to {start.type} is not supported, only to numbers, booleans, times and structs of them",
            "use array_join for text, or an `async` step",
        )
    merge = _bound(site, arguments[2], (start.type, array.type.element or DataType("void")), start.type, least=2)
    if len(arguments) == 3:
        return Call("aggregate", (array, start, merge), start.type)
    finish = _bound(site, arguments[3], (start.type,))
    return Call("aggregate", (array, start, merge, finish), finish.type)


FUNCTIONS = (
    Function(
        "transform",
        "lambdas",
        "transform(a, x -> expression), transform(a, (x, i) -> expression)",
        "The results of the expression for each element x (at index i, from 0) as an array.",
        _of_array,
        lambdas=True,
    ),
    Function(
        "filter",
        "lambdas",
        "filter(a, x -> condition), filter(a, (x, i) -> condition)",
        "The elements for which the condition is true.",
        _of_array,
        lambdas=True,
    ),
    Function(
        "exists",
        "lambdas",
        "exists(a, x -> condition)",
        "Whether the condition is true for an element. Elements after it are not evaluated.",
        _of_array,
        lambdas=True,
    ),
    Function(
        "forall",
        "lambdas",
        "forall(a, x -> condition)",
        "Whether the condition is true for all elements. Elements after the first failing one are not evaluated.",
        _of_array,
        lambdas=True,
    ),
    Function(
        "aggregate",
        "lambdas",
        "aggregate(a, start, (acc, x) -> expression [, acc -> expression])",
        "Beginning with start (a number, boolean, time, or a struct of them), one element after the other, at most "
        "10,000.",
        _aggregate,
        ("reduce",),
        lambdas=True,
    ),
    Function(
        "map_entries", "maps", "map_entries(m)", "The entries as an array of structs of key and value.", _map_entries
    ),
    Function(
        "map_filter",
        "lambdas",
        "map_filter(m, (k, v) -> condition)",
        "The entries for which the condition is true.",
        _of_map,
        lambdas=True,
    ),
    Function(
        "transform_values",
        "lambdas",
        "transform_values(m, (k, v) -> expression)",
        "The map with the results of the expression as values.",
        _of_map,
        lambdas=True,
    ),
    Function(
        "transform_keys",
        "lambdas",
        "transform_keys(m, (k, v) -> expression)",
        "The map with the results of the expression as keys. A NULL or duplicate key fails the record.",
        _of_map,
        lambdas=True,
    ),
)
