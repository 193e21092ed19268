"""Columns to MessagePack: one map per row, fields in column order, NULL fields kept as nil.

A timestamp is the extension type -1. Dates, timestamps without zone and decimals, which MessagePack does not have, are
texts as in JSON, and decimals have all digits of their scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import polars as pl
from typing_extensions import override

from tidegate.datatypes import STRING, TIMESTAMP, DataType, holds_kind
from tidegate.formats.contract import Columns, Encoded, Encoder
from tidegate.formats.kinds.msgpack.timestamps import raw_of
from tidegate.formats.text import timestamp_text
from tidegate.native.library import loaded
from tidegate.native.msgpack import RowEncoder

_EMPTY: Final = b"\x80"
_TEXTS: Final = ("date", "decimal", "timestamp_ntz")


class MsgpackEncoder(Encoder):
    """Writes frames as maps of these columns: in C where it was compiled, otherwise with msgspec, in the same bytes."""

    def __init__(self, columns: Columns) -> None:
        self._ready = ready_columns(columns)
        library = loaded()
        self._write = (
            RowWriter(columns).write if library is None else RowEncoder(library.free, written_type(columns)).encode
        )

    @override
    def encode(self, frame: pl.DataFrame) -> Encoded:
        if not self._ready:
            return Encoded(pl.DataFrame([pl.Series("value", [_EMPTY]).new_from_index(0, frame.height)]))
        return Encoded(pl.DataFrame([self._write(frame.select_seq(self._ready))]))


def ready_columns(columns: Columns) -> list[pl.Expr]:
    """Returns the columns with texts instead of what MessagePack does not have."""
    return [_ready(pl.col(name), kind).alias(name) for name, kind in columns]


class RowWriter:
    """Writes rows of such columns with msgspec."""

    def __init__(self, columns: Columns) -> None:
        names = {f"f{index}": name for index, (name, _) in enumerate(columns)}
        self._record = msgspec.defstruct("Record", list(names), rename=names, gc=False)
        self._values = [_values_of(kind) for _, kind in columns]

    def write(self, frame: pl.DataFrame) -> pl.Series:
        """Returns the column `value`."""
        columns = [values_of(column) for values_of, column in zip(self._values, frame.get_columns(), strict=True)]
        values = list(map(msgspec.msgpack.Encoder().encode, map(self._record, *columns)))
        return pl.Series("value", values, dtype=pl.Binary)


def written_type(columns: Columns) -> DataType:
    """Returns the types of `ready_columns`."""
    return DataType("struct", fields=tuple((name, _type_of(kind)) for name, kind in columns))


def _type_of(kind: DataType) -> DataType:
    if kind.kind in _TEXTS:
        return STRING
    fields = tuple((name, _type_of(part)) for name, part in kind.fields)
    element, key = (None if one is None else _type_of(one) for one in (kind.element, kind.key))
    return DataType(kind.kind, element, fields, key)


def _ready(value: pl.Expr, kind: DataType) -> pl.Expr:
    """Replaces what MessagePack does not have by text."""
    if kind.kind in ("date", "decimal"):
        return value.cast(pl.String)
    if kind.kind == "timestamp_ntz":
        return timestamp_text(value, pl.Datetime("us"))
    if not holds_kind(kind, _TEXTS):
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
    """Returns the conversion of a column to Python objects. Timestamps in other values are datetimes."""
    if kind == TIMESTAMP:
        return lambda column: list(map(raw_of, column.to_physical().to_list()))
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
