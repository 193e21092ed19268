"""Batches of records to columns: what `values.py` does, ten times as fast, and only where it is proven right.

A batch is read by Polars as records of the writer's schema (`wire.py`), and written again: a row counts only if that
gives the very bytes that came. So it holds the values that these bytes stand for, whatever Polars' reader takes for
Avro. Rows that differ, and those with values that are looked at more closely (years after 9999, keys that come twice),
are left to fastavro.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any, Final, NamedTuple

import polars as pl

from tidegate.datatypes import FIRST_DAY, FIRST_MOMENT, LAST_DAY, LAST_MOMENT, MAX_PRECISION, DataType
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Columns
from tidegate.formats.kinds.avro.resolution import find_field, has_unread
from tidegate.formats.kinds.avro.schema import DAY, MICROS, AvroField, AvroType
from tidegate.formats.kinds.avro.values import default_series
from tidegate.formats.kinds.avro.wire import NotVectorised, Wire, container_head, read_block, wired, write_block

_UUID: Final = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_DOUBT: Final = "__tidegate_doubt"
_NUMBERS: Final = ("int", "long", "float", "double")


class Value(NamedTuple):
    """A column of the writer's as one of the reader's; `doubt`: where a row has to be looked at by itself."""

    value: pl.Expr
    doubt: pl.Expr | None = None
    bounds: tuple[int, int] | None = None
    """Of the writer's value; a row whose value is outside has to be looked at, too."""


class FastReader:
    """Reads bodies into frames of `columns`, which are fields of `reader`."""

    def __init__(self, writer: AvroType, reader: AvroType, columns: Columns, prefix: bytes) -> None:
        """Raises NotVectorised."""
        if has_unread(reader):
            raise NotVectorised("a type that cannot be read")
        self._wire = Wire(writer, prefix)
        kinds = dict(columns)
        self._names = list(kinds)
        self._parts: list[pl.Expr] = []
        self._constants: list[pl.Series] = []
        self._decimals: list[_Decimals] = []
        self._bounds: list[tuple[str, int, int]] = []
        doubts: list[pl.Expr] = []
        for field in reader.fields:
            found = find_field(writer, field)
            if found is None:
                if field.name in kinds:
                    self._constants.append(default_series(field.name, kinds[field.name], field.type, field.default))
                continue
            value = pl.col(f"f{writer.fields.index(found)}")
            if field.type.bare.logical == "decimal":
                self._decimals.append(_decimals(value, found.type, field, field.name in kinds))
                continue
            made = _convert(value, found.type, field.type)
            if made.bounds is not None:
                self._bounds.append((value.meta.output_name(), *made.bounds))
            doubts += [] if made.doubt is None else [made.doubt]
            self._parts += [made.value.alias(field.name)] if field.name in kinds else []
        self._doubt = reduce(or_, [one.fill_null(value=False) for one in doubts]) if doubts else None

    def read(self, bodies: Sequence[bytes]) -> tuple[pl.DataFrame, list[int]]:
        """Rows, and which of them have to be read by themselves; in these is anything.

        Raises whatever Polars raises for bytes that are no Avro, PanicException as well.
        """
        frame = self._wire.read(bodies)
        doubtful = self._verify(frame, bodies)
        made = frame.select_seq(self._parts) if self._parts else pl.DataFrame(height=frame.height)
        for name, low, high in self._bounds:
            doubtful |= _outside(frame.get_column(name), low, high)
        if self._doubt is not None:
            doubtful |= set(frame.select_seq(self._doubt.alias(_DOUBT)).to_series().arg_true())
        for one in self._decimals:
            column, outside = one.read(frame)
            doubtful |= set(outside)
            made = made.hstack([column]) if one.wanted else made
        if self._constants:
            made = made.hstack([one.new_from_index(0, frame.height) for one in self._constants])
        return made.select(self._names) if made.columns != self._names else made, sorted(doubtful)

    def _verify(self, frame: pl.DataFrame, bodies: Sequence[bytes]) -> set[int]:
        """Rows whose bytes are not those that Avro has for their values."""
        written = self._wire.write(frame)
        if written == bodies:
            return set()
        return {row for row, (one, other) in enumerate(zip(written, bodies, strict=True)) if one != other}


