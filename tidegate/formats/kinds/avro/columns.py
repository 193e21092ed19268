"""Avro types and columns: the column type of an Avro type, the schema of a sink's columns, and whether columns fit one.

The mapping is Spark's, with one rule for all unions of several types, and extended by nanoseconds.
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


# -- whether columns can be written with a schema ----------------------------------------------------------------------


_TAKES: Final = {
    "boolean": {"boolean"},
    "tinyint": {"int", "long", "float", "double"},
    "smallint": {"int", "long", "float", "double"},
    "int": {"int", "long", "double"},
    "bigint": {"long"},
    "float": {"float", "double"},
    "double": {"double"},
    "string": {"string", "enum"},
    "binary": {"bytes", "fixed"},
}
_TAKES_LOGICAL: Final = {"date": "date", "timestamp": "timestamp-", "timestamp_ntz": "local-timestamp-"}
_OF_PLAIN: Final = {"": set(_TAKES), "uuid": {"string"}, "duration": {"binary"}}
_OF_TIMES: Final = {"tinyint", "smallint", "int", "bigint"}
_ABSENT: Final = (AvroType("null"), AvroType("boolean"))
"""The union of a field without a column, of which only null is written; or the other way round."""


def fit_written(record: AvroType, columns: Mapping[str, DataType], place: str = "") -> AvroType:
    """Returns the record as which columns are written: fields without a column are null, whatever else they may be.

    Raises AvroRefusal for the first field that cannot be written, or column without a field.
    """
    known = {field.name for field in record.fields}
    for name in columns:
        if name not in known:
            raise AvroRefusal(f"{place}{name}", f"{record.name} has no field for this column")
    fields = tuple(
        msgspec.structs.replace(field, type=_fit(field.type, columns.get(field.name), f"{place}{field.name}"))
        for field in record.fields
    )
    return msgspec.structs.replace(record, fields=fields)


def _fit(one: AvroType, kind: DataType | None, place: str) -> AvroType:
    """`kind` is None if there is no column."""
    if kind is None:
        return _fit_absent(one, place)
    if one.kind == "union" and not one.nullable:
        raise AvroRefusal(place, "the schema has a union, but sinks write only those of null and one type")
    inner = one.bare
    if not _fits(inner, kind):
        raise AvroRefusal(place, f"the schema has {_shown(inner)}, but the column is {kind}")
    if kind.kind == "map" and kind.key != STRING:
        raise AvroRefusal(place, "Avro's maps have strings as keys")
    if kind.kind == "struct":
        inner = fit_written(inner, dict(kind.fields), f"{place}.")
    if kind.element is not None and inner.items is not None:
        items = _fit(inner.items, kind.element, f"{place}{'[]' if kind.kind == 'array' else '{}'}")
        inner = msgspec.structs.replace(inner, items=items)
    if inner.kind == "fixed" and not inner.size:
        raise AvroRefusal(place, f"writing values of {inner.name}, which have no bytes, is not supported")
    branches = tuple(each if each.kind == "null" else inner for each in one.branches)
    return msgspec.structs.replace(one, branches=branches) if branches else inner


def _fit_absent(one: AvroType, place: str) -> AvroType:
    if one.kind == "null":
        return one
    nulls = [each.kind == "null" for each in one.branches[:2]]
    if not any(nulls):
        raise AvroRefusal(place, "there is no column for this field, which cannot be null as its first or second type")
    return AvroType("union", branches=_ABSENT if nulls[0] else _ABSENT[::-1])


def _shown(one: AvroType) -> str:
    digits = f"({one.precision},{one.scale})" if one.logical == "decimal" else ""
    return f"{one.logical or one.name or one.kind}{digits}"


def _fits(one: AvroType, kind: DataType) -> bool:
    if kind.kind in ("array", "map"):
        return one.kind == kind.kind
    if kind.kind == "struct":
        return one.kind == "record"
    if kind.kind == "decimal":
        return one.logical == "decimal" and one.scale == kind.scale and one.precision >= kind.precision
    if kind.kind in _TAKES_LOGICAL:
        return one.logical.startswith(_TAKES_LOGICAL[kind.kind])
    if one.logical.startswith("time-"):
        return kind.kind in _OF_TIMES and one.kind in _TAKES[kind.kind]
    return one.kind in _TAKES.get(kind.kind, ()) and kind.kind in _OF_PLAIN.get(one.logical, ())
