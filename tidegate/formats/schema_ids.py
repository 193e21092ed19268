"""Confluent's wire format: a zero byte and the id of a schema in four bytes, in front of a value. Pure."""

from __future__ import annotations

from typing import Final

from tidegate.formats.contract import WaitingForSchema
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.schemas import FormatOptions, IdPlace, Schemas, SchemaText, UnknownSchema

PREFIX_BYTES: Final = 5


def prefix_of(options: FormatOptions) -> bytes:
    """What is in front of a value that is written; nothing for records without ids."""
    if options.ids is not IdPlace.PREFIX:
        return b""
    return b"\0" + (0 if options.schema is None else options.schema.id).to_bytes(4, "big")


def schema_id_of(prefix: bytes) -> int:
    """The id in a whole prefix."""
    return int.from_bytes(prefix[1:PREFIX_BYTES], "big")


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
        what = f"the value begins with {prefix!r}, not with a zero byte and the id of a schema"
        return RecordFailure(0, malformed, what)
    schema_id = schema_id_of(prefix)
    try:
        schema = schemas.get(schema_id)
    except UnknownSchema as error:
        return RecordFailure(0, FailureKind.UNKNOWN_SCHEMA, str(error))
    return WaitingForSchema(f"the schema {schema_id} of the registry") if schema is None else schema
