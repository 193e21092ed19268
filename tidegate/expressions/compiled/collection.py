"""Functions of arrays, maps and structs. Those of arrays that Polars does not have exactly run row by row.

A map is a list of structs of `key` and `value`. No map is created with NULL or duplicate keys.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import polars as pl

from tidegate.datatypes import DataType
from tidegate.expressions.bounds import ELEMENT_BYTES, ELEMENTS_MAX
from tidegate.expressions.compiled.compiled import (
    Compiled,
    FailingRows,
    bytes_of,
    compiles,
    eager,
    fitting,
    plain,
    sequence,
    strict,
    total_bytes,
    with_rows_of,
)
from tidegate.expressions.compiled.operators import compared
from tidegate.expressions.compiled.rowwise import RowFailed, by_row
from tidegate.expressions.compiled.text import null_if_any_null
from tidegate.expressions.expression import Call, Literal, can_be_too_large
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind

plain(
    {
        "size": lambda array: array.list.len().cast(pl.Int32),
        "array_compact": lambda array: array.list.drop_nulls(),
        "map_keys": lambda entries: entries.list.eval(pl.element().struct.field("key")),
        "map_values": lambda entries: entries.list.eval(pl.element().struct.field("value")),
        "map_entries": lambda entries: entries,
    }
)


@compiles("[]", "get")
def _subscript(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    if arguments[0].type.kind == "map":
        return map_value(call, arguments)
    array, index = with_rows_of(arguments[0], arguments[1:]), arguments[1].value
    value = pl.when(index >= 0).then(array.list.get(index, null_on_oob=True))
    if call.function == "get":
        return strict(call, arguments, value)
    outside = (index < 0) | (index >= array.list.len().cast(pl.Int64))
    return strict(call, arguments, value, (FailureKind.INVALID_ARRAY_INDEX, outside & array.is_not_null()))


@compiles("element_at", "try_element_at")
def _element_at(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    if arguments[0].type.kind == "map":
        return map_value(call, arguments)
    array, index = with_rows_of(arguments[0], arguments[1:]), arguments[1].value
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


List = list[Any]
_PLAIN = ("boolean", "tinyint", "smallint", "int", "bigint", "string", "date", "timestamp", "timestamp_ntz")
"""Types whose equal values are identical."""


@compiles("array_append", "array_prepend")
def _added(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    def each(array: List, value: object) -> List:
        return [*array, value] if call.function == "array_append" else [value, *array]

    def build(inputs: Sequence[Compiled]) -> Compiled:
        if arguments[1].type.kind in ("array", "map"):  # Polars would append its elements
            return by_row(call, inputs, each, needed=1)
        parts = [one.value for one in inputs]
        value = pl.concat_list(parts if call.function == "array_append" else parts[::-1])
        return Compiled(value, call, tuple(sequence(inputs)))

    size = bytes_of(arguments[0]) + bytes_of(arguments[1]).fill_null(0) + ELEMENT_BYTES
    return fitting(call, arguments, size, build)


@compiles("array_concat")
def _concat(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    size = total_bytes(arguments, nulls_count=False)
    return fitting(
        call, arguments, size, lambda inputs: strict(call, inputs, pl.concat_list([one.value for one in inputs]))
    )


@compiles("array_sort", "sort_array")
def _sort(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Sorts with Polars, which orders as Spark does. The sort is stable, so zeros of both signs keep their order.

    The direction is a literal, ascending if it is not written. If it is NULL, the result is NULL.
    """
    descending = any(direction.constant is False for direction in arguments[1:])
    nulls_last = descending or call.function == "array_sort"
    value = arguments[0].value.list.eval(
        pl.element().sort_by(pl.element(), descending=descending, nulls_last=nulls_last, maintain_order=True)
    )
    return strict(call, arguments[:1], null_if_any_null(value, arguments[1:]))


