"""How records name the schema with which they were written. Pure.

In Confluent's wire format, a zero byte and a four-byte id are in front of a value. Or they are in the headers
`__key_schema_id` and `__value_schema_id`, as Confluent's serializers write them: what otherwise precedes the data, or a
byte of value one and a 16-byte GUID, by which registries also identify schemas. Anything that follows it in the header
(Protobuf's message indexes) also precedes the data. A record without the header has its id in front of the data. If the
name repeats, the last header counts, as in Java.

Formats only know four-byte ids in front of the data. So the contents of headers are put there, and a GUID is replaced
by a four-byte alias that no registry assigns.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec
from typing_extensions import override

from tidegate.formats.contract import Decoded, Decoder, Headers, Messages, WaitingForSchema, messages_of_values
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.schemas import FormatOptions, IdPlace, Schemas, SchemaText, UnknownSchema

PREFIX_BYTES: Final = 5


class SchemaRefusal(ValueError):
    """A schema that is invalid, or with which no record can be read into the columns of a pipeline."""

    kind: ClassVar[FailureKind] = FailureKind.INCOMPATIBLE_SCHEMA
    """Failure kind of the records written with it."""


class NoDeclaredField(SchemaRefusal):
    """The schema contains none of the declared columns."""

    kind = FailureKind.NO_DECLARED_FIELD


def prefix_of(options: FormatOptions) -> bytes:
    """Returns the prefix of a written value; empty for records without ids.

    Values whose ids may be in headers also have the prefix, since a record without such a header has it in front.
    """
    if options.ids is IdPlace.NONE:
        return b""
    return b"\0" + (0 if options.schema is None else options.schema.id).to_bytes(4, "big")


def bare_options(options: FormatOptions) -> FormatOptions:
    """Returns options for values whose ids are in headers, which have no prefix."""
    return msgspec.structs.replace(options, ids=IdPlace.NONE) if options.ids is IdPlace.HEADER else options


def schema_id_of(prefix: bytes) -> int:
    """Returns the id in a complete prefix."""
    return int.from_bytes(prefix[1:PREFIX_BYTES], "big")


def refuse_schema(schemas: Schemas, schema_id: int, options: FormatOptions, why: str) -> RecordFailure:
    """Returns the failure of every record with a schema that the reader's schema is incompatible with.

    Its `row` has no meaning. The incompatibility is reported once.
    """
    reader = options.schema
    which = f" with version {reader.version} of `{reader.subject}`" if reader is not None and reader.version else ""
    message = f"schema {schema_id} cannot be read{which}: {why}"
    schemas.refuse(schema_id, message)
    return RecordFailure(0, FailureKind.INCOMPATIBLE_SCHEMA, message)


def find_schema(
    prefix: bytes | None, schemas: Schemas, malformed: FailureKind
) -> SchemaText | WaitingForSchema | RecordFailure:
    """Returns the schema of values with this prefix, or the reason why they cannot be read.

    The `row` of a failure has no meaning.

    :param prefix: the first bytes of a value; None for a tombstone.
    :param malformed: the kind of failure for an invalid prefix.
    """
    if not prefix:
        if prefix is None:
            return RecordFailure(0, FailureKind.NULL_VALUE, "a tombstone has no value")
        return RecordFailure(0, FailureKind.EMPTY_VALUE, "the value is empty")
    if len(prefix) < PREFIX_BYTES or prefix[0]:
        what = f"the value begins with {repr(prefix)[1:]}, not with a zero byte and the id of a schema"
        return RecordFailure(0, malformed, what)
    schema_id = schema_id_of(prefix)
    try:
        schema = schemas.get(schema_id)
    except UnknownSchema as error:
        return RecordFailure(0, FailureKind.UNKNOWN_SCHEMA, str(error))
    return WaitingForSchema(f"the schema {schema_id} of the registry") if schema is None else schema


# -- ids in headers ----------------------------------------------------------------------------------------------------


KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"
GUID_BYTES: Final = 17
ALIAS_MIN: Final = 2**31 + 1
"""Greater than any id of a registry; these are positive signed 32-bit numbers."""
ALIASES_MAX: Final = 100_000
"""Maximum number of GUIDs with an alias, since records can name any number. Further GUIDs count as unknown."""
NO_ID: Final = 2**31
"""The id that replaces an invalid header."""
UNREADABLE_NAME: Final = "the name of a header is not UTF-8"
"""With such a name, none of the record's headers can be read."""
_LONG: Final = re.compile(r"\b[0-9]{10}\b")
"""A number in a message that may be an alias."""


