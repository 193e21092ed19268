"""Typing rules of functions that evaluate an expression for every element of an array or every entry of a map."""

from __future__ import annotations

from tidegate.datatypes import BOOLEAN, INT, INTERVALS, MAX_PRECISION, VOID, DataType, map_of
from tidegate.expressions.bounds import is_of_fixed_size
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Expression, Lambda
from tidegate.expressions.functions.collection import array_of
from tidegate.expressions.functions.core import Argument, Site, resolves
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
    if found.type not in (result, VOID):
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


@resolves("transform", "filter", "exists", "forall", takes=2, lambdas=True)
def _of_array(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    array, element = arguments[0], site.array(arguments[0])
    kinds = (element, INT) if site.name in ("transform", "filter") else (element,)
    body = _bound(site, arguments[1], kinds, None if site.name == "transform" else BOOLEAN)
    result = {"transform": array_of(body.type), "filter": array.type}.get(site.name, BOOLEAN)
    return site.call(result, array.expression, body)


@resolves("map_filter", "transform_keys", "transform_values", takes=2, lambdas=True)
def _of_map(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    key, value = site.map(arguments[0])
    body = _bound(site, arguments[1], (key, value), BOOLEAN if site.name == "map_filter" else None, least=2)
    if site.name == "transform_keys" and body.type.kind in ("map", "struct", "array"):
        raise ExpressionRefusal(arguments[1].start, f"a key cannot be {body.type}", "make it a string or a number")
    kinds = {"map_filter": arguments[0].type, "transform_keys": map_of(body.type, value)}
    return site.call(kinds.get(site.name, map_of(key, body.type)), arguments[0].expression, body)


@resolves("aggregate", takes=(3, 4), lambdas=True)
def _aggregate(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    element = site.array(arguments[0])
    if arguments[1].bind is not None:
        raise ExpressionRefusal(arguments[1].start, f"`{site.function}` needs a value to start with", "write `0`")
    start = arguments[1].expression
    if not is_of_fixed_size(start.type) or start.type.kind in _NO_COLUMN:
        raise ExpressionRefusal(
            arguments[1].start,
            f"`{site.function}` to {start.type} is not supported, only to numbers, booleans, times and structs of them",
            "use array_join for text, or an `async` step",
        )
    merge = _bound(site, arguments[2], (start.type, element), start.type, least=2)
    finish = [_bound(site, argument, (start.type,)) for argument in arguments[3:]]
    result = finish[0].type if finish else start.type
    return site.call(result, arguments[0].expression, start, merge, *finish)
