"""Columns to JSON: one object per row, fields in column order, NULL fields kept as `null`.

Values are written as in `text.py`. JSON has no NaN and no infinities, which are written as `null`: a reader that
expects a number could not use a string, and a single field should not fail the record. Other formats have
`record_of_json`: records that people write as JSON become records of the format.
"""

from __future__ import annotations

from typing import Final, Protocol

import polars as pl
from typing_extensions import override

from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Columns, Decoded, Encoder, FormatRefusal, WaitingForSchema
from tidegate.formats.kinds.json.reader import JsonDecoder
from tidegate.formats.text import ExpressionEncoder, is_composed, json_objects_of, json_ready
from tidegate.native.json import WRITTEN_KINDS, JsonWriter
from tidegate.native.library import loaded

ROWS_MIN: Final = 500
"""Rows from which on C takes less time than the expression, which costs less for a frame and more for a row."""


def json_objects(columns: Columns) -> pl.Expr:
    """Returns a Binary expression with the object of each row, in UTF-8; other columns are left out."""
    if any(is_composed(kind) for _, kind in columns):
        return json_objects_of(columns).cast(pl.Binary)
    fields = [json_ready(pl.col(name), polars_type(kind)).alias(name) for name, kind in columns]
    text = pl.struct(fields).struct.json_encode() if fields else pl.repeat("{}", pl.len())
    return text.cast(pl.Binary)


class JsonEncoder(ExpressionEncoder):
    """Writes objects in C where it was compiled and supports all columns. The bytes are those of the expression."""

    def __init__(self, columns: Columns) -> None:
        super().__init__(json_objects(columns))
        self._types = {name: polars_type(kind) for name, kind in columns}
        library = loaded()
        self._writer: JsonWriter | None = None
        if library is not None and columns and all(kind.kind in WRITTEN_KINDS for _, kind in columns):
            kinds = [kind.kind for _, kind in columns]
            self._writer = JsonWriter(library.free, list(zip(_before_values(columns), kinds, strict=True)))

    @override
    def write(self, frame: pl.DataFrame) -> pl.Series | None:
        if self._writer is None or frame.height < ROWS_MIN:
            return None
        columns = [frame.get_column(name) for name in self._types]
        if any(column.dtype != kind for column, kind in zip(columns, self._types.values(), strict=True)):
            return None
        return self._writer.write(columns)


def _before_values(columns: Columns) -> list[bytes]:
    """Returns what an object has before the value of each column."""
    nothing = pl.DataFrame([pl.Series(name, [None], dtype=polars_type(kind)) for name, kind in columns])
    alone = nothing.select(json_objects([one]).alias(f"{place}") for place, one in enumerate(columns)).row(0)
    names = [each.removeprefix(b"{").removesuffix(b"null}") for each in alone]
    return [(b"," if place else b"{") + name for place, name in enumerate(names)]


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
