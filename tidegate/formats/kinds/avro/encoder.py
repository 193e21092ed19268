"""Rows to records: converts columns, and writes all rows at once with Polars' writer of Avro container files (ADR 43).

The writer puts a union index in front of every value, as if all were nullable, and does not support fixed types. So a
column of random bytes, a *guard*, is placed in front of each value that is to be written otherwise, and the guard is
replaced together with the byte after it. Another guard ends every row. Guards are twelve random bytes that never leave
the process, so a value containing one is not to be expected. The most frequent guard, for fields that are never null,
has three bytes, because its length matters. The number of its occurrences is known and checked, and if a value contains
it, new guards are drawn.
"""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import polars as pl
from typing_extensions import override

from tidegate.datatypes import DataType
from tidegate.formats.contract import Columns, Encoded, Encoder
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.avro.columns import fit_written
from tidegate.formats.kinds.avro.schema import DAY, MICROS, AvroType, parse_schema
from tidegate.formats.schema_ids import prefix_of
from tidegate.formats.schemas import FormatOptions

_UUID: Final = "^(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_NANOS_MAX: Final = (2**63 - 1) // 1000
_TYPES: Final = {
    "boolean": pl.Boolean(),
    "int": pl.Int32(),
    "long": pl.Int64(),
    "float": pl.Float32(),
    "double": pl.Float64(),
    "string": pl.String(),
    "bytes": pl.Binary(),
    "fixed": pl.Binary(),
    "enum": pl.Int32(),
}


class WriteCheck(NamedTuple):
    """Rows that cannot be written, and the reason."""

    failing: pl.Expr
    kind: FailureKind
    message: str
    nulls_of: str = ""
    """The column whose NULLs they are; its null count makes the check free."""


class AvroEncoder(Encoder):
    """Writes frames as Avro records of one schema."""

    def __init__(self, columns: Columns, options: FormatOptions) -> None:
        """Raises AvroRefusal if the columns do not fit the schema of `options`."""
        assert options.schema is not None
        kinds = dict(columns)
        record = fit_written(parse_schema(options.schema), kinds)
        self._wire = Wire(record, prefix_of(options))
        self._checks: list[WriteCheck] = []
        self._parts = _parts(record, kinds, pl.col, self._checks, "")

    @override
    def encode(self, frame: pl.DataFrame) -> Encoded:
        failures = self._failures(frame)
        failed = {failure.row for failure in failures}
        good = frame.filter(~pl.int_range(pl.len()).is_in(sorted(failed))) if failed else frame
        values: list[bytes | None] = list(self._wire.write(good.select_seq(self._parts)))
        if failed:
            written = iter(values)
            values = [None if row in failed else next(written) for row in range(frame.height)]
        return Encoded(pl.DataFrame([pl.Series("value", values, dtype=pl.Binary)]), failures)

    def _failures(self, frame: pl.DataFrame) -> list[RecordFailure]:
        checks = [one for one in self._checks if not one.nulls_of or frame.get_column(one.nulls_of).null_count()]
        if not checks:
            return []
        found = frame.select_seq(one.failing.fill_null(value=False).alias(f"{i}") for i, one in enumerate(checks))
        first: dict[int, WriteCheck] = {}
        for check, column in zip(checks, found.get_columns(), strict=True):
            if column.any():
                for row in column.arg_true():
                    first.setdefault(row, check)
        return [RecordFailure(row, first[row].kind, first[row].message) for row in sorted(first)]


def _parts(
    record: AvroType,
    kinds: Mapping[str, DataType],
    value_of: Callable[[str], pl.Expr],
    checks: list[WriteCheck],
    place: str,
) -> list[pl.Expr]:
    """Returns the columns, or fields of a struct, in the form that `Wire` expects."""
    made = []
    for index, field in enumerate(record.fields):
        if field.type.kind == "null":
            continue
        if field.name in kinds:
            where = f"{place}{field.name}"
            part = _written(value_of(field.name), kinds[field.name], field.type, checks, where)
        else:
            part = pl.lit(None, dtype=_type(field.type))
        made.append(part.alias(f"f{index}"))
    return made


def _written(value: pl.Expr, kind: DataType, one: AvroType, checks: list[WriteCheck], place: str) -> pl.Expr:
    inner = one.bare
    if not one.nullable:
        message = f"`{place}` is NULL, but the schema does not allow null there"
        checks.append(WriteCheck(value.is_null(), FailureKind.NULL_VALUE, message, nulls_of=place))
    if kind.kind == "struct":
        within: list[WriteCheck] = []
        parts = _parts(inner, dict(kind.fields), value.struct.field, within, f"{place}.")
        checks += [each._replace(failing=each.failing & value.is_not_null(), nulls_of="") for each in within]
        return pl.when(value.is_not_null()).then(pl.struct(parts))
    if kind.element is not None and inner.items is not None:
        return _list(value, kind, inner.items, checks, place)
    return _leaf(value, kind, inner, checks, place)


