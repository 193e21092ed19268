"""Confluent's wire format: a zero byte and the id of a schema in four bytes, in front of a value. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.formats.contract import WaitingForSchema
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.schemas import FormatOptions, IdPlace, Schemas, SchemaText, UnknownSchema

PREFIX_BYTES: Final = 5


def prefix_of(options: FormatOptions) -> bytes:
    """What is in front of a value that is written; nothing for records without ids.

    Also where ids may be in headers, since a record without such a header has it in front.
    """
    if options.ids is IdPlace.NONE:
        return b""
    return b"\0" + (0 if options.schema is None else options.schema.id).to_bytes(4, "big")


def bare_options(options: FormatOptions) -> FormatOptions:
    """How values are written, and read back, whose ids are in headers: with nothing in front."""
    return msgspec.structs.replace(options, ids=IdPlace.NONE) if options.ids is IdPlace.HEADER else options


def schema_id_of(prefix: bytes) -> int:
    """The id in a whole prefix."""
    return int.from_bytes(prefix[1:PREFIX_BYTES], "big")


def refuse_schema(schemas: Schemas, schema_id: int, options: FormatOptions, why: str) -> RecordFailure:
    """Of every record of a schema that the reader's cannot be used with; `row` means nothing. Reports it, once."""
    reader = options.schema
    which = f" with version {reader.version} of `{reader.subject}`" if reader is not None and reader.version else ""
    message = f"schema {schema_id} cannot be read{which}: {why}"
    schemas.refuse(schema_id, message)
    return RecordFailure(0, FailureKind.INCOMPATIBLE_SCHEMA, message)


def find_schema(
    prefix: bytes | None, schemas: Schemas, malformed: FailureKind
) -> SchemaText | WaitingForSchema | RecordFailure:
    """What values that begin so were written with, or why nobody can read them; `row` of a failure means nothing.

    :param prefix: the first bytes of a value; None of a tombstone.
    :param malformed: the kind of failure of what is no prefix.
    """
    if not prefix:
        if prefix is None:
            return RecordFailure(0, FailureKind.NULL_VALUE, "a tombstone holds no value")
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
