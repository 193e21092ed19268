"""Whether columns can be written with a schema: every value of theirs, or all but those that a row fails for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate.datatypes import STRING, DataType
from tidegate.formats.kinds.avro.schema import AvroField, AvroRefusal, AvroType

_NUMBERS: Final = {
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
_LOGICAL: Final = {"date": "date", "timestamp": "timestamp-", "timestamp_ntz": "local-timestamp-", "decimal": "decimal"}
_OF_PLAIN: Final = {"": set(_NUMBERS), "uuid": {"string"}, "duration": {"binary"}}
_OF_TIMES: Final = {"tinyint", "smallint", "int", "bigint"}


def check_fields(record: AvroType, columns: Mapping[str, DataType], place: str = "") -> None:
    """Raises AvroRefusal for the first field that cannot be written from columns, or column that has no field."""
    known = {field.name for field in record.fields}
    for name in columns:
        if name not in known:
            raise AvroRefusal(f"{place}{name}", f"{record.name} has no field for this column")
    for field in record.fields:
        if field.name in columns:
            _check(field.type, columns[field.name], f"{place}{field.name}")
        elif not _left_out(field):
            raise AvroRefusal(f"{place}{field.name}", "there is no column for this field, and it cannot be null")
        _check_writable(field.type, f"{place}{field.name}")


def _left_out(field: AvroField) -> bool:
    return field.type.nullable or field.type.kind == "null"


def _check_writable(one: AvroType, place: str) -> None:
    """Whether `wire.py` can write it, a field without a column included. Raises AvroRefusal."""
    if one.kind == "union" and not one.nullable:
        raise AvroRefusal(place, "writing a union of several types is not supported yet")
    inner = one.bare
    if (inner.kind == "fixed" and not inner.size) or (
        inner.kind == "record" and all(field.type.kind == "null" for field in inner.fields)
    ):
        raise AvroRefusal(place, f"writing values of {inner.name}, which have no bytes, is not supported yet")
    for field in inner.fields:
        _check_writable(field.type, f"{place}.{field.name}")
    if inner.items is not None:
        _check_writable(inner.items, f"{place}{'[]' if inner.kind == 'array' else '{}'}")


def _check(one: AvroType, kind: DataType, place: str) -> None:
    if one.kind == "union" and not one.nullable:
        raise AvroRefusal(place, "writing a union of several types is not supported yet")
    inner = one.bare
    if not _fits(inner, kind):
        raise AvroRefusal(
            place, f"the schema has {inner.logical or inner.name or inner.kind}, and the column is {kind}"
        )
    if kind.kind == "struct":
        check_fields(inner, dict(kind.fields), f"{place}.")
    if kind.kind == "map" and kind.key != STRING:
        raise AvroRefusal(place, "the keys of a map are strings in Avro")
    if kind.element is not None and inner.items is not None:
        _check(inner.items, kind.element, f"{place}{'[]' if kind.kind == 'array' else '{}'}")


def _fits(one: AvroType, kind: DataType) -> bool:
    if kind.kind in ("array", "map"):
        return one.kind == kind.kind
    if kind.kind == "struct":
        return one.kind == "record"
    if kind.kind == "decimal":
        return one.logical == "decimal" and one.scale == kind.scale and one.precision >= kind.precision
    if kind.kind in _LOGICAL:
        return one.logical.startswith(_LOGICAL[kind.kind])
    if one.logical.startswith("time-"):
        return kind.kind in _OF_TIMES and one.kind in _NUMBERS[kind.kind]
    return one.kind in _NUMBERS.get(kind.kind, ()) and kind.kind in _OF_PLAIN.get(one.logical, ())
