"""Describes records that do not match the declaration of a source, for the message of their failure. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from tidegate.formats.failures import describe_undeclared
from tidegate.formats.schema_ids import PREFIX_BYTES, schema_id_of

FRAMED: Final = b"\0"
"""First byte of a record with a schema id."""
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def describe_framed(value: bytes) -> str:
    """Describes a value that begins with `FRAMED`."""
    known = f" (id {schema_id_of(value)})" if len(value) >= PREFIX_BYTES else ""
    formats = "`json-schema`, `avro`, `protobuf` or `debezium-avro`"
    return f"it looks like a record of a schema registry{known}, so `format` is {formats}"


def describe_unexpected_value(value: bytes, declared: Collection[str]) -> str:
    """Explains why an object without any of these fields is bad; empty if it has one, or no fields at all."""
    try:
        fields = _FIELDS(value)
    except ValueError:  # a field name is not UTF-8, which is reported when it is read
        fields = {"?": msgspec.Raw()}
    if not fields or not fields.keys().isdisjoint(declared):
        return ""
    return describe_undeclared(fields, declared, _hint_of(fields))


def _hint_of(fields: Mapping[str, msgspec.Raw]) -> str:
    if _is_change(fields):
        return "it looks like a change event of Debezium: use `format: debezium`"
    if not {"schema", "payload"} <= fields.keys():
        return ""
    try:
        payload = _FIELDS(fields["payload"])
    except msgspec.ValidationError:  # not an object
        payload = {}
    if _is_change(payload):
        return "it looks like a change event of Debezium with its schema: use `format: debezium`"
    return (
        "it looks like Kafka Connect's wrapper: set `value.converter.schemas.enable=false` in the connector, or "
        "declare `payload: struct<...>`"
    )


def _is_change(fields: Mapping[str, msgspec.Raw]) -> bool:
    return "op" in fields and ("before" in fields or "after" in fields)
