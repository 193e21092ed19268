"""Avro types and columns: the column type of an Avro type, and the schema of a sink's columns.

The mapping is Spark's, extended by types that Spark does not support: nanoseconds become microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import msgspec

from tidegate.datatypes import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    MAX_PRECISION,
    RESERVED,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    Schema,
    decimal_of,
    is_reserved,
    map_of,
)
from tidegate.formats.kinds.avro.schema import AvroField, AvroRefusal, AvroType, as_json

_PLAIN: Final = {
    "boolean": BOOLEAN,
    "int": INT,
    "long": BIGINT,
    "float": FLOAT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BINARY,
    "fixed": BINARY,
    "enum": STRING,
}
_LOGICAL: Final = {
    "date": DATE,
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
    "timestamp-nanos": TIMESTAMP,
    "local-timestamp-millis": TIMESTAMP_NTZ,
    "local-timestamp-micros": TIMESTAMP_NTZ,
    "local-timestamp-nanos": TIMESTAMP_NTZ,
}
_WRITTEN: Final = {
    "boolean": AvroType("boolean"),
    "tinyint": AvroType("int"),
    "smallint": AvroType("int"),
    "int": AvroType("int"),
    "bigint": AvroType("long"),
    "float": AvroType("float"),
    "double": AvroType("double"),
    "string": AvroType("string"),
    "binary": AvroType("bytes"),
    "date": AvroType("int", logical="date"),
    "timestamp": AvroType("long", logical="timestamp-micros"),
    "timestamp_ntz": AvroType("long", logical="local-timestamp-micros"),
}


def record_columns(record: AvroType) -> Schema:
    """Returns the columns of a record's fields. Raises AvroRefusal for the first field that cannot be a column."""
    if not record.fields:
        raise AvroRefusal("", "the record has no fields")
    for field in record.fields:
        if is_reserved(field.name):
            raise AvroRefusal(field.name, f"names of columns that begin with `{RESERVED}` belong to Tidegate")
    return {field.name: column_type(field.type, field.name) for field in record.fields}


def column_type(one: AvroType, place: str) -> DataType:
    """Returns the column type of an Avro type. Raises AvroRefusal.

    Every column may be NULL, whether or not the type contains null.
    """
    if one.kind == "union":
        return _union_type(one, place)
    if one.kind == "null":
        raise AvroRefusal(place, "the type has no values; set a schema for the source without this field")
    if one.kind == "record":
        if not one.fields:
            raise AvroRefusal(place, f"the record {one.name} has no fields, and a struct needs at least one")
        return DataType(
            "struct", fields=tuple((each.name, column_type(each.type, f"{place}.{each.name}")) for each in one.fields)
        )
    if one.kind == "array" and one.items is not None:
        return DataType("array", element=column_type(one.items, f"{place}[]"))
    if one.kind == "map" and one.items is not None:
        return map_of(STRING, column_type(one.items, f"{place}{{}}"))
    if one.logical == "decimal":
        if one.precision > MAX_PRECISION:
            raise AvroRefusal(place, f"a decimal of {one.precision} digits exceeds the maximum of {MAX_PRECISION}")
        return decimal_of(one.precision, one.scale)
    return _LOGICAL.get(one.logical) or _PLAIN[one.kind]


def _union_type(one: AvroType, place: str) -> DataType:
    members = [each for each in one.branches if each.kind != "null"]
    if not members:
        raise AvroRefusal(place, "the type has no values; set a schema for the source without this field")
    if len(members) == 1:
        return column_type(members[0], place)
    kinds = {each.kind for each in members}
    plain = not any(each.logical for each in members)
    if kinds == {"int", "long"} and plain:
        return BIGINT
    if kinds == {"float", "double"}:
        return DOUBLE
    if {"int", "long"} <= kinds or {"float", "double"} <= kinds:
        raise AvroRefusal(place, "a union of two kinds of numbers and other types is not supported")
    types = [column_type(each, place) for each in members]
    return DataType("struct", fields=tuple((f"member{index}", kind) for index, kind in enumerate(types)))


def check_readable(kind: DataType, place: str) -> None:
    """Raises AvroRefusal for a column type to which no Avro type corresponds."""
    if kind.kind in ("tinyint", "smallint"):
        raise AvroRefusal(place, f"Avro has no {kind}; its smallest whole number is an int")
    if kind.kind == "map" and kind.key != STRING:
        raise AvroRefusal(place, f"the keys of {kind} are not strings, which Avro requires")
    if kind.element is not None:
        check_readable(kind.element, place)
    for name, each in kind.fields:
        check_readable(each, f"{place}.{name}")


def derive_type(kind: DataType, names: str) -> AvroType:
    """Returns the Avro type as which a column is written. `names` is the base of the names of records in it."""
    if kind.kind == "array" and kind.element is not None:
        return AvroType("array", items=nullable(derive_type(kind.element, f"{names}_item")))
    if kind.kind == "map" and kind.element is not None:
        if kind.key != STRING:
            raise AvroRefusal("", f"the keys of {kind} are not strings, which Avro requires")
        return AvroType("map", items=nullable(derive_type(kind.element, f"{names}_value")))
    if kind.kind == "struct":
        fields = tuple(derive_field(name, each, f"{names}_{name}") for name, each in kind.fields)
        return AvroType("record", names, fields=fields)
    if kind.kind == "decimal":
        return AvroType("bytes", logical="decimal", precision=kind.precision, scale=kind.scale)
    written = _WRITTEN.get(kind.kind)
    if written is None:
        raise AvroRefusal("", f"Avro has no {kind}")
    return written


def nullable(one: AvroType) -> AvroType:
    """Returns a union with null. Null comes first, so that it can be the default."""
    return AvroType("union", branches=(AvroType("null"), one))


def derive_field(name: str, kind: DataType, names: str) -> AvroField:
    """Returns a nullable record field with null as its default."""
    return AvroField(name, nullable(derive_type(kind, names)), has_default=True)


def derive_record(columns: Mapping[str, DataType], name: str) -> AvroType:
    """Returns a record of nullable columns. It is the same in every release, because registries compare schemas."""
    fields = tuple(derive_field(each, kind, f"{name}_{each}") for each, kind in columns.items())
    return tell_apart(AvroType("record", name, fields=fields))


def tell_apart(one: AvroType) -> AvroType:
    """Gives each record in a derived type a unique name.

    `order.item` and `order_item` would get the same name. If the records are equal, they stay one type; otherwise a
    number is appended to the later name.
    """
    return _told_apart(one, {})


def _told_apart(one: AvroType, taken: dict[str, AvroType]) -> AvroType:
    """`taken` holds the records of all names so far."""
    found = msgspec.structs.replace(
        one,
        fields=tuple(msgspec.structs.replace(each, type=_told_apart(each.type, taken)) for each in one.fields),
        branches=tuple(_told_apart(each, taken) for each in one.branches),
        items=one.items and _told_apart(one.items, taken),
    )
    number = 1
    while found.name and taken.setdefault(found.name, found) != found:
        number += 1
        found = msgspec.structs.replace(found, name=f"{one.name}_{number}")
    return found


def schema_text(record: AvroType) -> str:
    """Returns the JSON of a schema."""
    return json.dumps(as_json(record), ensure_ascii=False, separators=(",", ":"))