@compiles("array_max", "array_min")
def _extreme(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Returns the first of equal elements. Polars' own maximum skips NaN."""
    known = pl.element().drop_nulls()
    order = known.sort_by(known, descending=call.function == "array_max", maintain_order=True)
    return strict(call, arguments, arguments[0].value.list.eval(order).list.get(0, null_on_oob=True))


@compiles("slice")
def _slice(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    array, start, length = (with_rows_of(arguments[0], arguments[1:]), *(one.value for one in arguments[1:]))
    count = array.list.len().cast(pl.Int64)
    wide = start.cast(pl.Int64)
    offset = pl.when(wide > 0).then(wide - 1).otherwise(count + wide)
    kept = pl.when(offset < 0).then(0).otherwise(length.cast(pl.Int64))
    value = array.list.slice(offset.clip(0), kept.clip(0))
    wrong = ((start == 0) | (length < 0)) & array.is_not_null() & length.is_not_null() & start.is_not_null()
    value = null_if_any_null(value, arguments)
    return strict(call, arguments, value, (FailureKind.INVALID_PARAMETER_VALUE, wrong))


def identity(value: Any) -> Hashable:
    """Returns the same value for values that are equal in Spark: NaN equals NaN, and zero equals minus zero."""
    if isinstance(value, float) and value != value:
        return ("NaN",)
    if isinstance(value, list):
        return tuple(map(identity, value))
    return tuple(map(identity, value.values())) if isinstance(value, dict) else value


def _position(array: List, value: object) -> int:
    wanted = identity(value)
    return next((place for place, one in enumerate(array, 1) if one is not None and identity(one) == wanted), 0)


def _without(array: List, value: object) -> List:
    wanted = identity(value)
    return [one for one in array if one is None or identity(one) != wanted]


def _distinct_first(values: Iterable[Any]) -> List:
    """Returns each value at its first occurrence. Spark makes zeros positive here, including those inside values."""
    seen: dict[Hashable, Any] = {}
    for value in values:
        seen.setdefault(identity(value), _with_positive_zeros(value))
    return list(seen.values())


def _with_positive_zeros(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_with_positive_zeros, value))
    if isinstance(value, dict):
        return {name: _with_positive_zeros(one) for name, one in value.items()}
    return 0.0 if isinstance(value, float) and value == 0 else value


def _union(left: List, right: List) -> List:
    return _distinct_first([*left, *right])


def _intersect(left: List, right: List) -> List:
    there = set(map(identity, right))
    return _distinct_first(value for value in left if identity(value) in there)


def _except(left: List, right: List) -> List:
    there = set(map(identity, right))
    return _distinct_first(value for value in left if identity(value) not in there)


def _overlap(left: List, right: List) -> bool | None:
    there = {identity(value) for value in right if value is not None}
    if any(value is not None and identity(value) in there for value in left):
        return True
    return None if left and right and (None in left or None in right) else False


def _flatten(arrays: List) -> List | None:
    return None if None in arrays else [value for array in arrays for value in array]


_BY_ROW: dict[str, Callable[..., Any]] = {
    "array_distinct": _distinct_first,
    "array_position": _position,
    "array_remove": _without,
    "array_union": _union,
    "array_intersect": _intersect,
    "array_except": _except,
    "arrays_overlap": _overlap,
    "flatten": _flatten,
}


@compiles(*_BY_ROW)
def _by_row(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    evaluate = _BY_ROW[call.function]
    if call.function == "array_distinct" and call.type.element and call.type.element.kind in _PLAIN:
        return strict(call, arguments, arguments[0].value.list.unique(maintain_order=True))
    if call.function != "array_union":
        return by_row(call, arguments, evaluate)
    size = total_bytes(arguments, nulls_count=False)
    return fitting(call, arguments, size, lambda inputs: by_row(call, inputs, evaluate))


@compiles("array_repeat")
def _repeat(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    count = max(0, int(arguments[1].constant or 0))

    def build(inputs: Sequence[Compiled]) -> Compiled:
        return by_row(call, inputs[:1], lambda value: [value] * count, needed=0)

    return fitting(call, arguments, (bytes_of(arguments[0]).fill_null(0) + ELEMENT_BYTES) * count, build)


@compiles("sequence")
def _sequence(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    def each(start: int, stop: int, step: int | None = None) -> List:
        by = step if step is not None else 1 if start <= stop else -1
        if (by == 0 and start != stop) or (by > 0 and start > stop) or (by < 0 and start < stop):
            raise RowFailed(FailureKind.INVALID_PARAMETER_VALUE)
        count = 1 if by == 0 else (stop - start) // by + 1
        if count > ELEMENTS_MAX:
            raise RowFailed(FailureKind.RESULT_TOO_LARGE)
        return [start + by * index for index in range(count)]

    return by_row(call, arguments, each, FailureKind.INVALID_PARAMETER_VALUE, FailureKind.RESULT_TOO_LARGE)


def map_value(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Compiles `m[key]` and `element_at`: the value of a key, or NULL if the key does not exist."""
    return strict(call, arguments, _looked_up(arguments, _values, call.type))


@compiles("map_contains_key")
def _contains_key(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    found = _looked_up(arguments, _presence, call.type)
    known = arguments[0].value.is_not_null() & arguments[1].value.is_not_null()
    return strict(call, arguments, pl.when(known).then(found.fill_null(False)))


def _looked_up(arguments: Sequence[Compiled], find: Callable[[pl.Series], pl.Series], kind: DataType) -> pl.Expr:
    pairs = pl.struct(arguments[0].value.alias("m"), arguments[1].value.alias("k"))
    return pairs.map_batches(find, return_dtype=polars_type(kind), is_elementwise=True)


def _values(pairs: pl.Series) -> pl.Series:
    return _hits(pairs, pl.col("m").struct.field("value"))


def _presence(pairs: pl.Series) -> pl.Series:
    return _hits(pairs, pl.lit(True))


def _hits(pairs: pl.Series, value: pl.Expr) -> pl.Series:
    """Returns for each row `value` at the entry with its key, or NULL if there is none. A map has each key once."""
    frame = pairs.struct.unnest().with_row_index("row")
    entries = frame.filter(pl.col("m").list.len() > 0).explode("m")
    found = entries.filter(pl.col("m").struct.field("key") == pl.col("k")).select("row", value.alias("value"))
    return frame.select("row").join(found, on="row", how="left", maintain_order="left")["value"]


@compiles("map")
def _map(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    def build(inputs: Sequence[Compiled]) -> Compiled:
        entries = [
            pl.struct(key.value.alias("key"), value.value.alias("value"))
            for key, value in zip(inputs[::2], inputs[1::2], strict=True)
        ]
        return eager(call, inputs, pl.concat_list(entries))

    if can_be_too_large(call):
        size = total_bytes(arguments, nulls_count=True)
        built = fitting(call, arguments, size, build, masked=range(len(arguments)))
    else:
        built = build(arguments)
    keys = [key.value for key in arguments[::2]]
    if all(isinstance(key, Literal) for key in call.arguments[::2]):
        return built  # parsing has compared them
    equal = [compared("=", one, other) for one, other in combinations(arguments[::2], 2)]
    twice = pl.any_horizontal(equal or [pl.lit(False)])
    nameless = pl.any_horizontal([key.is_null() for key in keys])
    checks = (
        FailingRows.of(FailureKind.NULL_MAP_KEY, call, nameless),
        FailingRows.of(FailureKind.DUPLICATED_MAP_KEY, call, twice),
    )
    return replace(built, value=pl.when(~nameless & ~twice).then(built.value), failures=(*built.failures, *checks))


@compiles("map_from_entries")
def _from_entries(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    entries = arguments[0].value
    element = arguments[0].type.element
    (key, _), (value, _) = element.fields if element else (("", call.type), ("", call.type))
    renamed = pl.struct(pl.element().struct.field(key).alias("key"), pl.element().struct.field(value).alias("value"))
    whole = ~entries.list.eval(pl.element().is_null()).list.any()
    keys = entries.list.eval(pl.element().struct.field(key))
    nameless = keys.list.eval(pl.element().is_null()).list.any()
    twice = keys.list.n_unique() < keys.list.len()
    built = strict(call, arguments, pl.when(whole & ~nameless & ~twice).then(entries.list.eval(renamed)))
    checks = (
        FailingRows.of(FailureKind.NULL_MAP_KEY, call, whole & nameless),
        FailingRows.of(FailureKind.DUPLICATED_MAP_KEY, call, whole & twice),
    )
    return replace(built, failures=(*built.failures, *checks))
