"""Object container files: their records as messages of a source, for `tidegate preview`.

The bytes of records are passed on unchanged, and the decoder interprets them as in a topic. fastavro splits the file
into records. It receives the schema without logical types, because it rejects some that Avro requires to ignore.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from lzma import LZMAError
from typing import Any, BinaryIO, Final

import fastavro
import msgspec
from fastavro.schema import SchemaParseException

from tidegate.formats.bisection import first_line
from tidegate.formats.contract import FileValues
from tidegate.formats.kinds.avro.columns import schema_text
from tidegate.formats.kinds.avro.schema import AvroRefusal, AvroType, as_json, parse_schema
from tidegate.formats.schema_ids import prefix_of
from tidegate.formats.schemas import FormatOptions, SchemaKind, SchemaText

_ID: Final = 2**31 - 2
"""Id of the file's schema; greater than any that a registry has assigned so far."""
_SYNC_BYTES: Final = 16
_HEAD: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "Head",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "Sync", "size": _SYNC_BYTES}},
        ],
    }
)
_WRONG: Final = (
    ValueError,
    LookupError,
    EOFError,
    OSError,
    zlib.error,
    LZMAError,
    TypeError,
    OverflowError,
    RecursionError,
    SchemaParseException,
)


def container_values(stream: BinaryIO, reader: SchemaText) -> FileValues:
    """Implements Format.file_values. Raises ValueError.

    The record gets the name of `reader`, because files may have any name.
    """
    try:
        head: Any = fastavro.schemaless_reader(stream, _HEAD, None)
        writer = parse_schema(SchemaText(SchemaKind.AVRO, head["meta"]["avro.schema"].decode()))
    except _WRONG as error:
        raise _refusal(error) from error
    schema = SchemaText(SchemaKind.AVRO, _named(writer, parse_schema(reader).name), id=_ID)
    plain = as_json(writer, logical=False)
    head["meta"]["avro.schema"] = b'"null"'  # blocks are bytes in any case, and fastavro rejects some schemas
    begin = io.BytesIO()
    fastavro.schemaless_writer(begin, _HEAD, head)
    values = _values(_Joined(begin.getvalue(), stream), fastavro.parse_schema(plain, _ignore_default_error=True))
    prefix = prefix_of(FormatOptions(schema))
    return FileValues(schema, (prefix + one for one in values))


def _named(writer: AvroType, name: str) -> str:
    """Returns the schema's text with this name for its record, unless a type in it already has the name."""
    try:
        text = schema_text(msgspec.structs.replace(writer, name=name))
        parse_schema(SchemaText(SchemaKind.AVRO, text))
    except AvroRefusal:
        return schema_text(writer)
    return text


def _values(stream: _Joined, schema: Any) -> Iterator[bytes]:
    """Yields the bytes of each record. Raises ValueError."""
    try:
        block: Any  # fastavro's types are incomplete
        for block in fastavro.block_reader(stream):  # type: ignore[arg-type]  # only read
            body = block.bytes_
            for _ in range(block.num_records):
                start = body.tell()
                fastavro.schemaless_reader(body, schema, None)
                yield body.getbuffer()[start : body.tell()].tobytes()
    except _WRONG as error:
        raise _refusal(error) from error


class _Joined:
    """A byte string followed by a stream."""

    def __init__(self, begin: bytes, rest: BinaryIO) -> None:
        self._begin, self._rest = io.BytesIO(begin), rest

    def read(self, size: int) -> bytes:
        """Reads at most `size` bytes; returns none at the end."""
        return self._begin.read(size) or self._rest.read(size)

    def tell(self) -> int:
        """Returns a position, which fastavro stores for each block but which is not used."""
        return 0


def _refusal(error: BaseException) -> ValueError:
    return ValueError(f"it is not a complete Avro file: {first_line(error) or type(error).__name__}")
