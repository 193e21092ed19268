"""The raw format: Kafka records as they are.

A raw source has fixed columns. A raw sink writes the column `value` (string or binary; NULL is a tombstone), and takes
its key from a column named `key` unless the sink names another: so a copy of a topic keeps its keys, and the order per
key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from typing_extensions import override

from tidegate.datatypes import BIGINT, BINARY, INT, STRING, TIMESTAMP, Schema
from tidegate.formats.contract import Columns, Decoder, Encoder, Format, FormatRefusal
from tidegate.formats.plain import render_json
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, Schemas


class RawFormat(Format):
    """Raw Kafka records. `timestamp` is the record's timestamp of either type, NULL if it has none."""

    name = "raw"
    writes = "the bytes of the column `value`"
    page = """\
A source has the columns `key binary, value binary, timestamp timestamp, topic string, partition int, offset
bigint`, and a `schema` may select some of them. A tombstone is a NULL in `value`, a record without key a NULL in `key`,
and one without timestamp (also -1 and other negative numbers) a NULL in `timestamp`. Headers are a column by
`metadata`, as in every format.

A sink writes the column `value`, a string or binary; NULL is a tombstone. Its key is the column `key` if there is one
and the sink names no other. With `headers: {pass: all}`, `timestamp: timestamp` and `partition: partition` in the
sink, records are [copied](../mirror.md) with all that they have.
"""
    reads_tombstones = True
    fixed_columns: ClassVar[Schema] = {
        "key": BINARY,
        "value": BINARY,
        "timestamp": TIMESTAMP,
        "topic": STRING,
        "partition": INT,
        "offset": BIGINT,
    }
    part_columns: ClassVar[Mapping[str, str]] = {name: name for name in fixed_columns if name != "value"}

    @override
    def written_columns(self, columns: Schema, options: FormatOptions = NO_OPTIONS) -> Schema:
        """Returns only the column `value`. Raises FormatRefusal."""
        value = columns.get("value")
        if value in (STRING, BINARY) and value is not None:
            return {"value": value}
        what = f"which is {value}" if value else "which does not exist"
        remedy = "select a string or binary column `value`, or use json"
        raise FormatRefusal(f"a raw sink writes the column `value`, {what}", remedy)

    def default_key(self, columns: Schema) -> str | None:
        """Returns the column `key` if there is one."""
        return "key" if "key" in columns else None

    @override
    def from_plain(self, value: Any, options: FormatOptions = NO_OPTIONS) -> bytes:
        if isinstance(value, str):
            return value.encode()
        raise FormatRefusal("a raw value is text", "put it in quotes, or give its bytes by `value_base64`")

    @override
    def to_json(self, data: bytes, options: FormatOptions = NO_OPTIONS) -> bytes:
        """Returns a text as JSON."""
        return render_json(data.decode()).encode()

    @override
    def decoder(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> Decoder:
        from tidegate.formats.kinds.raw.rows import RawDecoder

        return RawDecoder([name for name, _ in output])

    @override
    def encoder(self, columns: Columns, options: FormatOptions) -> Encoder:
        from tidegate.formats.kinds.raw.rows import raw_encoder

        return raw_encoder()


FORMAT: Final = RawFormat()
