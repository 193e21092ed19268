"""Rows to Kafka records, in the shape that `Producer.produce_batch` takes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol, TypedDict

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


class SinkFormat(Protocol):
    """What of a sink's plan matters here: the fields of `tidegate.plan.graph.SinkOperator` with the same names."""

    @property
    def format(self) -> str:
        """`json` or `raw`."""

    @property
    def columns(self) -> tuple[tuple[str, DataType], ...]:
        """What is written, in order."""

    @property
    def key(self) -> str | None:
        """Column whose text is the record key."""

    @property
    def timestamp(self) -> str | None:
        """Column that becomes the record timestamp."""


class Encoded(msgspec.Struct, frozen=True):
    """Records of one batch in row order."""

    records: list[OutputRecord]
    size_bytes: int
    """Of all keys and values."""
    timestamps_ms: list[int | None] | None = None
    """Milliseconds since 1970 for each record (None: the time of sending); None when the sink sets no timestamps."""


def encode_records(frame: pl.DataFrame, sink: SinkFormat) -> Encoded:
    """One record per row; the encoder of a sink is made once and kept."""
    return _encoder(sink.format, sink.columns, sink.key, sink.timestamp).encode(frame)


class RecordEncoder:
    """The expressions that make keys, values and timestamps of one sink."""

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
        values = encoded["value"]
        size_bytes = int(values.bin.size().sum())
        records: list[OutputRecord]
        if self._key is None:
            records = [{"value": value} for value in values.to_list()]
        else:
            keys = encoded["key"]
            size_bytes += int(keys.bin.size().sum())
            pairs = zip(keys.to_list(), values.to_list(), strict=True)
            records = [{"key": key, "value": value} for key, value in pairs]
        timestamps = encoded["timestamp"].to_list() if self._timestamp is not None else None
        return Encoded(records, size_bytes, timestamps)


@lru_cache(maxsize=256)
def _encoder(
    format_name: str, columns: tuple[tuple[str, DataType], ...], key: str | None, timestamp: str | None
) -> RecordEncoder:
    return RecordEncoder(format_name, columns, key, timestamp)


def key_bytes(key: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """The bytes of a record key: text as it is, integers decimal, boolean `true`/`false`, binary raw, NULL no key."""
    if isinstance(kind, pl.Binary):
        return key
    if isinstance(kind, pl.Datetime):
        key = timestamp_text(key)
    elif not isinstance(kind, pl.String):
        key = key.cast(pl.String)
    return key.cast(pl.Binary)