def _list(value: pl.Expr, kind: DataType, items: AvroType, checks: list[WriteCheck], place: str) -> pl.Expr:
    assert kind.element is not None
    within: list[WriteCheck] = []
    element = pl.element()
    if kind.kind == "array":
        made = _written(element, kind.element, items, within, f"{place}[]")
    else:
        item = _written(element.struct.field("value"), kind.element, items, within, f"{place}{{}}")
        made = pl.struct(element.struct.field("key").alias("f0"), item.alias("f1"))
    for each in within:
        failing = value.list.eval(each.failing.fill_null(value=False)).list.any()
        checks.append(each._replace(failing=failing, nulls_of=""))
    return value.list.eval(made)


def _leaf(value: pl.Expr, kind: DataType, one: AvroType, checks: list[WriteCheck], place: str) -> pl.Expr:
    if one.kind == "enum":
        numbers = pl.Series(range(len(one.symbols)), dtype=pl.Int32)
        made = value.replace_strict(pl.Series(one.symbols), numbers, default=None, return_dtype=pl.Int32)
        message = f"`{place}` is not a symbol of {one.name}"
        checks.append(WriteCheck(made.is_null() & value.is_not_null(), FailureKind.OUT_OF_RANGE, message))
        return made
    if one.kind == "fixed" and one.logical != "decimal":
        checks.append(
            WriteCheck(
                value.bin.size() != one.size, FailureKind.OUT_OF_RANGE, f"`{place}` does not have {one.size} bytes"
            )
        )
        return value
    if one.logical == "uuid":
        checks.append(WriteCheck(~value.str.contains(_UUID), FailureKind.OUT_OF_RANGE, f"`{place}` is not a UUID"))
        return value
    if one.logical in DAY:  # otherwise the record would be written, and fail when it is read
        outside = ~value.is_between(0, DAY[one.logical] - 1)
        checks.append(WriteCheck(outside, FailureKind.OUT_OF_RANGE, f"`{place}` is not a time of day"))
    if one.logical == "decimal":
        size = one.size if one.kind == "fixed" else None
        return value.map_batches(lambda column: _decimal_bytes(column, size), return_dtype=pl.Binary)
    if kind.kind in ("timestamp", "timestamp_ntz"):
        return _moment(value.cast(pl.Int64), one, checks, place)
    return value.cast(_TYPES[one.kind])


def _moment(value: pl.Expr, one: AvroType, checks: list[WriteCheck], place: str) -> pl.Expr:
    factor, divisor = MICROS[one.logical.rpartition("-")[2]]
    if divisor > 1:
        message = f"`{place}` is too far from 1970 for nanoseconds"
        checks.append(WriteCheck(~value.is_between(-_NANOS_MAX, _NANOS_MAX), FailureKind.OUT_OF_RANGE, message))
        return value * divisor
    return value // factor if factor > 1 else value


def _decimal_bytes(column: pl.Series, size: int | None) -> pl.Series:
    """Returns unscaled numbers in big-endian order, as short as possible if there is no `size`."""
    made = [
        None if value is None else value.to_bytes(size or (value.bit_length() + 8) >> 3, "big", signed=True)
        for value in column.to_physical().to_list()
    ]
    return pl.Series(column.name, made, dtype=pl.Binary)


def _type(one: AvroType) -> pl.DataType:
    """Returns the type of the column that `Wire` expects."""
    inner = one.bare
    if inner.kind == "record":
        fields = {f"f{index}": _type(each.type) for index, each in enumerate(inner.fields) if each.type.kind != "null"}
        return pl.Struct(fields)
    if inner.kind == "array" and inner.items is not None:
        return pl.List(_type(inner.items))
    if inner.kind == "map" and inner.items is not None:
        return pl.List(pl.Struct({"f0": pl.String(), "f1": _type(inner.items)}))
    return _TYPES[inner.kind]


# -- bytes -------------------------------------------------------------------------------------------------------------


_GUARD_BYTES: Final = 12
_SHORT_BYTES: Final = 2
_DRAWS_MAX: Final = 20
_NULL, _VALUE = b"\0", b"\2"
"""The union index, null first."""


def zigzag(value: int) -> bytes:
    """Encodes an Avro long."""
    left = (value << 1) ^ (value >> 63)
    made = bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def write_block(frame: pl.DataFrame) -> bytes:
    """Returns the concatenated records of nullable columns."""
    stream = io.BytesIO()
    frame.write_avro(stream)
    written = stream.getvalue()
    sync = written[-16:]
    place = written.index(sync) + 16
    parts = []
    while place < len(written):
        _, place = _long(written, place)
        size, place = _long(written, place)
        parts.append(written[place : place + size])
        place += size + 16
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _long(data: bytes, place: int) -> tuple[int, int]:
    """Reads a long that is not negative, and returns it with the offset of what follows."""
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value >> 1, place


