"""Checks whether columns can be written with a schema: every value, or all except those that fail their row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

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


_NATURAL: Final = {
    "int": "int",
    "bigint": "long",
    "tinyint": "int",
    "smallint": "int",
    "binary": "bytes",
    "struct": "record",
}
"""Types with different names in Avro."""
_ABSENT: Final = AvroType("boolean")
"""Replaces a type of which no value is ever written."""


def fit_written(record: AvroType, columns: Mapping[str, DataType]) -> AvroType:
    """Returns the record with one type instead of each union of several: the one written for its column.

    Raises AvroRefusal for the first field that cannot be written from columns, or column without a field.
    """
    fitted = _narrow_fields(record, columns, "")
    _check_fields(fitted, columns)
    return fitted


def _narrow_fields(record: AvroType, columns: Mapping[str, DataType], place: str) -> AvroType:
    fields = tuple(
        msgspec.structs.replace(field, type=_narrow(field.type, columns.get(field.name), f"{place}{field.name}"))
        for field in record.fields
    )
    return msgspec.structs.replace(record, fields=fields)


def _narrow(one: AvroType, kind: DataType | None, place: str) -> AvroType:
    """`kind` is None if there is no column; then only NULL is written."""
    if one.kind == "union":
        return _choose(one, kind, place)
    if kind is None:
        return one
    if one.kind == "record" and kind.kind == "struct":
        return _narrow_fields(one, dict(kind.fields), f"{place}.")
    if one.items is not None and kind.element is not None and one.kind == kind.kind:
        mark = "[]" if one.kind == "array" else "{}"
        return msgspec.structs.replace(one, items=_narrow(one.items, kind.element, f"{place}{mark}"))
    return one


def _choose(union: AvroType, kind: DataType | None, place: str) -> AvroType:
    """Chooses among the types that hold all values of a column: its natural type, else the first in the schema."""
    null = next((index for index, each in enumerate(union.branches) if each.kind == "null"), -1)
    others = [(index, each) for index, each in enumerate(union.branches) if each.kind != "null"]
    if not others or (kind is None and null < 0):
        return union  # checked later, with all fields
    if union.nullable:
        found = _ABSENT if kind is None else _narrow(union.bare, kind, place)
        return msgspec.structs.replace(
            union, branches=tuple(each if each.kind == "null" else found for each in union.branches)
        )
    if kind is None:
        index, found = others[0][0], _ABSENT
    elif len(others) == 1:
        index, found = others[0][0], _narrow(others[0][1], kind, place)
    else:
        fitting = [(index, each) for index, each in others if _holds(each, kind, place)]
        if not fitting:
            raise AvroRefusal(place, f"the schema has a union, but none of its types fits {kind}")
        index, found = min(fitting, key=lambda each: not _is_natural(each[1], kind))
        found = _narrow(found, kind, place)
    branches = (found,) if null < 0 else (AvroType("null"), found)
    return msgspec.structs.replace(union, branches=branches, chosen=(index, null))


def _is_natural(one: AvroType, kind: DataType) -> bool:
    return bool(one.logical) or one.kind == _NATURAL.get(kind.kind, kind.kind)


def _holds(one: AvroType, kind: DataType, place: str) -> bool:
    try:
        _check(_narrow(one, kind, place), kind, place)
    except AvroRefusal:
        return False
    return True


def _check_fields(record: AvroType, columns: Mapping[str, DataType], place: str = "") -> None:
    known = {field.name for field in record.fields}
    for name in columns:
        if name not in known:
            raise AvroRefusal(f"{place}{name}", f"{record.name} has no field for this column")
    for field in record.fields:
        if field.name in columns:
            _check(field.type, columns[field.name], f"{place}{field.name}")
        elif not _left_out(field):
            raise AvroRefusal(f"{place}{field.name}", "there is no column for this field, which cannot be null")
        _check_writable(field.type, f"{place}{field.name}")


def _left_out(field: AvroField) -> bool:
    return field.type.nullable or field.type.kind == "null"


def _check_writable(one: AvroType, place: str) -> None:
    """Checks that `wire.py` supports a type, including fields without a column. Raises AvroRefusal."""
    inner = one.bare
    if (inner.kind == "fixed" and not inner.size) or (
        inner.kind == "record" and all(field.type.kind == "null" for field in inner.fields)
    ):
        raise AvroRefusal(place, f"writing values of {inner.name}, which have no bytes, is not supported")
    for field in inner.fields:
        _check_writable(field.type, f"{place}.{field.name}")
    if inner.items is not None:
        _check_writable(inner.items, f"{place}{'[]' if inner.kind == 'array' else '{}'}")


def _shown(one: AvroType) -> str:
    digits = f"({one.precision},{one.scale})" if one.logical == "decimal" else ""
    return f"{one.logical or one.name or one.kind}{digits}"


def _check(one: AvroType, kind: DataType, place: str) -> None:
    inner = one.bare
    if not _fits(inner, kind):
        raise AvroRefusal(place, f"the schema has {_shown(inner)}, but the column is {kind}")
    if kind.kind == "struct":
        _check_fields(inner, dict(kind.fields), f"{place}.")
    if kind.kind == "map" and kind.key != STRING:
        raise AvroRefusal(place, "Avro's maps have strings as keys")
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
