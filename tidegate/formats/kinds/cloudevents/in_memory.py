"""Events in structured mode decoded in C, as records of their attributes and a struct of their data.

An event is certain if it is valid, its data is an object in JSON, and a field of it is there. Every other event is left
over, to the reader that takes events apart one by one.
"""

from __future__ import annotations

import polars as pl
from typing_extensions import override

from tidegate.datatypes import STRING, DataType, Schema
from tidegate.formats.contract import Columns
from tidegate.formats.in_memory import Certain
from tidegate.formats.kinds.cloudevents.attributes import CORE, JSON_TYPE, REQUIRED, SPECVERSION, attribute_of
from tidegate.formats.kinds.cloudevents.checks import is_suspect
from tidegate.formats.schemas import FormatOptions, UnknownFields
from tidegate.native.columns import Rows
from tidegate.native.json import ZONED, RecordDecoder, is_supported
from tidegate.native.library import loaded

_DATA = "data"
_BASE64 = "data_base64"
_CERTAIN = "data is certain"


class CertainEvents(Certain):
    """Decodes events in structured mode."""

    def __init__(self, decoder: RecordDecoder, attributes: Schema, fields: Columns, output: Columns) -> None:
        self._decoder = decoder
        self._certain = pl.all_horizontal(
            pl.col(_BASE64).is_null(),
            *(pl.col(name).is_not_null() for name in REQUIRED),
            *((pl.col(name) != "").fill_null(value=True) for name in CORE if attributes[name] == STRING),
            pl.col("specversion") == SPECVERSION,
            pl.col("datacontenttype").is_null() | pl.col("datacontenttype").str.contains(JSON_TYPE),
            *([_any_field(fields)] if fields else []),
        ).alias(_CERTAIN)
        self._attributes = attributes
        self._has_fields = bool(fields)
        self._output = [(column, attribute_of(column)) for column, _ in output]

    @override
    def decode(self, addresses: int, lengths: int, count: int) -> Rows:
        frame, left = self._decoder.decode(addresses, lengths, count)
        data = frame.get_column(_DATA).struct.unnest() if self._has_fields else None
        found = [
            (frame.get_column(name) if name or data is None else data.get_column(column)).alias(column)
            for column, name in self._output
        ]
        rows = pl.DataFrame(found) if found else pl.DataFrame(height=frame.height)
        if self._are_certain(frame, data):
            return Rows(rows, left)
        certain = frame.select(self._certain).to_series()
        before = set(left)
        taken = [row for row in range(count) if row not in before]
        left = sorted([*left, *(taken[place] for place in (~certain).arg_true())])
        return Rows(rows.filter(certain) if found else pl.DataFrame(height=count - len(left)), left)

    def _are_certain(self, frame: pl.DataFrame, data: pl.DataFrame | None) -> bool:
        """Returns whether all rows are for sure. Most batches are, and few comparisons show that."""
        if frame.get_column(_BASE64).null_count() != frame.height:
            return False
        if data is not None and all(column.null_count() for column in data.get_columns()):
            return False
        texts = {
            name: frame.get_column(name) for name, kind in self._attributes.items() if name in CORE and kind == STRING
        }
        return not is_suspect(texts)


def _any_field(fields: Columns) -> pl.Expr:
    return pl.any_horizontal(pl.col(_DATA).struct.field(name).is_not_null() for name, _ in fields)


def find_certain(attributes: Schema, fields: Columns, output: Columns, options: FormatOptions) -> CertainEvents | None:
    """Returns a decoder in C; None if the library is not available or does not support a type or an option."""
    library = loaded()
    members = [(name, ZONED if kind.kind == "timestamp" else kind) for name, kind in attributes.items()]
    data = DataType("struct", fields=tuple(fields))
    record = DataType("struct", fields=(*members, *([(_DATA, data)] if fields else []), (_BASE64, STRING)))
    if library is None or options.unknown_fields is not UnknownFields.SKIP or not is_supported(record):
        return None
    decoder = RecordDecoder(library.free, record, [name for name, _ in record.fields], strict=False)
    return CertainEvents(decoder, attributes, fields, output)