def _convert(value: pl.Expr, writer: AvroType, reader: AvroType) -> Value:
    """Raises NotVectorised. A writer's null that the reader has no null for is left to fastavro."""
    made = _converted(value, wired(writer), wired(reader))
    if writer.nullable and not reader.nullable:
        return made._replace(doubt=_either(made.doubt, value.is_null()))
    return made


def _outside(column: pl.Series, low: int, high: int) -> set[int]:
    """Rows. Least and greatest value are much cheaper than a look at every row."""
    least: Any = column.min()
    greatest: Any = column.max()
    if least is None or (least >= low and greatest <= high):
        return set()
    return set((~column.is_between(low, high)).arg_true())


def _within(value: pl.Expr, bounds: tuple[int, int] | None, doubt: pl.Expr | None) -> pl.Expr | None:
    """What is in doubt of a value inside another, where bounds are looked at row by row."""
    return doubt if bounds is None else _either(doubt, ~value.is_between(*bounds))


def _either(one: pl.Expr | None, other: pl.Expr | None) -> pl.Expr | None:
    if one is None or other is None:
        return other if one is None else one
    return one.fill_null(value=False) | other.fill_null(value=False)


def _converted(value: pl.Expr, writer: AvroType, reader: AvroType) -> Value:
    if writer.kind != reader.kind:
        return _logical(_promoted(value, writer, reader), reader)
    if reader.kind == "record":
        return _record(value, writer, reader)
    if reader.kind == "enum":
        known = [symbol if symbol in reader.symbols else reader.default for symbol in writer.symbols]
        made = value.replace_strict(
            list(range(len(known))), pl.Series(known, dtype=pl.String), default=None, return_dtype=pl.String
        )
        return Value(made, made.is_null() & value.is_not_null())
    if reader.kind in ("array", "map") and writer.items is not None and reader.items is not None:
        return _list(value, writer.items, reader.items, is_map=reader.kind == "map")
    return _logical(value, reader)


def _promoted(value: pl.Expr, writer: AvroType, reader: AvroType) -> pl.Expr:
    if writer.kind == "string" and reader.kind == "bytes":
        return value.cast(pl.Binary)
    if writer.kind not in _NUMBERS or reader.kind not in _NUMBERS:
        raise NotVectorised(f"{writer.kind} to {reader.kind}")
    if reader.kind == "float":  # as fastavro does it: by way of a double
        return value.cast(pl.Float64).cast(pl.Float32)
    return value.cast(pl.Float64 if reader.kind == "double" else pl.Int64)


def _record(value: pl.Expr, writer: AvroType, reader: AvroType) -> Value:
    parts: list[pl.Expr] = []
    doubt: pl.Expr | None = None
    for field in reader.fields:
        found = find_field(writer, field)
        if found is None or field.type.kind == "null":
            raise NotVectorised("a default within a value")
        inner = value.struct.field(f"f{writer.fields.index(found)}")
        made = _convert(inner, found.type, field.type)
        parts.append(made.value.alias(field.name))
        doubt = _either(doubt, _within(inner, made.bounds, made.doubt))
    return Value(pl.when(value.is_not_null()).then(pl.struct(parts)), doubt)


def _list(value: pl.Expr, writer: AvroType, reader: AvroType, *, is_map: bool) -> Value:
    element = pl.element()
    if not is_map:
        made = _convert(element, writer, reader)
        return Value(value.list.eval(made.value), _any(value, _within(element, made.bounds, made.doubt)))
    key, item = element.struct.field("f0"), element.struct.field("f1")
    made = _convert(item, writer, reader)
    twice = value.list.eval(key).list.n_unique() != value.list.len()
    entry = pl.struct(key.alias("key"), made.value.alias("value"))
    return Value(value.list.eval(entry), _either(_any(value, _within(item, made.bounds, made.doubt)), twice))


