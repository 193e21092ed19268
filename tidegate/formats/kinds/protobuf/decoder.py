"""Messages to rows: finds the schema and message type of each record; the library reads them one by one.

A missing field without presence has its default, as returned by the library. One with presence is NULL, unless the
schema defines a default.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

import polars as pl
from google.protobuf.message import DecodeError

from tidegate.datatypes import FIRST_MOMENT, LAST_MOMENT, DataType
from tidegate.formats.bisection import first_line
from tidegate.formats.columns import make_column
from tidegate.formats.contract import Columns, Decoded, FormatRefusal
from tidegate.formats.failures import FailureKind, RecordFailure, describe_undeclared
from tidegate.formats.kinds.protobuf.columns import (
    DURATION_NAME,
    DURATION_S_MAX,
    ENUM_TYPE,
    STRING_TYPE,
    TIMESTAMP_NAME,
    check_columns,
    check_compatible,
    is_map,
    own_name,
)
from tidegate.formats.kinds.protobuf.schema import Descriptor, MessageType, describe, find_message, split_place
from tidegate.formats.schema_decoder import SchemaDecoder, SchemaReader
from tidegate.formats.schema_ids import PREFIX_BYTES, NoDeclaredField, SchemaRefusal, schema_id_of
from tidegate.formats.schemas import FormatOptions, SchemaKind, Schemas, SchemaText

logger = logging.getLogger(__name__)


class ProtobufDecoder(SchemaDecoder):
    """A decoder that, without a schema in `options`, finds declared columns in the writer's message by name."""

    def __init__(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> None:
        self._declared = declared
        self._type = None if options.schema is None else find_message(options.schema)
        super().__init__(SchemaKind.PROTOBUF, self._open_reader, output, options, schemas, _prefix_of)

    def _open_reader(self, schema: SchemaText, prefix: bytes) -> SchemaReader | RecordFailure:
        """Raises SchemaRefusal."""
        own = self._type
        if not prefix and own is not None:
            return self._reader(own, prefix)
        place = split_place(prefix)
        if place is None:
            what = "the indexes of the message type after the id are missing or damaged"
            return RecordFailure(0, FailureKind.MALFORMED_PROTOBUF, what)
        try:
            writer = describe(schema).at(place[1])
            if writer is None:
                shown = ", ".join(map(str, place[1]))
                what = f"schema {schema_id_of(prefix)} has no message with the indexes {shown}"
                return RecordFailure(0, FailureKind.MALFORMED_PROTOBUF, what)
            if own is None:
                check_columns(writer.descriptor, self._declared)
            else:
                check_compatible(writer.descriptor, own.descriptor)
        except FormatRefusal as refusal:
            raise SchemaRefusal(str(refusal)) from refusal
        self._require_field(writer.descriptor)
        return self._reader(own or writer, prefix)

    def _require_field(self, writer: Descriptor) -> None:
        """Raises NoDeclaredField if a message with fields has none that is read: all columns would be NULL."""
        written, names = writer.fields_by_name, [name for name, _ in self._declared]
        if self._type is not None:  # fields are found by number, whatever their name
            read = (self._type.descriptor.fields_by_name.get(name) for name in names)
            some = any(field is not None and field.number in writer.fields_by_number for field in read)
        else:
            some = any(name in written for name in names)
        if written and not some:
            raise NoDeclaredField(describe_undeclared(written.keys(), names))

    def _reader(self, one: MessageType, prefix: bytes) -> SchemaReader:
        return SchemaReader(None, MessageReader(one, self._declared, self._output, len(prefix)).read)


def _prefix_of(value: bytes) -> bytes:
    """Returns the prefix of a message, or as much of it as shows that it is invalid."""
    place = split_place(value)
    return value[:PREFIX_BYTES] if place is None else value[: place[0]]


class MessageReader:
    """Reads messages of one type."""

    def __init__(self, one: MessageType, declared: Columns, output: Columns, skipped: int) -> None:
        """The first `skipped` bytes of each value are its prefix."""
        self._skipped = skipped
        wanted = {name for name, _ in output}
        self._parse = one.made.FromString
        self._columns = make_readers(one, output)
        self._checked = [
            each for each in make_readers(one, declared) if each.may_fail and each.name not in wanted
        ]  # only checked, without a column
        self._missing = (one.made.IsInitialized, one.made.FindInitializationErrors) if has_required(one) else None

    def read(self, values: Sequence[bytes]) -> Decoded:
        """Returns the rows of good messages, and the failures."""
        skipped = self._skipped
        rows, messages, failures = self._parsed([value[skipped:] for value in values] if skipped else values)
        if self._missing is None:
            try:
                return Decoded(self._frame(messages), failures)
            except (NotUtf8, OutOfRange) as error:
                logger.debug("a batch has values that no column can hold; searching for their rows", exc_info=error)
        found = [(row, message, self._judge(message)) for row, message in zip(rows, messages, strict=True)]
        failures += [RecordFailure(row, *wrong) for row, _, wrong in found if wrong is not None]
        return Decoded(self._frame([message for _, message, wrong in found if wrong is None]), failures)

    def _parsed(self, bodies: Sequence[bytes]) -> tuple[Sequence[int], list[Any], list[RecordFailure]]:
        """Returns rows and messages that the library accepts, and the failures of the others."""
        messages: list[Any] = []
        failures: list[RecordFailure] = []
        parsed = map(self._parse, bodies)
        while True:
            # `extend` keeps what it had before an exception, and `map` continues after it, so good messages need no
            # loop here.
            try:
                messages.extend(parsed)
                break
            except DecodeError as error:
                row = len(messages) + len(failures)
                failures.append(RecordFailure(row, FailureKind.MALFORMED_PROTOBUF, first_line(error)))
        bad = {one.row for one in failures}
        return [row for row in range(len(bodies)) if row not in bad] if bad else range(len(bodies)), messages, failures

    def _frame(self, messages: Sequence[Any]) -> pl.DataFrame:
        for each in self._checked:
            each.values(messages)
        if not self._columns:
            return pl.DataFrame(height=len(messages))
        return pl.DataFrame([each.series(messages) for each in self._columns])

    def _judge(self, message: Any) -> tuple[FailureKind, str] | None:
        """Returns what is wrong with a message that the library accepts."""
        if self._missing is not None and not self._missing[0](message):
            lacking = ", ".join(self._missing[1](message))[:200]
            return FailureKind.MALFORMED_PROTOBUF, f"required fields are missing: {lacking}"
        for each in (*self._checked, *self._columns):
            try:
                each.values((message,))
            except NotUtf8 as error:
                return FailureKind.NOT_UTF8, f"`{each.name}`: {error}"
            except OutOfRange as error:
                return FailureKind.OUT_OF_RANGE, f"`{each.name}`: {error}"
        return None


def has_required(one: MessageType) -> bool:
    """Returns whether a message of this type can lack a required field."""
    return _has_required(one.descriptor, set())


def _has_required(descriptor: Descriptor, seen: set[str]) -> bool:
    if descriptor.full_name in seen:
        return False
    seen.add(descriptor.full_name)
    return any(
        field.is_required or (field.message_type is not None and _has_required(field.message_type, seen))
        for field in descriptor.fields
    )


# -- values ------------------------------------------------------------------------------------------------------------


Read = Callable[[Any], Any]
"""Reads the value of one field from a message, or converts such a value to that of a column."""

_SECOND: Final = 1_000_000
_NANOS: Final = 1_000_000_000


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
        self._read: Read = _nothing if field is None else _field_reader(field, kind, made)

    def values(self, messages: Sequence[Any]) -> list[Any]:
        """Returns the value of each message. Raises OutOfRange and NotUtf8."""
        return list(map(self._read, messages))

    def series(self, messages: Sequence[Any]) -> pl.Series:
        """Returns the values as a column. Raises OutOfRange and NotUtf8."""
        return make_column(self.name, self.kind, self.values(messages))


def make_readers(one: MessageType, columns: Columns) -> list[ProtobufColumn]:
    """Returns readers of columns whose types fit the fields of the same name (`check_columns`)."""
    return [ProtobufColumn(one.descriptor, one.made, name, kind) for name, kind in columns]


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
