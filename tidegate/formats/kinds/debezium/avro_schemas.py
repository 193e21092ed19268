"""The meaning of values according to an event's Avro schema: Connect's names in addition to Avro's types. Pure.

Connect's converters write few of its types as Avro's logical types. The others are numbers, texts and bytes with a
`connect.name` (`io.debezium.time.MicroTimestamp` for a long), which is used as the logical type here. `avro_values.py`
interprets them. The bytes are those of the type without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tidegate.datatypes import (
    MAX_PRECISION,
    RESERVED,
    SMALLINT,
    TINYINT,
    DataType,
    Schema,
    decimal_of,
    is_reserved,
    map_of,
)
from tidegate.formats.contract import Columns
from tidegate.formats.failures import FailureKind
from tidegate.formats.kinds.avro.columns import column_type
from tidegate.formats.kinds.avro.schema import AvroField, AvroRefusal, AvroType, as_encoded, parse_schema, with_logical
from tidegate.formats.kinds.debezium import OP_FIELD
from tidegate.formats.kinds.debezium.json_values import DECIMAL, NAMED
from tidegate.formats.schemas import SchemaText

BEFORE, AFTER = "before", "after"
"""The fields of an event that contain rows."""
_SMALL: Final = {"int8": TINYINT, "int16": SMALLINT}
"""Ints by their `connect.type`, which becomes the logical type."""
_NAMES_SHOWN_MAX: Final = 10
_DIGITS_MAX: Final = 4
"""Maximum number of digits of a number in a schema."""


class NoEnvelope(AvroRefusal):
    """The schema of a record that is not a change event."""

    kind = FailureKind.INCOMPLETE_CHANGE


def parse_event(schema: SchemaText) -> AvroType:
    """Parses the record of a text, with Connect's names of types as logical types. Raises AvroRefusal."""
    return parse_schema(schema, meaning)


def meaning(made: AvroType, one: Mapping[str, Any]) -> AvroType:
    """Returns a type with the meaning of its values, according to Connect or Avro, as its logical type."""
    name = one.get("connect.name")
    if name == DECIMAL and made.kind in ("bytes", "fixed"):
        return _decimal(with_logical(made, one), one)
    if isinstance(name, str) and name:
        return msgspec.structs.replace(made, logical=name)
    if made.kind == "int" and (small := one.get("connect.type")) in _SMALL:
        return msgspec.structs.replace(made, logical=small)
    return with_logical(made, one)


def _decimal(made: AvroType, one: Mapping[str, Any]) -> AvroType:
    """Sets precision and scale.

    Converters write 64 digits if they do not know the precision; the precision of the database's column is a parameter.
    """
    said = one.get("connect.parameters")
    said = said if isinstance(said, Mapping) else {}
    scale, digits = _number(said.get("scale")), _number(said.get("connect.decimal.precision"))
    scale = made.scale if scale is None else scale
    digits = made.precision if digits is None or not 0 < digits <= MAX_PRECISION else digits
    return msgspec.structs.replace(made, logical="decimal", precision=digits or MAX_PRECISION, scale=scale)


def _number(text: Any) -> int | None:
    """Parses a parameter."""
    if not isinstance(text, str) or len(text) > _DIGITS_MAX or not text.removeprefix("-").isdecimal():
        return None
    return int(text)


class Row(msgspec.Struct, frozen=True):
    """The table's row in the schema of an event."""

    sides: dict[str, dict[str, AvroType]]
    """Fields and types by `before` and `after`, if present. Debezium writes the same fields in both."""

    @property
    def fields(self) -> Mapping[str, AvroType]:
        """The fields of both sides; a field that both have has one type."""
        return {name: one for side in reversed(self.sides.values()) for name, one in side.items()}

    def place(self, name: str) -> str:
        """Returns the path of a field from the top of the event."""
        return next(f"{side}.{name}" for side in reversed(self.sides) if name in self.sides[side])


