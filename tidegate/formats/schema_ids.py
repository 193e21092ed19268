"""Confluent's wire format: a zero byte and a four-byte schema id in front of a value. Pure."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from tidegate.formats.contract import WaitingForSchema
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
