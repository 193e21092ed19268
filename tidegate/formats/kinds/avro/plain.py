"""Avro as people write it in tests and see it in previews: the JSON of the columns, by the JSON format's own rules."""

from __future__ import annotations

from tidegate.formats.contract import Columns, Decoded, FormatRefusal
from tidegate.formats.kinds.avro.decoder import AvroDecoder
from tidegate.formats.kinds.avro.encoder import AvroEncoder
from tidegate.formats.kinds.json.reader import JsonDecoder
from tidegate.formats.kinds.json.writer import json_objects
from tidegate.formats.schemas import FormatOptions, known_schemas


def avro_of_json(text: bytes, columns: Columns, options: FormatOptions) -> bytes:
    """Raises FormatRefusal with what does not fit the schema."""
    read = JsonDecoder(columns).decode_values([text])
    if read.failures:
        raise FormatRefusal(f"the value does not fit the schema: {read.failures[0]}", "see the types of its columns")
    written = AvroEncoder(columns, options).encode(read.frame)
    if written.failures:
        raise FormatRefusal(f"the value does not fit the schema: {written.failures[0]}", "see its types")
    value: bytes = written.columns["value"][0]
    return value


def json_of_avro(data: bytes, columns: Columns, options: FormatOptions) -> bytes:
    """Raises ValueError for what is no record of the schema of `options`."""
    read = AvroDecoder(columns, columns, options, known_schemas(options)).decode_values([data])
    if not isinstance(read, Decoded) or read.failures:
        raise ValueError(str(read.failures[0]) if isinstance(read, Decoded) else read.wanted)
    text: bytes = read.frame.select(json_objects(columns).alias("value")).to_series()[0]
    return text
