"""Rows to Kafka records, in the shape that `Producer.produce_batch` takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import msgspec
import polars as pl

from tidegate.datatypes import DataType
from tidegate.formats.json_writer import JsonEncoder
from tidegate.formats.raw import raw_value
from tidegate.formats.text import timestamp_text


class OutputRecord(TypedDict, total=False):
    """One record; `key` is absent when the sink writes none."""

    key: bytes | None
    value: bytes | None


class Encoded(msgspec.Struct, frozen=True):
    """Records of one batch in row order."""

    records: list[OutputRecord]
    timestamps_ms: list[int | None] | None = None
    """Milliseconds since 1970 for each record (None: the time of sending); None when the sink sets no timestamps."""


class RecordEncoder:
    """Made once per sink: `RecordEncoder(sink.format, sink.columns, sink.key, sink.timestamp, input_columns)`."""

    def __init__(
        self,
        format_name: str,
        columns: Sequence[tuple[str, DataType]],
        key: str | None = None,
        timestamp: str | None = None,
    ) -> None:
        names = [name for name, _ in columns]
        if format_name == "json":
            value = JsonEncoder(columns).expression
        elif format_name == "raw":
            value = raw_value(columns)
            key = key or ("key" if "key" in names else None)
        else:
            raise ValueError(f"unknown format {format_name!r}: json or raw")
        self._value = value.alias("value")
        self._key = key
        self._timestamp = timestamp

    def encode(self, frame: pl.DataFrame) -> Encoded:
        """One record per row. The key and timestamp columns need not be among the written ones."""
        parts = [self._value]
        if self._key is not None:
            parts.append(key_bytes(pl.col(self._key), frame.schema[self._key]).alias("key"))
        if self._timestamp is not None:
            parts.append(pl.col(self._timestamp).dt.epoch("ms").alias("timestamp"))
        encoded = frame.select(parts)
        values = encoded["value"].to_list()
        records: list[OutputRecord]
        if self._key is None:
            records = [{"value": value} for value in values]
        else:
            keys = encoded["key"].to_list()
            records = [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]
        return Encoded(records, encoded["timestamp"].to_list() if self._timestamp is not None else None)


def key_bytes(key: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """The bytes of a record key: text as it is, integers decimal, boolean `true`/`false`, binary raw, NULL no key."""
    if isinstance(kind, pl.Binary):
        return key
    if isinstance(kind, pl.Datetime):
        key = timestamp_text(key)
    elif not isinstance(kind, pl.String):
        key = key.cast(pl.String)
    return key.cast(pl.Binary)
