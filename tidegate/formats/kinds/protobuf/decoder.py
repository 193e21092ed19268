"""Messages to rows: finds the schema and message type of each record; the library reads them one by one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from operator import attrgetter, methodcaller
from typing import Any, Final

import msgspec
import polars as pl
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from typing_extensions import override

from tidegate.datatypes import DataType
from tidegate.formats.bisection import first_line
from tidegate.formats.columns import Part, merge_parts
from tidegate.formats.contract import Columns, Decoded, Decoder, FormatRefusal, Messages, WaitingForSchema
from tidegate.formats.failures import FailureKind, RecordFailure, describe_undeclared
from tidegate.formats.kinds.protobuf.columns import is_map, own_name
from tidegate.formats.kinds.protobuf.fit import Unfit, check_columns, check_compatible
from tidegate.formats.kinds.protobuf.schema import Descriptor, MessageType, describe, find_message
from tidegate.formats.kinds.protobuf.values import NotUtf8, OutOfRange, make_readers
from tidegate.formats.kinds.protobuf.wire import split_place
from tidegate.formats.schema_ids import PREFIX_BYTES, find_schema, refuse_schema, schema_id_of
from tidegate.formats.schemas import FormatOptions, IdPlace, SchemaKind, Schemas, SchemaText, UnknownFields

logger = logging.getLogger(__name__)

WRITERS_MAX: Final = 1000
"""Maximum number of cached readers by id and message type; with more, they are created again."""


class MessageReader:
    """Reads messages of one type, with any prefix."""

    def __init__(self, one: MessageType, declared: Columns, output: Columns, *, strict: bool) -> None:
        wanted = {name for name, _ in output}
        self._parse = one.made.FromString
        self._columns = make_readers(one, output)
        self._checked = [
            each for each in make_readers(one, declared) if each.may_fail and each.name not in wanted
        ]  # only checked, without a column
        self._strict = Strict(one, declared) if strict else None
        self._missing = (one.made.IsInitialized, one.made.FindInitializationErrors) if has_required(one) else None

    def read(self, bodies: Sequence[bytes]) -> tuple[Part, list[RecordFailure]]:
        """Returns the rows of good messages, and the failures."""
        rows, messages, failures = self._parsed(bodies)
        if self._missing is None and self._strict is None:
            try:
                return (rows, self._frame(messages)), failures
            except (NotUtf8, OutOfRange) as error:
                logger.debug("a batch has values that no column can hold; searching for their rows", exc_info=error)
        found = [(row, message, self._judge(message)) for row, message in zip(rows, messages, strict=True)]
        failures += [RecordFailure(row, *wrong) for row, _, wrong in found if wrong is not None]
        good = [(row, message) for row, message, wrong in found if wrong is None]
        frame = self._frame([message for _, message in good])
        return ([row for row, _ in good], frame), failures

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
        strange = None if self._strict is None else self._strict.find(message)
        return None if strange is None else (FailureKind.UNKNOWN_FIELD, strange)


class ProtobufDecoder(Decoder):
    """Decodes values into frames with the columns of `output`."""

    def __init__(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> None:
        """Without a schema in `options`, declared columns are found in the writer's schema by name."""
        self._declared = declared
        self._output = output
        self._options = options
        self._schemas = schemas
        self._strict = options.unknown_fields is UnknownFields.FAIL
        self._own: MessageReader | None = None
        """The reader of the reader's own message type."""
        if options.schema is not None:
            self._type = find_message(options.schema)
            self._own = self._reader(self._type)
        self._bare = options.ids is IdPlace.NONE
        self._known: dict[bytes, MessageReader | RecordFailure] = {}
        """Readers, or failures of all records of a message type, by the prefix of records."""

    @override
    def decode(self, messages: Messages) -> Decoded | WaitingForSchema:
        return self.decode_values(messages.values)

    def decode_values(self, values: Sequence[bytes | None]) -> Decoded | WaitingForSchema:
        """Returns the rows of the good values in order, and the bad ones."""
        groups = [(self._find(key), key, rows) for key, rows in self._grouped(values)]  # requests all schemas at once
        waiting = next((found for found, _, _ in groups if isinstance(found, WaitingForSchema)), None)
        if waiting is not None:
            return waiting
        parts: list[Part] = []
        failures: list[RecordFailure] = []
        for found, key, rows in groups:
            if isinstance(found, RecordFailure):
                failures += [RecordFailure(row, found.kind, found.message) for row in rows]
                continue
            assert isinstance(found, MessageReader)
            skipped = len(key or b"")
            bodies: Any = values if len(rows) == len(values) else [values[row] for row in rows]
            (places, frame), bad = found.read([body[skipped:] for body in bodies] if skipped else bodies)
            parts.append(([rows[place] for place in places], frame))
            failures += [RecordFailure(rows[one.row], one.kind, one.message) for one in bad]
        return Decoded(merge_parts(parts, self._output), sorted(failures, key=attrgetter("row")))

    def _grouped(self, values: Sequence[bytes | None]) -> list[tuple[bytes | None, Sequence[int]]]:
        """Groups rows by the prefix of their messages, or by as much of it as shows that it is invalid."""
        if not values:
            return []
        first = self._key(values[0])
        if first and len(first) > PREFIX_BYTES and all(values) and all(map(methodcaller("startswith", first), values)):
            return [(first, range(len(values)))]
        groups: dict[bytes | None, list[int]] = {}
        for row, value in enumerate(values):
            groups.setdefault(self._key(value), []).append(row)
        return list(groups.items())

    def _key(self, value: bytes | None) -> bytes | None:
        if value is None or self._bare:
            return None if value is None else b""
        place = split_place(value)
        return value[:PREFIX_BYTES] if place is None else value[: place[0]]

    def _find(self, key: bytes | None) -> MessageReader | WaitingForSchema | RecordFailure:
        """Returns the reader for records of a group, or why there is none."""
        if key is not None and self._bare and self._own is not None:
            return self._own
        prefix = None if key is None else key[:PREFIX_BYTES]
        if key is not None and key in self._known:
            return self._known[key]
        found = find_schema(prefix, self._schemas, FailureKind.MALFORMED_PROTOBUF)
        if not isinstance(found, SchemaText):
            return found  # not cached, since it may be registered before the next record
        assert key is not None
        place = split_place(key)
        if place is None:
            return RecordFailure(
                0, FailureKind.MALFORMED_PROTOBUF, "the indexes of the message type after the id are missing or damaged"
            )
        if len(self._known) >= WRITERS_MAX:
            self._known.clear()
        self._known[key] = self._made(found, place[1], schema_id_of(key))
        return self._known[key]

    def _made(self, schema: SchemaText, place: tuple[int, ...], schema_id: int) -> MessageReader | RecordFailure:
        try:
            if schema.kind is not SchemaKind.PROTOBUF:
                return refuse_schema(self._schemas, schema_id, self._options, f"it is in {schema.kind}")
            writer = describe(schema).at(place)
            if writer is None:
                what = f"schema {schema_id} has no message with the indexes {', '.join(map(str, place))}"
                return RecordFailure(0, FailureKind.MALFORMED_PROTOBUF, what)
            if self._own is None:
                check_columns(writer.descriptor, self._declared)
            else:
                check_compatible(writer.descriptor, self._type.descriptor)
            strange = self._find_strange(writer.descriptor)
            if strange:
                found = refuse_schema(self._schemas, schema_id, self._options, strange)
                return msgspec.structs.replace(found, kind=FailureKind.NO_DECLARED_FIELD)
            if self._own is None:
                return self._reader(writer)
        except (Unfit, FormatRefusal) as refusal:
            return refuse_schema(self._schemas, schema_id, self._options, str(refusal))
        return self._own

    def _find_strange(self, writer: Descriptor) -> str:
        """Explains why a message with fields has none that is read, so that all columns would be NULL; empty if it has
        one.
        """
        own, names = writer.fields_by_name, [name for name, _ in self._declared]
        if self._own is not None:  # fields are found by number, whatever their name
            read = (self._type.descriptor.fields_by_name.get(name) for name in names)
            some = any(field is not None and field.number in writer.fields_by_number for field in read)
        else:
            some = any(name in own for name in names)
        return "" if some or not own else describe_undeclared(own.keys(), names)

    def _reader(self, one: MessageType) -> MessageReader:
        return MessageReader(one, self._declared, self._output, strict=self._strict)


