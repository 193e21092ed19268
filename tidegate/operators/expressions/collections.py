"""Functions of arrays and structs."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidegate.operators.expressions.compiled import Compiled, compiles, eager, strict
from tidegate.plan.expression import Call


@compiles("size")
def _size(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return strict(call, arguments, arguments[0].value.list.len().cast(pl.Int32))


@compiles("[]", "get")
def _subscript(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    array, index = arguments[0].value, arguments[1].value
    value = pl.when(index >= 0).then(array.list.get(index, null_on_oob=True))
    if call.function == "get":
        return strict(call, arguments, value)
    outside = (index < 0) | (index >= array.list.len().cast(pl.Int64))
    return strict(call, arguments, value, ("INVALID_ARRAY_INDEX", outside))


@compiles("element_at", "try_element_at")
def _element_at(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    array, index = arguments[0].value, arguments[1].value
    place = pl.when(index > 0).then(index - 1).when(index < 0).then(index)
    value = array.list.get(place, null_on_oob=True)
    zero = ("INVALID_INDEX_OF_ZERO", (index == 0) & array.is_not_null())
    if call.function == "try_element_at":
        return strict(call, arguments, value, zero)
    outside = index.abs() > array.list.len().cast(pl.Int64)
    return strict(call, arguments, value, zero, ("INVALID_ARRAY_INDEX_IN_ELEMENT_AT", outside))


@compiles("array_contains")
def _contains(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    array, value = arguments[0].value, arguments[1].value
    found = array.list.contains(value)
    unknown = array.list.eval(pl.element().is_null()).list.any() | value.is_null()
    return strict(call, arguments, pl.when(found & value.is_not_null()).then(True).when(~unknown).then(False))


@compiles("array_join")
def _join(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    array = arguments[0].value
    joined = array.list.join(str(arguments[1].constant), ignore_nulls=True)
    return strict(call, arguments, pl.when(array.is_not_null()).then(joined.fill_null("")))


@compiles("array")
def _array(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return eager(call, arguments, pl.concat_list([argument.value for argument in arguments]))


@compiles("named_struct")
def _struct(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    pairs = zip(arguments[::2], arguments[1::2], strict=True)
    return eager(call, arguments, pl.struct([value.value.alias(str(name.constant)) for name, value in pairs]))
