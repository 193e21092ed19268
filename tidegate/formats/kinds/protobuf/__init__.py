"""The Protobuf format: messages with schemas of a registry, or of one descriptor set from a file (ADR 50).

`schema.py` and `columns.py` handle message types, `compiler.py` texts of `.proto` files. `decoder.py` and `encoder.py`
run in the slots. The protobuf library is imported only where it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from typing_extensions import override

from tidegate.datatypes import Schema
from tidegate.formats.contract import Columns, Decoder, Encoder, Format, FormatRefusal
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, SchemaKind, Schemas, SchemaText, known_schemas


class ProtobufFormat(Format):
    """Protobuf messages with Confluent's schema ids, or of a single message type."""

    name = "protobuf"
    writes = "a message of all columns"
    needs_schema = True
    is_text = False
    schema_kind: ClassVar[SchemaKind | None] = SchemaKind.PROTOBUF
    page = """\
A source reads messages of Confluent's wire format: a zero byte, the id of a schema in four bytes, the indexes of the
message type in its file, and the message. With `schema_id: none`, values are bare messages of the one type that the
file names. `schema` is

- columns: `{id: bigint, at: timestamp}`. They are looked up by name in the message type of each record; a column that
  it does not have is NULL. A record whose field is of another type is bad (`INCOMPATIBLE_SCHEMA`), and so is one
  whose message has none of the columns (`NO_DECLARED_FIELD`).
- `{file: order.desc}` or `{registry: orders-value}`, with `message: shop.Order` if it is not the first of the file:
  the reader's message, whose fields are the columns. Fields are found by their numbers. A record of a message of
  another name, or with a type that the reader's would read as something else, is bad (`INCOMPATIBLE_SCHEMA`).

`{file: order.proto}` is compiled by each start with Google's compiler, which `pip install 'tidegate[proto]'` brings
where the daemon and `validate` run. Slots do not need it. Imported files are found in the directory of the file, and in
those above it up to that of the pipeline file. Without the extra, `protoc --include_imports
--descriptor_set_out=order.desc order.proto` compiles it elsewhere, and the file is the descriptor set; its last file is
used, or the one that has `message`. The registry is asked for serialized schemas (`format=serialized`), which
Confluent's returns. A registry that returns only the registered text, such as Apicurio, also needs the extra: without
it, records of such ids are bad.

Whatever a schema imports has to be among its references, except files that registries have built in:
`google/protobuf/`, `confluent/meta.proto`, `confluent/type/decimal.proto`, and `date.proto`, `timeofday.proto`,
`money.proto` and others below `google/type/`. A `confluent.type.Decimal` or a `google.type.Date` is a struct of its
fields.

| Protobuf | column |
| --- | --- |
| `bool`, `float`, `double`, `string`, `bytes` | `boolean`, `float`, `double`, `string`, `binary` |
| `int32`, `sint32`, `sfixed32` | `int` |
| `int64`, `sint64`, `sfixed64`, `uint32`, `fixed32` | `bigint` |
| `uint64`, `fixed64` | `decimal(20,0)` |
| an enum | `string`: the name of the value, or the number of a value that an open enum does not know |
| `repeated`, `map`, a message | `array`, `map` in the order of its keys, `struct` |
| `google.protobuf.Timestamp` | `timestamp`; nanoseconds are cut off to microseconds |
| `google.protobuf.Duration` | `bigint`: microseconds |
| `google.protobuf.StringValue` and the other wrappers | the type in it |

A field without presence (proto3 without `optional`) that is not in the record has its default: 0, false, empty. A
field with presence is NULL then: `optional`, messages, members of a `oneof`, fields of proto2 without a default of
their own. Required fields must be present. Recursive types (`google.protobuf.Struct`) and messages without fields
cannot be columns: list the others. What the protobuf library refuses is bad (`MALFORMED_PROTOBUF`). Fields that the
message does not know are left out.

A sink needs a `schema`, because columns have no field numbers. Every column has to be a field of a fitting type, and
every required field a column. A NULL in a field that cannot be missing makes the record bad, and so do two columns of
one `oneof`. Keys of maps are written in order, so the same row always gives the same bytes.
"""

    @override
    def read_schema(self, data: bytes, directories: Sequence[Path] = ()) -> SchemaText:
        from tidegate.formats.kinds.protobuf.schema import read_file

        return read_file(data, directories)

    @override
    def compile_schema(self, schema: SchemaText) -> SchemaText:
        from tidegate.formats.kinds.protobuf.schema import compile_schema

        return compile_schema(schema)

    @override
    def select_message(self, schema: SchemaText, message: str) -> SchemaText:
        from tidegate.formats.kinds.protobuf.schema import select_message

        return select_message(schema, message)

    @override
    def schema_columns(self, schema: SchemaText) -> Schema:
        from tidegate.formats.kinds.protobuf.columns import message_columns
        from tidegate.formats.kinds.protobuf.schema import find_message

        return message_columns(find_message(schema).descriptor)

    @override
    def derive_schema(self, columns: Schema, name: str) -> SchemaText:
        raise FormatRefusal(
            "a message needs field numbers, which columns do not have",
            "name a schema: `schema: {file: order.desc}`, or `{registry: orders-value, register: existing}`",
        )

    @override
    def check_schema(self, schema: SchemaText, columns: Schema) -> None:
        from tidegate.formats.kinds.protobuf.columns import check_fields
        from tidegate.formats.kinds.protobuf.schema import find_message

        check_fields(find_message(schema).descriptor, tuple(columns.items()))

    @override
    def schema_name(self, schema: SchemaText) -> str:
        from tidegate.formats.kinds.protobuf.schema import find_message

        return str(find_message(schema).descriptor.full_name)

    @override
    def from_plain(self, value: Any, options: FormatOptions = NO_OPTIONS) -> bytes:
        """Encodes a message given as JSON; fields may be left out. Without a schema, returns the JSON text."""
        if options.schema is None:
            return super().from_plain(value)
        from tidegate.formats.kinds.json.writer import record_of_json
        from tidegate.formats.kinds.protobuf.columns import fill_absent
        from tidegate.formats.kinds.protobuf.encoder import ProtobufEncoder
        from tidegate.formats.kinds.protobuf.schema import find_message

        text = super().from_plain(fill_absent(value, find_message(options.schema).descriptor))
        columns = tuple(self.schema_columns(options.schema).items())
        return record_of_json(text, columns, ProtobufEncoder(columns, options))

    @override
    def to_json(self, data: bytes, options: FormatOptions = NO_OPTIONS) -> bytes:
        if options.schema is None:
            raise ValueError("Protobuf needs a schema")
        from tidegate.formats.kinds.json.writer import json_of_record
        from tidegate.formats.kinds.protobuf.decoder import ProtobufDecoder

        columns = tuple(self.schema_columns(options.schema).items())
        decoder = ProtobufDecoder(columns, columns, options, known_schemas(options))
        return json_of_record(data, columns, decoder)

    @override
    def decoder(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> Decoder:
        from tidegate.formats.kinds.protobuf.decoder import ProtobufDecoder

        return ProtobufDecoder(declared, output, options, schemas)

    def schema_mark(self, options: FormatOptions) -> bytes:
        """Returns the schema id and the place of the message in its schema."""
        from tidegate.formats.kinds.protobuf.schema import find_message, prefix_with_place

        assert options.schema is not None
        return prefix_with_place(options, find_message(options.schema).place)

    @override
    def encoder(self, columns: Columns, options: FormatOptions) -> Encoder:
        from tidegate.formats.kinds.protobuf.encoder import ProtobufEncoder

        return ProtobufEncoder(columns, options)


FORMAT: Final = ProtobufFormat()
