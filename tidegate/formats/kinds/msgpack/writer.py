"""Columns to MessagePack: one map per row, fields in column order, NULL fields kept as nil.

A timestamp is the extension type -1. Dates, timestamps without zone and decimals, which MessagePack does not have, are
texts as in JSON, and decimals have all digits of their scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import polars as pl
from typing_extensions import override

from tidegate.datatypes import DataType, holds_kind
from tidegate.formats.contract import Columns, Encoded, Encoder, FormatRefusal
from tidegate.formats.text import timestamp_text


class MsgpackEncoder(Encoder):
    """Writes frames as maps of these columns."""

    def __init__(self, columns: Columns) -> None:
        names = {f"f{index}": name for index, (name, _) in enumerate(columns)}
        self._record = msgspec.defstruct("Record", list(names), rename=names, gc=False)
        self._ready = [_ready(pl.col(name), kind).alias(name) for name, kind in columns]
        self._values = [_values_of(kind) for _, kind in columns]

    @override
    def encode(self, frame: pl.DataFrame) -> Encoded:
        found = frame.select_seq(self._ready).get_columns()
        columns = [values_of(column) for values_of, column in zip(self._values, found, strict=True)]
        records = map(self._record, *columns) if columns else (self._record() for _ in range(frame.height))
        values = list(map(msgspec.msgpack.Encoder().encode, records))
        return Encoded(pl.DataFrame([pl.Series("value", values, dtype=pl.Binary)]))


def _ready(value: pl.Expr, kind: DataType) -> pl.Expr:
    """Replaces what MessagePack does not have by text."""
    if kind.kind in ("date", "decimal"):
        return value.cast(pl.String)
    if kind.kind == "timestamp_ntz":
        return timestamp_text(value, pl.Datetime("us"))
    if not holds_kind(kind, ("date", "decimal", "timestamp_ntz")):
        return value
    if kind.kind == "struct":
        parts = [_ready(value.struct.field(name), part).alias(name) for name, part in kind.fields]
        return pl.when(value.is_not_null()).then(pl.struct(parts))
    assert kind.element is not None
    if kind.kind == "array":
        return value.list.eval(_ready(pl.element(), kind.element))
    assert kind.key is not None
    entry = pl.element().struct
    key, item = _ready(entry.field("key"), kind.key), _ready(entry.field("value"), kind.element)
    return value.list.eval(pl.struct(key.alias("key"), item.alias("value")))


def _values_of(kind: DataType) -> Callable[[pl.Series], Sequence[Any]]:
    """Returns the conversion of a column to Python objects."""
    if not holds_kind(kind, ("map",)):
        return pl.Series.to_list
    with_maps = _with_maps(kind)
    return lambda column: [None if one is None else with_maps(one) for one in column.to_list()]


def _with_maps(kind: DataType) -> Callable[[Any], Any]:
    """Returns a function that makes dictionaries of the lists of entries in a value."""
    if not holds_kind(kind, ("map",)):
        return lambda value: value
    if kind.kind == "struct":
        parts = {name: _with_maps(part) for name, part in kind.fields}
        return lambda value: {name: None if one is None else parts[name](one) for name, one in value.items()}
    assert kind.element is not None
    inner = _with_maps(kind.element)
    if kind.kind == "array":
        return lambda value: [None if one is None else inner(one) for one in value]
    return lambda value: {one["key"]: None if one["value"] is None else inner(one["value"]) for one in value}


# -- values as people write them, in tests -----------------------------------------------------------------------------


def msgpack_of(value: Any) -> bytes:
    """Encodes plain JSON data. Raises FormatRefusal.

    A number with a fraction becomes a float, or text if no float has its digits.
    """
    try:
        return msgspec.msgpack.encode(_with_floats(value))
    except (OverflowError, UnicodeEncodeError, msgspec.EncodeError) as error:
        raise FormatRefusal(f"MessagePack cannot hold the value: {error}", "write another value") from error


def _with_floats(value: Any) -> Any:
    if isinstance(value, Decimal):
        nearest = float(value)
        return nearest if Decimal(repr(nearest)) == value else str(value)
    if isinstance(value, dict):
        return {name: _with_floats(one) for name, one in value.items()}
    return [_with_floats(one) for one in value] if isinstance(value, list) else value