class Wire:
    """Writes records of a type, each with a prefix.

    Frames have columns `f0`, `f1` ..., one per field. Enums are given as numbers, maps as lists of structs of `f0` and
    `f1`, and structs have fields `f0` ....
    """

    def __init__(self, record: AvroType, prefix: bytes) -> None:
        self._prefix = prefix
        self._fields = _fields(record)
        self._draw()

    def _draw(self) -> None:
        """Draws new guards."""
        plan = _Plan()
        self._columns = [part for name, one in self._fields for part in plan.field(pl.col(name), one, top=True)]
        row = os.urandom(_GUARD_BYTES)
        self._columns.append(pl.lit(row + self._prefix).alias("row"))
        self._end = _VALUE + zigzag(_GUARD_BYTES + len(self._prefix)) + row
        self._replaced = plan.replaced
        self._short, self._short_count = plan.short, plan.short_count

    def write(self, frame: pl.DataFrame) -> list[bytes]:
        """Returns a body for each row, with the prefix."""
        if not frame.height:
            return []
        for _ in range(_DRAWS_MAX):
            block = write_block(frame.select_seq(self._columns))
            if not self._short_count or block.count(self._short) == self._short_count * frame.height:
                return self._cut(block, frame.height)
            self._draw()
        raise RuntimeError("rows of Avro have the bytes of every guard")

    def _cut(self, block: bytes, rows: int) -> list[bytes]:
        data = self._prefix + block
        if self._short_count:
            data = data.replace(_VALUE + self._short + _VALUE, b"")
        for guard, instead in self._replaced:
            data = data.replace(guard, instead)
        bodies = data.split(self._end)
        if len(bodies) != rows + 1 or bodies.pop() != self._prefix:
            raise RuntimeError("rows of Avro have the bytes of their own guard")
        return bodies


def _fields(record: AvroType) -> list[tuple[str, AvroType]]:
    """Returns the fields that take bytes, with their names."""
    return [(f"f{place}", field.type) for place, field in enumerate(record.fields) if field.type.kind != "null"]


class _Plan:
    """Columns for Polars' writer, and the replacements in the bytes that it writes."""

    def __init__(self) -> None:
        self.replaced: list[tuple[bytes, bytes]] = []
        self._guards: dict[tuple[bytes, tuple[tuple[bytes, bytes], ...]], bytes] = {}
        self._names = itertools.count()
        short = b""
        while len(set(short)) < _SHORT_BYTES:
            short = bytes(0x80 | byte for byte in os.urandom(_SHORT_BYTES))
        self._guard_short = short
        self.short = zigzag(_SHORT_BYTES) + short
        """The short guard with its length. None of its suffixes is a prefix of it, so every occurrence is found."""
        self.short_count = 0
        """How often it occurs in a row."""

    def field(self, value: pl.Expr, one: AvroType, ahead: bytes = _VALUE, *, top: bool = False) -> list[pl.Expr]:
        """Returns the columns of a value.

        `ahead` holds the indexes that the writer puts in front of the first column. `top` means that the value occurs
        once in every row.
        """
        inner = one.bare
        index = _VALUE + zigzag(inner.size) if inner.kind == "fixed" else _VALUE
        if not one.nullable:
            if inner.kind == "record":
                parts = [] if ahead == _VALUE else [self._guard(ahead, ((b"", b""),))]
                for name, each in _fields(inner):
                    parts += self.field(value.struct.field(name), each, top=top)
                return parts
            if top and index == _VALUE:
                self.short_count += 1
                return [self._named(pl.lit(self._guard_short)), self._named(self._value(value, inner))]
            return [self._guard(ahead, ((index, b""),)), self._named(self._value(value, inner))]
        if one.branches[0].kind != "null":  # index 0 is the value
            ends = ((index, _NULL), (_NULL, _VALUE))
            return [self._guard(ahead, ends), self._named(self._value(value, inner))]
        if inner.kind == "fixed":
            ends = ((index, _VALUE), (_NULL, _NULL))
            return [self._guard(ahead, ends), self._named(value)]
        return [self._named(self._value(value, inner))]

    def _value(self, value: pl.Expr, one: AvroType) -> pl.Expr:
        """Returns a single column."""
        if one.kind == "record":
            parts = [part for name, each in _fields(one) for part in self.field(value.struct.field(name), each)]
            return pl.when(value.is_not_null()).then(pl.struct(parts))
        if one.kind == "map" and one.items is not None:
            entry = [self._guard(_VALUE + _VALUE, ((b"", b""),))]
            entry += self.field(pl.element().struct.field("f0"), AvroType("string"))
            entry += self.field(pl.element().struct.field("f1"), one.items)
            return value.list.eval(pl.struct(entry))
        if one.kind == "array" and one.items is not None:
            parts = self.field(pl.element(), one.items, _VALUE + _VALUE)
            return value.list.eval(parts[0] if len(parts) == 1 else pl.struct(parts))
        return value

    def _named(self, value: pl.Expr) -> pl.Expr:
        return value.alias(f"c{next(self._names)}")

    def _guard(self, ahead: bytes, ends: tuple[tuple[bytes, bytes], ...]) -> pl.Expr:
        """Returns a column in front of another. `ends` maps the bytes that follow it to their replacements."""
        guard = self._guards.get((ahead, ends))
        if guard is None:
            guard = self._guards[ahead, ends] = os.urandom(_GUARD_BYTES)
            whole = ahead + zigzag(_GUARD_BYTES) + guard
            self.replaced += [(whole + end, instead) for end, instead in ends]
        return self._named(pl.lit(guard))
