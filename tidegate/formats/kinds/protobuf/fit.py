"""Whether a message fits: a writer's with a reader's, by field numbers, and that of a schema with a sink's columns.

The library reads a field by the number and wire type that it knows, whatever the writer's type: a long becomes an int
without its upper half, and text with another wire type is treated as an unknown field. So the types are compared, once
per schema, and a field is read only if no value changes.
"""

from __future__ import annotations

from typing import Any, Final

from tidegate.datatypes import DataType
from tidegate.formats.contract import Columns, FormatRefusal
from tidegate.formats.kinds.protobuf.columns import (
    DURATION_NAME,
    TIMESTAMP_NAME,
    field_column,
    is_map,
    own_name,
    single_values,
)
from tidegate.formats.kinds.protobuf.schema import Descriptor

GROUP, MESSAGE = 10, 11
WORDS: Final = (
    "",
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message"),
    *("bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
"""Names of types by their number in descriptors."""
_WIDER: Final = {
    "int32": {"int64"},
    "uint32": {"uint64", "int64"},
    "bool": {"int32", "int64", "uint32", "uint64"},
    "enum": {"int32", "int64"},
    "sint32": {"sint64"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_WIDER_COLUMNS: Final = {"int": {"bigint", "double"}, "float": {"double"}}


class Unfit(Exception):
    """Values of a field cannot be read."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(f"at `{place}`: {what}")


def check_columns(descriptor: Descriptor, columns: Columns, place: str = "") -> None:
    """Checks that columns can be read from the fields of the same name. Raises Unfit.

    A column without a field is NULL.
    """
    for name, kind in columns:
        field = descriptor.fields_by_name.get(name)
        if field is not None:
            _check_column(field, kind, f"{place}.{name}".lstrip("."))


def _check_column(field: Any, kind: DataType, place: str) -> None:
    values = single_values(field, kind, place)
    if values is None:
        shape = "a map" if is_map(field) else "repeated"
        raise Unfit(place, f"the writer's type is {shape}, but the column is {kind}")
    for one in values:
        _check_one(*one)


def _check_one(field: Any, kind: DataType, place: str) -> None:
    below = field.message_type
    if below is not None and not own_name(below):
        if kind.kind != "struct":
            raise Unfit(place, f"the writer's type is the message {below.full_name}, but the column is {kind}")
        check_columns(below, kind.fields, place)
        return
    found = field_column(field)
    found = found.element if field.is_repeated and found.element is not None else found
    if found != kind and kind.kind not in _WIDER_COLUMNS.get(found.kind, ()):
        raise Unfit(place, f"the writer's type is {_word(field)}, which cannot become {kind}")


def check_compatible(writer: Descriptor, reader: Descriptor) -> None:
    """Checks that a reader gets the values that were written. Raises Unfit."""
    if writer.full_name != reader.full_name:
        raise Unfit(reader.full_name, f"the record is a message {writer.full_name}")
    _compare(writer, reader, "", set())


def _compare(writer: Descriptor, reader: Descriptor, place: str, seen: set[tuple[str, str]]) -> None:
    pair = (writer.full_name, reader.full_name)
    if pair in seen:
        return
    seen.add(pair)
    for field in reader.fields:
        other = writer.fields_by_number.get(field.number)
        if other is not None:
            where = f"{place}.{field.name}".lstrip(".")
            if is_map(other) is not is_map(field) or (other.is_repeated and not field.is_repeated):
                raise Unfit(where, f"the writer's type is {_word(other)}, the reader's {_word(field)}")
            _compare_types(other, field, where, seen)


def _compare_types(writer: Any, reader: Any, place: str, seen: set[tuple[str, str]]) -> None:
    written, read = WORDS[writer.type], WORDS[reader.type]
    if written != read and read not in _WIDER.get(written, ()):
        raise Unfit(place, f"the writer's type is {_word(writer)}, the reader's {_word(reader)}")
    if reader.message_type is None:
        return
    if own_name(writer.message_type) != own_name(reader.message_type):
        raise Unfit(place, f"the writer's type is {_word(writer)}, the reader's {_word(reader)}")
    _compare(writer.message_type, reader.message_type, place, seen)


def _word(field: Any) -> str:
    if is_map(field):
        return "a map"
    word = field.message_type.full_name if field.message_type is not None else WORDS[field.type]
    return f"repeated {word}" if field.is_repeated else str(word)


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
            raise _refusal(f"{place}.{field.name}".lstrip("."), "there is no column for this required field")


def _check(field: Any, kind: DataType, place: str) -> None:
    values = single_values(field, kind, place)
    if values is None:
        shape = "the schema has a map" if is_map(field) else "the field is repeated"
        raise _refusal(place, f"{shape}, but the column is {kind}")
    for one in values:
        _check_written(*one)


def _check_written(field: Any, kind: DataType, place: str) -> None:
    below = field.message_type
    own = "" if below is None else own_name(below)
    if below is not None and not own:
        if kind.kind != "struct":
            raise _refusal(place, f"the schema has the message {below.full_name}, but the column is {kind}")
        check_fields(below, kind.fields, place)
        return
    wrapped = own not in _TAKES and bool(own)
    word = WORDS[below.fields_by_name["value"].type if wrapped else field.type] if own not in _TAKES else own
    takes = kind.kind in _TAKES[word] and (kind.kind != "decimal" or kind.scale == 0)
    if not takes:
        raise _refusal(place, f"the schema has {own or word}, but the column is {kind}")


def _refusal(place: str, what: str) -> FormatRefusal:
    return FormatRefusal(f"the schema does not fit at `{place}`: {what}", REMEDY)
