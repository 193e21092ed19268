"""Keys in a format with schemas: values of any type, handled by the format's code for records.

A record with one field has the same bytes as the field alone. So the schema of a key is converted to that of such a
record (`Format.key_record`), and the format's own code reads, writes and checks it as the single column `KEY`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from typing_extensions import override

from tidegate.datatypes import DataType
from tidegate.formats import keys
from tidegate.formats.contract import FormatRefusal
from tidegate.formats.plain import parse_json, render_json
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import FormatOptions, Schemas, SchemaText

KEY: Final = "key"
"""Name of the record's field, and of the column."""


def key_type(schema: SchemaText) -> DataType:
    """Returns the column type for keys of a schema. Raises FormatRefusal."""
    record_format = FORMATS[keys.AVRO]
    return record_format.schema_columns(record_format.key_record(schema, KEY))[KEY]


def check_key_type(kind: DataType) -> None:
    """Raises FormatRefusal for a type that keys cannot have."""
    FORMATS[keys.AVRO].read_columns({KEY: kind})


def check_key_schema(schema: SchemaText, kind: DataType) -> None:
    """Checks that every key of a type can be written with a schema. Raises FormatRefusal."""
    record_format = FORMATS[keys.AVRO]
    record_format.check_schema(record_format.key_record(schema, KEY), {KEY: kind})


def derive_key_schema(kind: DataType, name: str) -> SchemaText:
    """Derives the schema of keys of a type if the file has none. Raises FormatRefusal."""
    return FORMATS[keys.AVRO].derive_key_schema(kind, name)


def record_options(options: FormatOptions) -> FormatOptions:
    """Converts options of keys to options for the format's decoder and encoder of records."""
    schema = options.schema
    if schema is None:
        return options
    return msgspec.structs.replace(options, schema=FORMATS[keys.AVRO].key_record(schema, KEY))


class KeySchemas(Schemas):
    """Schemas of keys, converted to schemas of records."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    @override
    def get(self, schema_id: int | str, /) -> SchemaText | None:
        found = self._schemas.get(schema_id)
        return None if found is None else FORMATS[keys.AVRO].key_record(found, KEY)

    @override
    def refuse(self, schema_id: int | str, why: str, /) -> None:
        self._schemas.refuse(schema_id, f"of keys: {why}")


def key_from_plain(text: str, options: FormatOptions) -> bytes:
    """Encodes a key that is given as JSON, for tests and previews. Raises FormatRefusal."""
    try:
        value: Any = parse_json(text.encode())
    except ValueError as error:
        message = f"the key is not JSON: {error}"
        raise FormatRefusal(message, "write JSON: '{\"id\": 7}', or a text in quotes of its own") from error
    return FORMATS[keys.AVRO].from_plain({KEY: value}, record_options(options))


def key_to_plain(data: bytes, options: FormatOptions) -> str:
    """Converts an encoded key to JSON. Raises ValueError."""
    return render_json(FORMATS[keys.AVRO].to_plain(data, record_options(options))[KEY])
