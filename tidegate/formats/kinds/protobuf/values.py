"""Messages to values of columns: the meaning of a field, when it is missing, and which values are invalid.

A missing field without presence has its default, as returned by the library. One with presence is NULL, unless the
schema defines a default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

import polars as pl

from tidegate.datatypes import FIRST_MOMENT, LAST_MOMENT, DataType
from tidegate.formats.columns import make_column
from tidegate.formats.contract import Columns
from tidegate.formats.kinds.protobuf.columns import (
    DURATION_NAME,
    ENUM_TYPE,
    STRING_TYPE,
    TIMESTAMP_NAME,
    is_map,
    own_name,
)
from tidegate.formats.kinds.protobuf.schema import Descriptor, MessageType

ReadAll = Callable[[Sequence[Any]], list[Any]]
"""Reads the values of one field from messages."""
Read = Callable[[Any], Any]
"""Reads the value of one field from a message, or converts such a value to that of a column."""

DURATION_S_MAX: Final = 315_576_000_000
"""Google's limit: 10,000 years."""
_SECOND: Final = 1_000_000
_NANOS: Final = 1_000_000_000
_FIRST_S: Final = FIRST_MOMENT // _SECOND
_LAST_S: Final = LAST_MOMENT // _SECOND


class OutOfRange(ValueError):
    """A value that its column cannot hold."""


class NotUtf8(ValueError):
    """A string that is not UTF-8. The library itself rejects it only if the file's syntax requires that."""


class ProtobufColumn:
    """A column of one field, or without a field: then all values are NULL."""

    def __init__(self, descriptor: Descriptor, made: Any, name: str, kind: DataType) -> None:
        self.name = name
        self.kind = kind
        field = descriptor.fields_by_name.get(name)
        self.may_fail = field is not None and _may_fail(field, kind)
        """True if its values must be checked even if the column is not read."""
        self._read: ReadAll | None = None if field is None else _column_reader(field, kind, made)

    def values(self, messages: Sequence[Any]) -> list[Any]:
        """Returns the value of each message. Raises OutOfRange and NotUtf8."""
        return [None] * len(messages) if self._read is None else self._read(messages)

    def series(self, messages: Sequence[Any]) -> pl.Series:
        """Returns the values as a column. Raises OutOfRange and NotUtf8."""
        return make_column(self.name, self.kind, self.values(messages))


def make_readers(one: MessageType, columns: Columns) -> list[ProtobufColumn]:
    """Returns readers of columns whose types fit the fields of the same name (`fit.py`)."""
    return [ProtobufColumn(one.descriptor, one.made, name, kind) for name, kind in columns]


def _column_reader(field: Any, kind: DataType, made: Any) -> ReadAll:
    """Returns a reader of many messages at once, which saves calls for unchanged values and timestamps."""
    name, has, get = field.name, made.HasField, attrgetter(field.name)
    if not field.is_repeated and field.message_type is not None and own_name(field.message_type) == TIMESTAMP_NAME:
        return _moments_reader(name, has)
    if field.is_repeated or _converter(field, kind) is not None:
        read = _field_reader(field, kind, made)
        return lambda messages: list(map(read, messages))
    if not _may_be_null(field):
        return lambda messages: list(map(get, messages))
    return lambda messages: [
        value if value or has(one, name) else None for one, value in zip(messages, map(get, messages), strict=True)
    ]


def _moments_reader(name: str, has: Callable[[Any, str], bool]) -> ReadAll:
    read_seconds, read_nanos = attrgetter(f"{name}.seconds"), attrgetter(f"{name}.nanos")

    def read(messages: Sequence[Any]) -> list[Any]:
        seconds, nanos = list(map(read_seconds, messages)), list(map(read_nanos, messages))
        if messages and (min(seconds) < _FIRST_S or max(seconds) > _LAST_S or min(nanos) < 0 or max(nanos) >= _NANOS):
            return [_moment(getattr(one, name)) if has(one, name) else None for one in messages]
        return [
            second * _SECOND + nano // 1000 if second or has(one, name) else None
            for one, second, nano in zip(messages, seconds, nanos, strict=True)
        ]

    return read


def _may_be_null(field: Any) -> bool:
    return bool(field.has_presence and not field.is_required and not field.has_default_value)


