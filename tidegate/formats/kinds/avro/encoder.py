"""Rows to records: converts columns to those that `wire.py` expects, which writes all rows at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import polars as pl
from typing_extensions import override

from tidegate.datatypes import DataType
from tidegate.formats.contract import Columns, Encoded, Encoder
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.avro.columns import fit_written
from tidegate.formats.kinds.avro.schema import DAY, MICROS, AvroType, parse_schema
from tidegate.formats.kinds.avro.wire import Wire
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
    """Returns the columns, or fields of a struct, in the form that `wire.py` expects."""
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
    """Returns the type of the column that `wire.py` expects."""
    inner = one.bare
    if inner.kind == "record":
        fields = {f"f{index}": _type(each.type) for index, each in enumerate(inner.fields) if each.type.kind != "null"}
        return pl.Struct(fields)
    if inner.kind == "array" and inner.items is not None:
        return pl.List(_type(inner.items))
    if inner.kind == "map" and inner.items is not None:
        return pl.List(pl.Struct({"f0": pl.String(), "f1": _type(inner.items)}))
    return _TYPES[inner.kind]