def _any(value: pl.Expr, doubt: pl.Expr | None) -> pl.Expr | None:
    """Where an element of a list is in doubt."""
    return None if doubt is None else value.list.eval(doubt.fill_null(value=False)).list.any()


def _logical(value: pl.Expr, one: AvroType) -> Value:
    """What a value of the reader's means."""
    logical = one.logical
    if not logical or logical == "duration":
        return Value(value)
    if logical == "decimal":
        raise NotVectorised("a decimal within a value")
    if logical == "uuid":
        return Value(value, ~value.str.contains(_UUID))
    if logical == "date":
        return Value(value.cast(pl.Date), bounds=(FIRST_DAY, LAST_DAY))
    if logical in DAY:
        return Value(value, bounds=(0, DAY[logical] - 1))
    family, _, unit = logical.rpartition("-")
    zone = "UTC" if family == "timestamp" else None
    factor, divisor = MICROS[unit]
    bounds = None
    if divisor > 1:
        value = value // divisor
    else:
        bounds = -(-FIRST_MOMENT // factor), LAST_MOMENT // factor
        value = value * factor if factor > 1 else value
    return Value(value.cast(pl.Datetime("us", zone)), bounds=bounds)


class DecimalReader:
    """Decimals with `scale` digits after the point, of their bytes: these are put into a block of their own, of which
    Polars' reader makes decimals.
    """

    def __init__(self, scale: int) -> None:
        described = {"type": "bytes", "logicalType": "decimal", "precision": MAX_PRECISION, "scale": scale}
        self._head = container_head(
            {"type": "record", "name": "Row", "fields": [{"name": "x", "type": ["null", described]}]}
        )

    def read(self, values: pl.DataFrame) -> pl.Series:
        """Of the one column, with at least one row: `decimal(38, scale)`. Numbers of 39 digits come through, too.

        Raises whatever Polars raises for more than 16 bytes.
        """
        return read_block(self._head, values.height, write_block(values)).to_series()


def without(column: pl.Series, rows: Sequence[int]) -> pl.Series:
    """With NULL in some rows. (`scatter` puts no NULL among decimals.)"""
    keep = pl.Series([True], dtype=pl.Boolean).new_from_index(0, len(column)).scatter(rows, [False] * len(rows))
    return column.zip_with(keep, pl.Series([None], dtype=column.dtype).new_from_index(0, len(column)))


class _Decimals(NamedTuple):
    """A column of decimals."""

    name: str
    value: pl.Expr
    reader: DecimalReader
    kind: pl.DataType
    limit: int
    wanted: bool
    required: bool
    """There is no null for the reader."""

    def read(self, frame: pl.DataFrame) -> tuple[pl.Series, list[int]]:
        """The column, and the rows that have too many digits, or none."""
        if not frame.height:
            return pl.Series(self.name, [], dtype=self.kind), []
        column = self.reader.read(frame.select_seq(self.value.alias("x")))
        unscaled = column.to_physical()
        outside = ~unscaled.is_between(-self.limit, self.limit)
        if self.required:
            outside = outside | column.is_null()
        rows = outside.fill_null(value=False).arg_true().to_list()
        if rows:
            column = without(column, rows)
        return column.cast(self.kind).alias(self.name), rows


def _decimals(value: pl.Expr, writer: AvroType, field: AvroField, wanted: bool) -> _Decimals:
    """Raises NotVectorised."""
    one = wired(field.type)
    if wired(writer).kind not in ("bytes", "fixed"):
        raise NotVectorised("a decimal of a text")
    kind = DataType("decimal", precision=one.precision, scale=one.scale)
    limit = 10**one.precision - 1
    required = writer.nullable and not field.type.nullable
    return _Decimals(field.name, value, DecimalReader(one.scale), polars_type(kind), limit, wanted, required)
