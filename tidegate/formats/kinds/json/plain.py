"""Records of binary formats as JSON of their columns, as people write them in tests and see them in previews."""

from __future__ import annotations

from typing import Protocol

from tidegate.formats.contract import Columns, Decoded, Encoder, FormatRefusal, WaitingForSchema
from tidegate.formats.kinds.json.reader import JsonDecoder
from tidegate.formats.kinds.json.writer import json_objects


class ValueDecoder(Protocol):
    """A decoder that needs only the values of messages."""

    def decode_values(self, values: list[bytes | None], /) -> Decoded | WaitingForSchema:
        """Returns the rows of the good values in order, and the bad ones."""


def record_of_json(text: bytes, columns: Columns, encoder: Encoder) -> bytes:
    """Encodes a JSON text. Raises FormatRefusal if it does not fit the schema."""
    read = JsonDecoder(columns).decode_values([text])
    if read.failures:
        raise FormatRefusal(f"the value does not fit the schema: {read.failures[0]}", "see the types of its columns")
    written = encoder.encode(read.frame)
    if written.failures:
        raise FormatRefusal(f"the value does not fit the schema: {written.failures[0]}", "see its types")
    value: bytes = written.columns["value"][0]
    return value


def json_of_record(data: bytes, columns: Columns, decoder: ValueDecoder) -> bytes:
    """Decodes a record to JSON. Raises ValueError if the decoder rejects it."""
    read = decoder.decode_values([data])
    if not isinstance(read, Decoded) or read.failures:
        raise ValueError(str(read.failures[0]) if isinstance(read, Decoded) else read.wanted)
    text: bytes = read.frame.select(json_objects(columns).alias("value")).to_series()[0]
    return text
