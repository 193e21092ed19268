"""Object container files: their records as messages of a source, for `tidegate preview`."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator
from lzma import LZMAError
from typing import Any, BinaryIO

import fastavro
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException

from tidegate.formats.bisection import first_line
from tidegate.formats.kinds.avro.schema import as_json, parse_schema
from tidegate.formats.schema_ids import prefix_of
from tidegate.formats.schemas import FormatOptions, SchemaKind, SchemaText


def container_values(stream: BinaryIO, options: FormatOptions) -> Iterator[bytes]:
    """Values as they would be in the topic. Raises ValueError for what is no such file, or has other records.

    Fields are found by name, as in a topic whose records were written with the file's schema.
    """
    assert options.schema is not None
    target = fastavro.parse_schema(as_json(parse_schema(options.schema)))
    prefix = prefix_of(options)
    records = _records(stream)
    for number, record in enumerate(records, 1):
        made = io.BytesIO()
        made.write(prefix)
        try:
            fastavro.schemaless_writer(made, target, record)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"record {number} of the file does not fit the source's schema: {_said(error)}") from error
        yield made.getvalue()


def _records(stream: BinaryIO) -> Iterator[Any]:
    """Raises ValueError."""
    try:
        reader = fastavro.reader(stream)
        parse_schema(SchemaText(SchemaKind.AVRO, json.dumps(_unmarked(reader.writer_schema))))
        yield from reader
    except (
        ValueError,
        LookupError,
        EOFError,
        OSError,
        zlib.error,
        LZMAError,
        TypeError,
        OverflowError,
        SchemaParseException,
        SchemaResolutionError,
    ) as error:
        raise ValueError(f"it is no whole Avro file: {_said(error)}") from error


def _unmarked(schema: Any) -> Any:
    """Without what fastavro adds."""
    if isinstance(schema, dict):
        return {key: _unmarked(value) for key, value in schema.items() if not key.startswith("__")}
    return [_unmarked(one) for one in schema] if isinstance(schema, list) else schema


def _said(error: Exception) -> str:
    return first_line(error) or type(error).__name__
