"""JSON with schemas of a registry: Confluent's wire format around a JSON object.

`schema.py` maps JSON Schema to columns and back. Values are read and written as in the format `json`. Anything in a
schema besides types (patterns, bounds, required fields) is not checked, as in Confluent's clients by default.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar, Final

from typing_extensions import override

from tidegate.datatypes import Schema
from tidegate.formats.contract import Columns, Decoder, Encoder, Format
from tidegate.formats.kinds.json_schema.schema import check_columns, read_columns, schema_of_columns, schema_title
from tidegate.formats.schema_ids import prefix_of
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, SchemaKind, Schemas, SchemaText


class JsonSchemaFormat(Format):
    """JSON objects with Confluent's schema ids."""

    name = "json-schema"
    writes = "an object of all columns, with the id of its JSON Schema in front"
    needs_schema = True
    schema_kind: ClassVar[SchemaKind | None] = SchemaKind.JSON
    page = """\
A record is a zero byte, the id of a JSON Schema in the [registry](../pipeline/daemon.md#registry) in four bytes, and a
JSON object. With `schema_id: none`, values are bare objects. The rules of reading and writing are those of
[json](json.md); fields that are not columns are skipped.

`schema` of a source is columns, or `{file: ...}` or `{registry: ...}`. In the latter cases, the properties of the
schema's object are the columns:

| JSON Schema | column |
| --- | --- |
| `boolean`, `integer`, `number` | `boolean`, `bigint`, `double` |
| `string`, also as `enum` alone | `string` |
| `string` with `format` `date`, `date-time` | `date`, `timestamp` |
| `string` with `contentEncoding: base64` | `binary` |
| `array` with `items` | `array<...>` |
| `object` with `properties` | `struct<...>` |
| `object` with `additionalProperties` alone | `map<string, ...>` |
| `["null", type]`, `oneOf` or `anyOf` of null and one type | that type; every column may be NULL |

`$ref` refers to another part of the schema (`#/definitions/...`) or to one of its references. Everything else that
cannot be a column is refused with its place: other unions, `allOf` of several, `patternProperties`, lists of `items`,
recursive schemas, anchors. Bounds, patterns, `const`, the values of an `enum` and required properties are not
checked, and null is accepted everywhere. An `integer` is a bigint in every draft: `1.0` is not one. A record is bad
if the registry does not have its id (`UNKNOWN_SCHEMA`), or if the id is not that of a JSON Schema
(`INCOMPATIBLE_SCHEMA`).

A sink's schema has all columns as properties of one object, titled after its topic, in which everything may be null.
If the sink has a schema of its own, that must have a property of the same type for every column, and there must be a
column for every property that it requires. The same applies to the fields of a struct, in any order.

A derived schema allows other properties. Confluent's registry therefore refuses a new column, or a new field of a
struct, with `BACKWARD`, the default compatibility of subjects (`PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL`). Set that of
the subject to `FORWARD`, which allows columns to be added but not removed, or to `NONE`; or name another `subject`.
"""

    @override
    def schema_columns(self, schema: SchemaText) -> Schema:
        return read_columns(schema)

    @override
    def derive_schema(self, columns: Schema, name: str) -> SchemaText:
        return SchemaText(SchemaKind.JSON, json.dumps(schema_of_columns(columns, name), ensure_ascii=False))

    @override
    def check_schema(self, schema: SchemaText, columns: Schema) -> None:
        check_columns(schema, columns)

    @override
    def schema_name(self, schema: SchemaText) -> str:
        return schema_title(schema)

    @override
    def from_plain(self, value: Any, options: FormatOptions = NO_OPTIONS) -> bytes:
        return prefix_of(options) + super().from_plain(value)

    @override
    def to_json(self, data: bytes, options: FormatOptions = NO_OPTIONS) -> bytes:
        return data[len(prefix_of(options)) :]

    @override
    def decoder(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> Decoder:
        from tidegate.formats.kinds.json.reader import JsonDecoder
        from tidegate.formats.schema_decoder import SchemaDecoder, SchemaReader

        plain, skipped = JsonDecoder(declared, output, needs_field=True), len(prefix_of(options))
        if not skipped:
            return plain
        reader = SchemaReader(None, lambda values: plain.decode_values([value[skipped:] for value in values]))
        return SchemaDecoder(SchemaKind.JSON, lambda _schema, _prefix: reader, output, options, schemas)

    @override
    def schema_mark(self, options: FormatOptions) -> bytes:
        return prefix_of(options)

    @override
    def encoder(self, columns: Columns, options: FormatOptions) -> Encoder:
        import polars as pl

        from tidegate.formats.kinds.json.writer import json_objects
        from tidegate.formats.text import ExpressionEncoder

        prefix, value = prefix_of(options), json_objects(columns)
        return ExpressionEncoder(pl.lit(prefix) + value if prefix else value)


FORMAT: Final = JsonSchemaFormat()
