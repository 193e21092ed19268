"""Functions of maps, which are lists of structs of `key` and `value`. No map is created with NULL or duplicate keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

import polars as pl

from tidegate.datatypes import DataType
from tidegate.expressions.compiled.comparisons import compared
from tidegate.expressions.compiled.compiled import Compiled, FailingRows, compiles, eager, strict
from tidegate.expressions.compiled.sizes import fitting, total_bytes
from tidegate.expressions.expression import Call, Literal, can_be_too_large
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind


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


@compiles("map_keys")
def _keys(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return strict(call, arguments, arguments[0].value.list.eval(pl.element().struct.field("key")))


@compiles("map_values")
def _all_values(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return strict(call, arguments, arguments[0].value.list.eval(pl.element().struct.field("value")))


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
