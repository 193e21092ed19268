"""Checks whether columns can be written as a message: every value, or all except those that fail their row."""

from __future__ import annotations

from typing import Any, Final

from tidegate.datatypes import DataType
from tidegate.formats.contract import Columns, FormatRefusal
from tidegate.formats.kinds.protobuf.columns import DURATION_NAME, TIMESTAMP_NAME, is_map, own_name, single_values
from tidegate.formats.kinds.protobuf.fit import WORDS
from tidegate.formats.kinds.protobuf.schema import Descriptor

REMEDY: Final = "select the columns that the schema has, cast to its types, or name another schema"
_SMALL: Final = {"tinyint", "smallint"}
_INTS: Final = {*_SMALL, "int", "bigint"}
_TAKES: Final = {
    "bool": {"boolean"},
    "float": {*_SMALL, "float"},
    "double": {*_SMALL, "int", "float", "double"},
    "string": {"string"},
    "enum": {"string"},
    "bytes": {"binary"},
    **{word: {*_SMALL, "int"} for word in ("int32", "sint32", "sfixed32")},
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), _INTS),
    **{word: {*_INTS, "decimal"} for word in ("uint64", "fixed64")},
    TIMESTAMP_NAME: {"timestamp"},
    DURATION_NAME: _INTS,
}


def check_fields(descriptor: Descriptor, columns: Columns, place: str = "") -> None:
    """Raises FormatRefusal for the first column without a fitting field, or required field without a column."""
    fields = descriptor.fields_by_name
    for name, kind in columns:
        where = f"{place}.{name}".lstrip(".")
        if name not in fields:
            raise _refusal(where, f"{descriptor.full_name} has no field for this column")
        _check(fields[name], kind, where)
    names = {name for name, _ in columns}
    for field in descriptor.fields:
        if field.is_required and field.name not in names:
            raise _refusal(f"{place}.{field.name}".lstrip("."), "there is no column for this field, which is required")


def _check(field: Any, kind: DataType, place: str) -> None:
    values = single_values(field, kind, place)
    if values is None:
        shape = "the schema has a map" if is_map(field) else "the field is repeated"
        raise _refusal(place, f"{shape}, and the column is {kind}")
    for one in values:
        _check_one(*one)


def _check_one(field: Any, kind: DataType, place: str) -> None:
    below = field.message_type
    own = "" if below is None else own_name(below)
    if below is not None and not own:
        if kind.kind != "struct":
            raise _refusal(place, f"the schema has the message {below.full_name}, and the column is {kind}")
        check_fields(below, kind.fields, place)
        return
    wrapped = own not in _TAKES and bool(own)
    word = WORDS[below.fields_by_name["value"].type if wrapped else field.type] if own not in _TAKES else own
    takes = kind.kind in _TAKES[word] and (kind.kind != "decimal" or kind.scale == 0)
    if not takes:
        raise _refusal(place, f"the schema has {own or word}, and the column is {kind}")


def _refusal(place: str, what: str) -> FormatRefusal:
    return FormatRefusal(f"the schema does not fit at `{place}`: {what}", REMEDY)
