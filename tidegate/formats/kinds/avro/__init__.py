"""The Avro format: records with schemas of a registry, or with one schema from a file (ADR 43).

`schema.py` and `columns.py` handle schemas, `resolution.py` resolves a writer's schema to a reader's. `decoder.py`,
`reference.py` and `encoder.py` run in the slots.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

import msgspec
from typing_extensions import override

from tidegate.datatypes import DataType, Schema
from tidegate.formats.contract import Columns, Decoder, Encoder, Format, FormatRefusal
from tidegate.formats.kinds.avro.columns import (
    check_readable,
    derive_record,
    derive_type,
    fit_written,
    record_columns,
    schema_text,
    tell_apart,
)
from tidegate.formats.kinds.avro.schema import NAME, AvroRefusal, check_defaults, parse_schema
from tidegate.formats.schema_ids import prefix_of
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, SchemaKind, Schemas, SchemaText, known_schemas

_NAMESPACE: Final = "tidegate"
_KEY_RECORD: Final = "__key"
"""Has no namespace, so that the types inside have the same namespaces as on their own."""


class AvroFormat(Format):
    """Avro records with Confluent's schema ids, or of a single schema."""

    name = "avro"
    writes = "a record of all columns"
    needs_schema = True
    is_text = False
    schema_kind: ClassVar[SchemaKind | None] = SchemaKind.AVRO
    page = """\
A source reads records of Confluent's wire format: a zero byte, the id of a schema in four bytes, and the record, which
was written with that schema of the [registry](../pipeline/daemon.md#registry). With `schema_id: header`, the id, or the
GUID, may be in the header `__value_schema_id`. With `schema_id: none`, values are bare records of the one schema that
the file names. `schema` is

- columns: `{id: bigint, at: timestamp}`. They are looked up by name in the schema of each record; a column that it
  does not have is NULL. A record whose schema has the field in another type is bad (`INCOMPATIBLE_SCHEMA`), and so is
  one whose schema has none of the columns (`NO_DECLARED_FIELD`).
- `{file: order.avsc}` or `{registry: orders-value}`: the reader's schema, whose fields are the columns. Records are
  read by Avro's rules of resolution: defaults, aliases, promotions, default symbols. A default of a union has the
  first type whose value it is.

| Avro | column |
| --- | --- |
| `boolean`, `int`, `long`, `float`, `double`, `string` | `boolean`, `int`, `bigint`, `float`, `double`, `string` |
| `bytes`, `fixed`, `duration`, `uuid` of a `fixed` | `binary` |
| `enum`, `uuid` of a `string` | `string` |
| `date` | `date` |
| `time-millis`, `time-micros` | `int` and `bigint`: milliseconds, microseconds of a day |
| `timestamp-millis`, `-micros`, `-nanos` | `timestamp`; nanoseconds are cut off to microseconds |
| `local-timestamp-millis`, `-micros`, `-nanos` | `timestamp_ntz` |
| `decimal` | `decimal(p,s)`, up to 38 digits; with more only if the column is declared, with the same scale; a value \
with more digits than `p` makes the record bad |
| `array`, `map`, `record` | `array`, `map<string, ...>`, `struct` |
| a union of null and one type | that type; every column may be NULL |
| any other union | `struct<member0: ..., member1: ...>`, of which the written member is set |

Keys (`key_format: avro`) are values of any type, a record or just a `long`, with the same id in front. `key_schema`
has the same forms as `schema`. A sink writes the type of its key column, not a union with null: a NULL is a record
without key. The id is part of a key's bytes: if it changes, keys go to other partitions.

Recursive types are refused, and so are arrays of values without bytes. A record with malformed bytes is bad
(`MALFORMED_AVRO`), including bytes after its end. A tombstone is a bad record, unless `on_null` of the source says
otherwise.

A sink writes all columns as a record that is named after its topic, in which everything may be null. With a `schema`
of its own it writes the fields of that: every column has to be a field, and every field that is not a column must
allow null. A NULL where the schema does not allow one makes the record bad. `timestamp-millis` cuts microseconds off.
The only unions in it are those of null and one type.
"""

    @override
    def read_columns(self, declared: Schema, options: FormatOptions = NO_OPTIONS) -> Schema:
        with refused("no record has such a column ", "declare another type"):
            for name, kind in declared.items():
                check_readable(kind, name)
        return declared

    @override
    def schema_columns(self, schema: SchemaText) -> Schema:
        with refused(_UNREADABLE, _READ_REMEDY):
            record = parse_schema(schema)
            check_defaults(record)
            return record_columns(record)

    @override
    def derive_schema(self, columns: Schema, name: str) -> SchemaText:
        for column in columns:
            if not NAME.fullmatch(column):
                raise FormatRefusal(
                    f"the name of the column `{column}` is not allowed in Avro", "rename it: letters, digits and `_`"
                )
        with refused("the columns cannot be written: ", "select other columns, or use json"):
            made = SchemaText(SchemaKind.AVRO, schema_text(derive_record(columns, f"{_NAMESPACE}.{record_name(name)}")))
            parse_schema(made)
        return made

    @override
    def key_record(self, schema: SchemaText, field: str) -> SchemaText:
        """Returns a text that is not JSON unchanged; parsing it will report the error."""
        try:
            inner = json.loads(schema.text)
        except ValueError:
            return schema
        record = {"type": "record", "name": _KEY_RECORD, "fields": [{"name": field, "type": inner}]}
        return msgspec.structs.replace(schema, text=json.dumps(record, ensure_ascii=False, separators=(",", ":")))

    @override
    def derive_key_schema(self, kind: DataType, name: str) -> SchemaText:
        with refused("the key cannot be written: ", "select another column, or use json"):
            one = tell_apart(derive_type(kind, f"{_NAMESPACE}.{record_name(name)}_key"))
            made = SchemaText(SchemaKind.AVRO, schema_text(one))
            parse_schema(self.key_record(made, "key"))
        return made

    @override
    def check_schema(self, schema: SchemaText, columns: Schema) -> None:
        with refused("the schema does not fit ", _WRITTEN_REMEDY):
            record = parse_schema(schema)
            if not schema.id:  # otherwise a registry has accepted it, and its defaults are not used for writing
                check_defaults(record)
            fit_written(record, columns)

    @override
    def schema_name(self, schema: SchemaText) -> str:
        with refused(_UNREADABLE, _READ_REMEDY):
            return parse_schema(schema).name

    @override
    def from_plain(self, value: Any, options: FormatOptions = NO_OPTIONS) -> bytes:
        """Encodes a value given as JSON. Without a schema, returns the JSON text."""
        text = super().from_plain(value)
        if options.schema is None:
            return text
        from tidegate.formats.kinds.avro.plain import PlainEncoder
        from tidegate.formats.kinds.json.writer import record_of_json

        columns = tuple(self.schema_columns(options.schema).items())
        return record_of_json(text, columns, PlainEncoder(parse_schema(options.schema), prefix_of(options)))

    @override
    def to_json(self, data: bytes, options: FormatOptions = NO_OPTIONS) -> bytes:
        if options.schema is None:
            raise ValueError("Avro needs a schema")
        from tidegate.formats.kinds.avro.decoder import AvroDecoder
        from tidegate.formats.kinds.json.writer import json_of_record

        columns = tuple(self.schema_columns(options.schema).items())
        decoder = AvroDecoder(columns, columns, options, known_schemas(options))
        return json_of_record(data, columns, decoder)

    @override
    def decoder(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> Decoder:
        from tidegate.formats.kinds.avro.decoder import AvroDecoder

        return AvroDecoder(declared, output, options, schemas)

    @override
    def schema_mark(self, options: FormatOptions) -> bytes:
        return prefix_of(options)

    @override
    def encoder(self, columns: Columns, options: FormatOptions) -> Encoder:
        from tidegate.formats.kinds.avro.encoder import AvroEncoder

        return AvroEncoder(columns, options)


_UNREADABLE: Final = "the schema cannot be read: "
_READ_REMEDY: Final = "correct it, or set a schema for the source that omits the unsupported parts"
_WRITTEN_REMEDY: Final = "select the columns that the schema has, cast to its types, or name another schema"


@contextmanager
def refused(what: str, remedy: str) -> Iterator[None]:
    """Raises FormatRefusal instead of AvroRefusal, whose message follows `what`."""
    try:
        yield
    except AvroRefusal as refusal:
        raise FormatRefusal(f"{what}{refusal}", remedy) from refusal


def record_name(name: str) -> str:
    """Converts a name to a similar one that is valid in Avro."""
    made = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{made}" if made[:1].isdigit() else made


FORMAT: Final = AvroFormat()
