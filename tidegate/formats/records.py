"""Rows to Kafka records, in the shape that `Producer.produce_batch` takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

import msgspec
import polars as pl

from tidegate.datatypes import DataType
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.json_writer import JsonEncoder
from tidegate.formats.raw import raw_value
from tidegate.formats.record_limits import RecordLimits, find_refused, is_at_edge
from tidegate.formats.text import timestamp_text

LEAST_TIMESTAMP_MS: Final = 1
"""Brokers refuse timestamps before 1970, and the client writes the time of sending for 0."""


class OutputRecord(TypedDict, total=False):
    """One record; `key` is absent when the sink writes none."""

    key: bytes | None
    value: bytes | None


class Encoded(msgspec.Struct, frozen=True):
    """Records of one batch in row order."""

    records: list[OutputRecord]
    size_bytes: int
    """Of all keys and values."""
    timestamps_ms: list[int | None] | None = None
    """Milliseconds since 1970 for each record, from `LEAST_TIMESTAMP_MS` on (None: the time of sending); None when the
    sink sets no timestamps."""
    failures: tuple[RecordFailure, ...] = ()
    """Rows that are not among the records, because Kafka would refuse them."""
    at_edge: bool = False
    """A timestamp is so near at the topic's limits that the broker may refuse it all the same."""


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
        self._parts: dict[pl.DataType | None, list[pl.Expr]] = {}

    def encode(self, frame: pl.DataFrame, limits: RecordLimits | None = None) -> Encoded:
        """One record per row, but for the failures. Key and timestamp columns need not be among the written ones."""
        kind = None if self._key is None else frame.get_column(self._key).dtype
        if kind not in self._parts:
            self._parts[kind] = self._expressions(kind)
        encoded = frame.select_seq(self._parts[kind])
        failures = self._failures(encoded, limits)
        if failures:
            encoded = encoded.filter(~pl.int_range(pl.len()).is_in([failure.row for failure in failures]))
        values = encoded.get_column("value").to_list()
        size_bytes = _size_bytes(values)
        records: list[OutputRecord]
        if self._key is None:
            records = [{"value": value} for value in values]
        else:
            keys = encoded.get_column("key").to_list()
            size_bytes += _size_bytes(keys)
            records = [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]
        if self._timestamp is None:
            return Encoded(records, size_bytes, None, failures)
        at_edge = limits is not None and is_at_edge(encoded["timestamp"], limits)
        return Encoded(records, size_bytes, encoded["timestamp"].to_list(), failures, at_edge)

    def _failures(self, encoded: pl.DataFrame, limits: RecordLimits | None) -> tuple[RecordFailure, ...]:
        """Each row once, with the first reason."""
        found: dict[int, RecordFailure] = {}
        if self._timestamp is not None:
            found.update((failure.row, failure) for failure in _unstorable(self._timestamp, encoded["timestamp"]))
        if limits is not None:
            for failure in find_refused(encoded, limits, self._timestamp):
                found.setdefault(failure.row, failure)
        return tuple(found[row] for row in sorted(found))

    def _expressions(self, kind: pl.DataType | None) -> list[pl.Expr]:
        """What makes the record parts; `kind` is the type of the key column, which is one and the same in practice."""
        parts = [self._value]
        if self._key is not None and kind is not None:
            parts.append(key_bytes(pl.col(self._key), kind).alias("key"))
        if self._timestamp is not None:
            parts.append(pl.col(self._timestamp).dt.epoch("ms").alias("timestamp"))
        return parts


def _unstorable(column: str, timestamps_ms: pl.Series) -> list[RecordFailure]:
    rows = (timestamps_ms < LEAST_TIMESTAMP_MS).arg_true()
    return [
        RecordFailure(
            row,
            FailureKind.TIMESTAMP_NOT_STORABLE,
            f"`{column}` is {value} ms since 1970, and Kafka stores timestamps from "
            f"{LEAST_TIMESTAMP_MS} ms on (NULL stands for the time of sending)",
        )
        for row, value in zip(rows, timestamps_ms.gather(rows), strict=True)
    ]


def _size_bytes(values: list[bytes | None]) -> int:
    """A query of Polars for it would cost more than the rest of a small batch."""
    return sum(map(len, filter(None, values)))


def key_bytes(key: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """The bytes of a record key: text as it is, integers decimal, boolean `true`/`false`, binary raw, NULL no key."""
    if isinstance(kind, pl.Binary):
        return key
    if isinstance(kind, pl.Datetime):
        key = timestamp_text(key)
    elif not isinstance(kind, pl.String):
        key = key.cast(pl.String)
    return key.cast(pl.Binary)
