"""The MessagePack format: one map per record. `reader.py` has the rules of reading, `writer.py` those of writing."""

from __future__ import annotations

from typing import Any, Final

from typing_extensions import override

from tidegate.datatypes import TIMESTAMP, DataType, Schema, parts_of
from tidegate.formats.contract import Columns, Decoder, Encoder, Format, FormatRefusal
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, Schemas


class MsgpackFormat(Format):
    """Maps in MessagePack, without schemas."""

    name = "msgpack"
    writes = "a map of all columns"
    needs_schema = True
    is_text = False
    finds_unknown_fields = True
    page = """\
A source needs a `schema`, and each record is one [MessagePack](https://msgpack.org) map whose keys are strings. The
rules are those of [json](json.md): missing fields and nil are NULL, `unknown_fields` sets how fields are handled
that the schema does not name, a record with none of the schema's fields is bad (`NO_DECLARED_FIELD`), of repeated
fields the last one counts, and a value of another type makes the record bad; nothing is converted. The types differ
where MessagePack has its own:

| type | in | out |
| --- | --- | --- |
| `boolean` | true, false | the same |
| integers | an integer within the type's range; `5.0` is none | an integer |
| `float`, `double` | a float or an integer within the type's range, also NaN and infinities | a float of 64 bits |
| `decimal(p,s)` | text (`"5.00"`), an integer, or a float by its shortest text, that it holds exactly | text with all \
`s` digits after the point |
| `string` | str in UTF-8 | str |
| `binary` | bin | bin |
| `date` | `"2026-01-31"` | the same |
| `timestamp` | the extension type -1, or text as in JSON | the extension type -1 |
| `timestamp_ntz` | text without an offset, as in JSON | the same |
| `array`, `struct` | array, map | the same, with nil for NULL |
| `map` | a map whose keys are values of their type, such as integers | the same |

Nanoseconds of a timestamp are cut off to microseconds. Maps whose keys hold timestamps are refused. Other extension
types can only be in fields that the schema does not name. A record that is not MessagePack, or has bytes after its
end, is bad (`MALFORMED_MSGPACK`). A tombstone is a bad record, unless `on_null` of the source says otherwise.

With `unknown_fields: {keep: rest}`, strings are kept as they are and other values as JSON: bin is base64, a timestamp
its text, and another extension type `{"ext": 5, "data": "base64"}`. Cases of `tidegate test` and lines of
`tidegate preview` give records as JSON. It has no bin, so a `binary` column is given by `value_base64`. What a sink has
written is shown as JSON in the same way.
"""

    @override
    def read_columns(self, declared: Schema, options: FormatOptions = NO_OPTIONS) -> Schema:
        _check_keys(declared)
        return declared

    @override
    def written_columns(self, columns: Schema, options: FormatOptions = NO_OPTIONS) -> Schema:
        _check_keys(columns)
        return columns

    @override
    def from_plain(self, value: Any, options: FormatOptions = NO_OPTIONS) -> bytes:
        from tidegate.formats.kinds.msgpack.writer import msgpack_of

        return msgpack_of(value)

    @override
    def to_json(self, data: bytes, options: FormatOptions = NO_OPTIONS) -> bytes:
        from tidegate.formats.kinds.msgpack.reader import json_of

        return json_of(data).encode()

    @override
    def decoder(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> Decoder:
        from tidegate.formats.kinds.msgpack.reader import MsgpackDecoder

        return MsgpackDecoder(declared, output, options)

    @override
    def encoder(self, columns: Columns, options: FormatOptions) -> Encoder:
        from tidegate.formats.kinds.msgpack.writer import MsgpackEncoder

        return MsgpackEncoder(columns)


def _check_keys(columns: Schema) -> None:
    for name, kind in columns.items():
        if _has_timestamp_keys(kind):
            message = f"`{name}` is {kind}, but timestamps cannot be keys of maps in MessagePack"
            raise FormatRefusal(message, "declare or cast the keys as string, or use json")


def _has_timestamp_keys(kind: DataType) -> bool:
    return kind.key == TIMESTAMP or any(map(_has_timestamp_keys, parts_of(kind)))


FORMAT: Final = MsgpackFormat()
