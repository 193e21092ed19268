"""Object container files: their records as messages of a source, for `tidegate preview`.

The bytes of records stay as they are: what they mean is the decoder's business, as in a topic. fastavro takes the file
apart. It gets the schema without logical types, of which it refuses those that Avro asks to ignore.
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
"""Of the file's schema; no registry has come so far."""
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
    """See Format.file_values. Of `reader` the record's name is taken, since files have any. Raises ValueError."""
    try:
        head: Any = fastavro.schemaless_reader(stream, _HEAD, None)
        writer = parse_schema(SchemaText(SchemaKind.AVRO, head["meta"]["avro.schema"].decode()))
    except _WRONG as error:
        raise _refusal(error) from error
    schema = SchemaText(SchemaKind.AVRO, _named(writer, parse_schema(reader).name), id=_ID)
    plain = as_json(writer, logical=False)
    head["meta"]["avro.schema"] = b'"null"'  # blocks are bytes whatever it is, and fastavro refuses some
    begin = io.BytesIO()
    fastavro.schemaless_writer(begin, _HEAD, head)
    values = _values(_Joined(begin.getvalue(), stream), fastavro.parse_schema(plain, _ignore_default_error=True))
    prefix = prefix_of(FormatOptions(schema))
    return FileValues(schema, (prefix + one for one in values))


def _named(writer: AvroType, name: str) -> str:
    """The text of the schema with this name for its record, unless a type in it has it."""
    try:
        text = schema_text(msgspec.structs.replace(writer, name=name))
        parse_schema(SchemaText(SchemaKind.AVRO, text))
    except AvroRefusal:
        return schema_text(writer)
    return text


def _values(stream: _Joined, schema: Any) -> Iterator[bytes]:
    """The bytes of each record. Raises ValueError."""
    try:
        block: Any  # fastavro's types do not have all of it
        for block in fastavro.block_reader(stream):  # type: ignore[arg-type]  # it only reads
            body = block.bytes_
            for _ in range(block.num_records):
                start = body.tell()
                fastavro.schemaless_reader(body, schema, None)
                yield body.getbuffer()[start : body.tell()].tobytes()
    except _WRONG as error:
        raise _refusal(error) from error


class _Joined:
    """Bytes, and then a stream."""

    def __init__(self, begin: bytes, rest: BinaryIO) -> None:
        self._begin, self._rest = io.BytesIO(begin), rest

    def read(self, size: int) -> bytes:
        """At most so many bytes; none at the end."""
        return self._begin.read(size) or self._rest.read(size)

    def tell(self) -> int:
        """Nobody asks where blocks are, which is noted all the same."""
        return 0


def _refusal(error: BaseException) -> ValueError:
    return ValueError(f"it is no whole Avro file: {first_line(error) or type(error).__name__}")
