"""Functions of arrays and structs."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidegate.expressions.compiled.compiled import Compiled, beside, compiles, eager, strict
from tidegate.expressions.compiled.maps import map_value
from tidegate.expressions.compiled.sizes import fitting, total_bytes
from tidegate.expressions.expression import Call, can_be_too_large
from tidegate.formats.failures import FailureKind


@compiles("size")
def _size(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return strict(call, arguments, arguments[0].value.list.len().cast(pl.Int32))


@compiles("[]", "get")
def _subscript(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    if arguments[0].type.kind == "map":
        return map_value(call, arguments)
    array, index = beside(arguments[0], arguments[1:]), arguments[1].value
    value = pl.when(index >= 0).then(array.list.get(index, null_on_oob=True))
    if call.function == "get":
        return strict(call, arguments, value)
    outside = (index < 0) | (index >= array.list.len().cast(pl.Int64))
    return strict(call, arguments, value, (FailureKind.INVALID_ARRAY_INDEX, outside & array.is_not_null()))


@compiles("element_at", "try_element_at")
def _element_at(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    if arguments[0].type.kind == "map":
        return map_value(call, arguments)
    array, index = beside(arguments[0], arguments[1:]), arguments[1].value
    place = pl.when(index > 0).then(index - 1).when(index < 0).then(index)
    value = array.list.get(place, null_on_oob=True)
    zero = (FailureKind.INVALID_INDEX_OF_ZERO, (index == 0) & array.is_not_null())
    if call.function == "try_element_at":
        return strict(call, arguments, value, zero)
    outside = array.list.len().cast(pl.Int64) < index.abs()  # as in `compared`: an index may be a constant
    return strict(call, arguments, value, zero, (FailureKind.INVALID_ARRAY_INDEX_IN_ELEMENT_AT, outside))


@compiles("array_contains")
def _contains(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    array, value = arguments[0].value, arguments[1].value
    found = array.list.contains(value)
    unknown = array.list.eval(pl.element().is_null()).list.any() | value.is_null()
    return strict(call, arguments, pl.when(found & value.is_not_null()).then(True).when(~unknown).then(False))


@compiles("array_join")
def _join(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    separator = str(arguments[1].constant)

    def build(inputs: Sequence[Compiled]) -> Compiled:
        array = inputs[0].value
        joined = array.list.join(separator, ignore_nulls=True)
        return strict(call, inputs, pl.when(array.is_not_null()).then(joined.fill_null("")))

    array = arguments[0].value
    size = array.list.eval(pl.element().str.len_bytes().cast(pl.Int64)).list.sum()
    return fitting(call, arguments, size + array.list.len().cast(pl.Int64) * len(separator.encode()), build)


@compiles("array")
def _array(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    def build(inputs: Sequence[Compiled]) -> Compiled:
        if inputs[0].type.kind not in ("array", "map"):
            return eager(call, inputs, pl.concat_list([one.value for one in inputs]))
        held = pl.concat_list([pl.struct(one.value.alias("held")) for one in inputs])  # lists would be joined
        return eager(call, inputs, held.list.eval(pl.element().struct.field("held")))

    if not can_be_too_large(call):
        return build(arguments)
    return fitting(call, arguments, total_bytes(arguments, nulls_count=True), build, masked=range(len(arguments)))


@compiles("named_struct")
def _struct(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    names = [str(name.constant) for name in arguments[::2]]

    def build(inputs: Sequence[Compiled]) -> Compiled:
        values = [one.value.alias(name) for name, one in zip(names, inputs[1::2], strict=True)]
        return eager(call, inputs, pl.struct(values))

    if not can_be_too_large(call):
        return build(arguments)
    size = total_bytes(arguments[1::2], nulls_count=True)
    return fitting(call, arguments, size, build, masked=range(1, len(arguments), 2))
