"""Compatibility of a writer's message with a reader's: by field numbers, and only if no value changes.

The library reads a field by the number and wire type that it knows, whatever the writer's type: a long becomes an int
without its upper half, and text with another wire type is treated as an unknown field. So the types are compared, once
per schema.
"""

from __future__ import annotations

from typing import Any, Final

from tidegate.datatypes import DataType
from tidegate.formats.contract import Columns
from tidegate.formats.kinds.protobuf.columns import field_column, is_map, own_name, single_values
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
        raise Unfit(place, f"the writer's is {shape}, and the column is {kind}")
    for one in values:
        _check_one(*one)


def _check_one(field: Any, kind: DataType, place: str) -> None:
    below = field.message_type
    if below is not None and not own_name(below):
        if kind.kind != "struct":
            raise Unfit(place, f"the writer's is the message {below.full_name}, and the column is {kind}")
        check_columns(below, kind.fields, place)
        return
    found = field_column(field)
    found = found.element if field.is_repeated and found.element is not None else found
    if found != kind and kind.kind not in _WIDER_COLUMNS.get(found.kind, ()):
        raise Unfit(place, f"the writer's is {_word(field)}, which is no {kind}")


def check_compatible(writer: Descriptor, reader: Descriptor) -> None:
    """Checks that a reader gets the values that were written. Raises Unfit."""
    if writer.full_name != reader.full_name:
        raise Unfit(reader.full_name, f"the record is of the message {writer.full_name}")
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
                raise Unfit(where, f"the writer's is {_word(other)}, and the reader's {_word(field)}")
            _compare_types(other, field, where, seen)


def _compare_types(writer: Any, reader: Any, place: str, seen: set[tuple[str, str]]) -> None:
    written, read = WORDS[writer.type], WORDS[reader.type]
    if written != read and read not in _WIDER.get(written, ()):
        raise Unfit(place, f"the writer's is {_word(writer)}, and the reader's {_word(reader)}")
    if reader.message_type is None:
        return
    if own_name(writer.message_type) != own_name(reader.message_type):
        raise Unfit(place, f"the writer's is {_word(writer)}, and the reader's {_word(reader)}")
    _compare(writer.message_type, reader.message_type, place, seen)


def _word(field: Any) -> str:
    if is_map(field):
        return "a map"
    word = field.message_type.full_name if field.message_type is not None else WORDS[field.type]
    return f"repeated {word}" if field.is_repeated else str(word)