class Strict:
    """Finds fields without a column, for `unknown_fields: fail`."""

    def __init__(self, one: MessageType, columns: Columns) -> None:
        self._name = one.descriptor.full_name
        self._known = dict(columns)

    def find(self, message: Any) -> str | None:
        """Describes the first such field; None if there is none."""
        return _find(message, self._known, self._name)


def _find(message: Any, known: dict[str, DataType], place: str) -> str | None:
    unknown = UnknownFieldSet(message)
    if len(unknown):
        number = unknown[0].field_number
        field = type(message).DESCRIPTOR.fields_by_number.get(number)
        if field is None:
            return f"{place} has no field with the number {number}"
        return (
            f"`{field.name}` of {place} was written with another type, or with a value that its closed enum "
            "does not have"
        )
    for field, value in type(message).ListFields(message):
        if field.is_extension or field.name not in known:
            return f"{place} has the field `{field.name}`, for which there is no column"
        if field.message_type is None:
            continue
        found = _within(field, value, known[field.name])
        if found is not None:
            return found
    return None


def _within(field: Any, value: Any, kind: DataType) -> str | None:
    inner = kind.element if kind.element is not None else kind
    one, values = field, value if field.is_repeated else (value,)
    if is_map(field):
        one, values = field.message_type.fields_by_name["value"], value.values()
    below = one.message_type
    if below is None:
        return None
    known = {each.name: inner for each in below.fields} if own_name(below) else dict(inner.fields)
    return next((found for each in values if (found := _find(each, known, below.full_name)) is not None), None)


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