def _field_reader(field: Any, kind: DataType, made: Any) -> Read:
    """Returns a reader of one message's field.

    :param made: the class of the messages that have the field.
    """
    get = attrgetter(field.name)
    if is_map(field):
        return _map_reader(field, kind, get)
    if field.is_repeated:
        inner = _converter(field, kind.element or kind)
        return (lambda one: list(get(one))) if inner is None else (lambda one: list(map(inner, get(one))))
    convert = _converter(field, kind)
    if not _may_be_null(field):
        return get if convert is None else lambda one: convert(get(one))
    name, has = field.name, made.HasField  # of the class, since a field may be called HasField
    if convert is not None:
        return lambda one: convert(get(one)) if has(one, name) else None

    def read(one: Any) -> Any:
        value = get(one)
        return value if value or has(one, name) else None

    return read


def _map_reader(field: Any, kind: DataType, get: Read) -> Read:
    """Returns a reader that sorts by key: the library's order differs from process to process."""
    assert kind.element is not None
    key = _converter(field.message_type.fields_by_name["key"], kind)
    value = _converter(field.message_type.fields_by_name["value"], kind.element)

    def read(one: Any) -> Any:
        try:
            entries: Any = list(get(one).items())
        except UnicodeDecodeError as error:  # of a key; for other strings the library returns the bytes
            raise NotUtf8("a key of a map is not UTF-8") from error
        if key is not None:
            entries = [(key(name), each) for name, each in entries]
        entries = sorted(entries) if value is None else sorted((name, value(each)) for name, each in entries)
        return tuple(entries)

    return read


def _converter(field: Any, kind: DataType) -> Read | None:
    """Returns the conversion of a single value of a field, which may be repeated; None if it is unchanged."""
    if field.type == ENUM_TYPE:
        names = {one.number: one.name for one in reversed(field.enum_type.values)}  # of several names, the first
        return lambda value: names.get(value) or str(value)
    if field.type == STRING_TYPE:
        return None if _checks_utf8(field) else _text
    if field.message_type is None:
        return None
    own = own_name(field.message_type)
    if own == TIMESTAMP_NAME:
        return _moment
    if own == DURATION_NAME:
        return _duration
    if own:
        return attrgetter("value")
    return _struct_reader(field.message_type, kind)


def _struct_reader(descriptor: Descriptor, kind: DataType) -> Read:
    from google.protobuf import message_factory

    made = message_factory.GetMessageClass(descriptor)
    readers: list[Read] = []
    for name, below in kind.fields:
        field = descriptor.fields_by_name.get(name)
        readers.append(_nothing if field is None else _field_reader(field, below, made))
    return lambda one: tuple([read(one) for read in readers])


def _nothing(_: Any) -> None:
    return None


def _checks_utf8(field: Any) -> bool:
    """Returns whether the library rejects invalid UTF-8, as the rules of proto3 require; most files use them."""
    from google.protobuf import descriptor_pb2

    return bool(descriptor_pb2.FileDescriptorProto.FromString(field.file.serialized_pb).syntax == "proto3")


def _may_fail(field: Any, kind: DataType) -> bool:
    below = field.message_type
    if below is None:
        return bool(field.type == STRING_TYPE and not _checks_utf8(field))
    if own_name(below):
        return own_name(below) in (TIMESTAMP_NAME, DURATION_NAME)
    if is_map(field):
        assert kind.element is not None
        parts = below.fields_by_name
        return _may_fail(parts["key"], kind) or _may_fail(parts["value"], kind.element)
    inner = kind.element if kind.kind == "array" and kind.element is not None else kind
    return any(
        _may_fail(below.fields_by_name[name], each) for name, each in inner.fields if name in below.fields_by_name
    )


def _text(value: Any) -> str:
    """Raises NotUtf8 for bytes, which the library returns for a string that is not UTF-8."""
    if not isinstance(value, str):
        raise NotUtf8("a string is not UTF-8")
    return value


def _moment(value: Any) -> int:
    seconds, nanos = value.seconds, value.nanos
    moment: int = seconds * _SECOND + nanos // 1000
    if not FIRST_MOMENT <= moment <= LAST_MOMENT or not 0 <= nanos < _NANOS:
        raise OutOfRange(f"{seconds} s and {nanos} ns are not a timestamp of the years 1 to 9999")
    return moment


def _duration(value: Any) -> int:
    seconds, nanos = value.seconds, value.nanos
    opposite = seconds < 0 < nanos or nanos < 0 < seconds
    if not -DURATION_S_MAX <= seconds <= DURATION_S_MAX or not -_NANOS < nanos < _NANOS or opposite:
        raise OutOfRange(f"{seconds} s and {nanos} ns are not a duration")
    micros: int = abs(nanos) // 1000
    return int(seconds * _SECOND + (micros if nanos > 0 else -micros))