def find_row(event: AvroType) -> Row:
    """Finds the row. Raises NoEnvelope, and AvroRefusal if the envelope differs from Debezium's."""
    fields = {field.name: field.type for field in event.fields}
    sides = tuple(side for side in (BEFORE, AFTER) if side in fields)
    if OP_FIELD not in fields or not sides:
        lacks = f"`{OP_FIELD}`" if OP_FIELD not in fields else "`before` and no `after`"
        names = ", ".join(list(fields)[:_NAMES_SHOWN_MAX])
        more = ", ..." if len(fields) > _NAMES_SHOWN_MAX else ""
        what = f"its record `{event.name}` has no {lacks}; its fields are {names}{more}"
        raise NoEnvelope(
            "", f"it is not an envelope of changes: {what}; read rows without an envelope with `format: avro`"
        )
    if fields[OP_FIELD].bare.kind not in ("string", "enum"):
        raise AvroRefusal(OP_FIELD, f"the writer's type is {fields[OP_FIELD].bare.kind}, but `op` is a string")
    rows: dict[str, dict[str, AvroType]] = {}
    for side in sides:
        record = fields[side].bare
        if record.kind != "record" or not record.fields:
            raise AvroRefusal(
                side, f"the writer's type is {record.name or record.kind}, but a row is a record of columns"
            )
        rows[side] = {field.name: field.type for field in record.fields}
    for name, one in rows.get("before", {}).items():
        if rows.get("after", {}).get(name, one).bare != one.bare:
            raise AvroRefusal(
                f"before.{name}", "its type differs from that in `after`, but both are columns of one row"
            )
    return Row(rows)


def project(event: AvroType, row: Row, names: Columns) -> AvroType:
    """Returns the parts of an event that are read: the columns `names` of its rows, or any one if there are none."""
    wanted, whole = {name for name, _ in names}, as_encoded(event)
    fields = [
        field if field.name == OP_FIELD else AvroField(field.name, _pruned(field.type, wanted))
        for field in whole.fields
        if field.name == OP_FIELD or field.name in row.sides
    ]
    return msgspec.structs.replace(whole, fields=tuple(fields))


def _pruned(one: AvroType, wanted: set[str]) -> AvroType:
    if one.kind == "union":
        return msgspec.structs.replace(one, branches=tuple(_pruned(each, wanted) for each in one.branches))
    if one.kind != "record":
        return one
    found = tuple(field for field in one.fields if field.name in wanted)
    return msgspec.structs.replace(one, fields=found or one.fields[:1])


def row_columns(event: AvroType) -> Schema:
    """Returns the columns of the row in an envelope. Raises AvroRefusal for the first that cannot be a column."""
    row = find_row(event)
    for name in row.fields:
        if is_reserved(name):
            raise AvroRefusal(row.place(name), f"names of columns that begin with `{RESERVED}` belong to Tidegate")
    return {name: column_of(one, row.place(name)) for name, one in row.fields.items()}


def column_of(one: AvroType, place: str) -> DataType:
    """Returns the column type if no column was declared. Raises AvroRefusal."""
    one = one.bare
    if one.kind == "record" and one.fields:
        return DataType(
            "struct", fields=tuple((each.name, column_of(each.type, f"{place}.{each.name}")) for each in one.fields)
        )
    if one.kind == "array" and one.items is not None:
        return DataType("array", element=column_of(one.items, f"{place}[]"))
    if one.kind == "map" and one.items is not None:
        return map_of(DataType("string"), column_of(one.items, f"{place}{{}}"))
    if one.logical == "decimal":
        precision = min(one.precision, MAX_PRECISION)
        if not 0 <= one.scale <= precision:
            raise AvroRefusal(
                place, f"a decimal with {one.scale} of {precision} digits after the point cannot be a column"
            )
        return decimal_of(precision, one.scale)
    if one.logical in NAMED or one.logical in _SMALL:
        return NAMED.get(one.logical) or _SMALL[one.logical]
    return column_type(one if one.kind != "union" else as_encoded(one), place)