class UnreadableHeader(UnknownSchema):
    """The header does not contain an id."""

    def __init__(self) -> None:
        Exception.__init__(self, "the header with the schema's id has neither a 0 and an id nor a 1 and a GUID")


class HeaderSchemas(Schemas):
    """The schemas of one decoder: resolves aliases of GUIDs, and delegates the rest to other Schemas."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._aliases: dict[bytes, int] = {}
        self._guids: list[str] = []

    @override
    def get(self, schema_id: int | str, /) -> SchemaText | None:
        if schema_id == NO_ID:
            raise UnreadableHeader
        return self._schemas.get(self.name_of(schema_id) if isinstance(schema_id, int) else schema_id)

    @override
    def refuse(self, schema_id: int | str, why: str, /) -> None:
        self._schemas.refuse(self.name_of(schema_id) if isinstance(schema_id, int) else schema_id, self.named(why))

    def name_of(self, schema_id: int) -> int | str:
        """Returns the GUID of an alias, or any other id unchanged."""
        place = schema_id - ALIAS_MIN
        return self._guids[place] if 0 <= place < len(self._guids) else schema_id

    def in_front(self, data: bytes, header: bytes | None) -> bytes:
        """Returns the data with the id of its header in front, as four bytes."""
        if header is not None and header[:1] == b"\0" and len(header) >= PREFIX_BYTES:
            return header + data
        if header is None or header[:1] != b"\1" or len(header) < GUID_BYTES:
            return b"\0" + NO_ID.to_bytes(4, "big") + data
        return b"\0" + self._alias(header[1:GUID_BYTES]).to_bytes(4, "big") + header[GUID_BYTES:] + data

    def _alias(self, guid: bytes) -> int:
        found = self._aliases.get(guid)
        if found is None:
            if len(self._guids) >= ALIASES_MAX:
                return NO_ID
            found = self._aliases[guid] = ALIAS_MIN + len(self._guids)
            self._guids.append(str(uuid.UUID(bytes=guid)))
        return found

    def frame(
        self, found: Sequence[bytes | None], headers: Sequence[Headers | None], name: str
    ) -> Sequence[bytes | None]:
        """Puts the ids of headers in front of values or keys; `name` is the name of the header.

        Data whose headers cannot be read gets `NO_ID`. Without it, the data would be read as if its id preceded it.
        """
        framed = list(found)
        for row, some in enumerate(headers):
            data = found[row]
            if data is None:
                continue
            if some is None:
                framed[row] = self.in_front(data, None)
                continue
            for one, value in some:
                if one == name:
                    framed[row] = self.in_front(data, value)
        return framed

    def named(self, text: str) -> str:
        """Replaces aliases in a message by the GUIDs that they stand for."""
        return _LONG.sub(lambda found: str(self.name_of(int(found[0]))), text)

    def named_failures(
        self, failures: Sequence[RecordFailure], headers: Sequence[Headers | None]
    ) -> list[RecordFailure]:
        """Returns the failures with GUIDs in their messages; `headers` are those that `frame` was called with."""
        return [
            RecordFailure(one.row, FailureKind.NOT_UTF8, UNREADABLE_NAME)
            if one.kind == FailureKind.UNKNOWN_SCHEMA and headers[one.row] is None
            else msgspec.structs.replace(one, message=self.named(one.message))
            for one in failures
        ]


class HeaderIdDecoder(Decoder):
    """Wraps the decoder of a format for values whose schema may be named in a header."""

    def __init__(self, decoder: Decoder, schemas: HeaderSchemas) -> None:
        """`schemas` must be those of the decoder."""
        self._decoder = decoder
        self._schemas = schemas

    @override
    def decode(self, messages: Messages) -> Decoded | WaitingForSchema:
        headers = messages.headers
        values = self._schemas.frame(messages.values, headers, VALUE_HEADER)
        decoded = self._decoder.decode(messages_of_values(values))
        if isinstance(decoded, WaitingForSchema):
            return WaitingForSchema(self._schemas.named(decoded.wanted))
        if not decoded.failures:
            return decoded
        return Decoded(decoded.frame, self._schemas.named_failures(decoded.failures, headers))
