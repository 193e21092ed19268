"""Rows to Kafka records as columns: the output of an encoder without rows that Kafka or the topic would reject."""

from __future__ import annotations

from typing import Final

import msgspec
import polars as pl

from tidegate.formats import keys
from tidegate.formats.contract import Columns, Encoded, Headers
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.part_values import PartsEncoder, header_pairs, header_size
from tidegate.formats.record_limits import RecordLimits, find_refused, is_at_edge
from tidegate.formats.record_parts import NO_PARTS, RecordParts
from tidegate.formats.registry import FORMATS
from tidegate.formats.schema_ids import KEY_HEADER, VALUE_HEADER, bare_options
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, IdPlace
from tidegate.native.library import loaded
from tidegate.native.records import LentRecords

LEAST_TIMESTAMP_MS: Final = 1
"""Brokers reject timestamps before 1970, and the client replaces 0 by the time of sending."""


class OutputRecords(msgspec.Struct, frozen=True, eq=False):
    """Records of one batch in row order, as columns of equal length; None for parts that the sink does not set."""

    values: pl.Series
    """Binary; NULL for a tombstone."""
    keys: pl.Series | None = None
    """Binary."""
    timestamps_ms: pl.Series | None = None
    """Int64, milliseconds since 1970, at least `LEAST_TIMESTAMP_MS`; NULL for the time of sending."""
    headers: pl.Series | None = None
    """Of type `record_parts.HEADERS_TYPE`."""
    partitions: pl.Series | None = None
    """Int32; NULL if the client chooses the partition by the key."""
    size_bytes: int = 0
    """Size of all keys, values and headers."""
    memory_bytes: int = 0
    """Memory that the columns keep occupied: that of the larger columns which they were taken from."""
    failures: tuple[RecordFailure, ...] = ()
    """Rows without a record, because none could be made or Kafka would reject it."""
    at_edge: bool = False
    """A timestamp is so close to the topic's limits that the broker may still reject it."""
    topic: str | None = None
    """Topic of all records; None if the sink has only one."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def keyed_values(self) -> bool:
        """True if only keys and values are set."""
        return self.timestamps_ms is None and self.headers is None and self.partitions is None

    def header_pairs(self, start: int, end: int) -> list[Headers | None] | None:
        """Returns the headers of the records from row `start` on, before row `end`."""
        return None if self.headers is None else header_pairs(self.headers[start:end])


def output_records(
    values: pl.Series,
    keys: pl.Series | None = None,
    timestamps_ms: pl.Series | None = None,
    headers: pl.Series | None = None,
    partitions: pl.Series | None = None,
    failures: tuple[RecordFailure, ...] = (),
    *,
    at_edge: bool = False,
) -> OutputRecords:
    """Returns records with their sizes."""
    lent, library = LentRecords(values, keys, headers=headers), loaded()
    size_bytes = _size_bytes(values, keys, headers) if library is None else lent.size_bytes(library)
    return OutputRecords(
        values, keys, timestamps_ms, headers, partitions, size_bytes, lent.memory_bytes, failures, at_edge
    )


def _size_bytes(values: pl.Series, keys: pl.Series | None, headers: pl.Series | None) -> int:
    sizes = [int(column.bin.size().sum()) for column in (values, keys) if column is not None]
    return sum(sizes) + (0 if headers is None else header_size(headers))


class RecordEncoder:
    """Encodes records of one sink: the format's encoder, the other `parts` of a record, and Kafka's limits."""

    def __init__(
        self, format_name: str, columns: Columns, parts: RecordParts = NO_PARTS, options: FormatOptions = NO_OPTIONS
    ) -> None:
        self._encoder = FORMATS[format_name].encoder(columns, bare_options(options))
        marks = _marks_of(format_name, options, parts)
        self._parts = PartsEncoder(msgspec.structs.replace(parts, marks=marks) if marks else parts)
        self._timestamp = parts.timestamp or "timestamp"
        self._partition = parts.partition or "partition"

    def encode(self, frame: pl.DataFrame, limits: RecordLimits | None = None) -> OutputRecords:
        """Encodes one record per row, except for failed rows."""
        made = self._parts.encode(frame, self._encoder)
        columns, failures = made.columns, self._failures(made, limits)
        if failures:
            columns = columns.filter(~pl.int_range(pl.len()).is_in([failure.row for failure in failures]))
        by_name = {column.name: column for column in columns}
        timestamps_ms = by_name.get("timestamp")
        return output_records(
            by_name["value"],
            by_name.get("key"),
            timestamps_ms,
            by_name.get("headers"),
            by_name.get("partition"),
            failures,
            at_edge=timestamps_ms is not None and limits is not None and is_at_edge(timestamps_ms, limits),
        )

    def _failures(self, encoded: Encoded, limits: RecordLimits | None) -> tuple[RecordFailure, ...]:
        """Returns each failed row once, with its first reason."""
        columns = encoded.columns
        found = {failure.row: failure for failure in encoded.failures}
        timestamp = self._timestamp if "timestamp" in columns.columns else None
        if timestamp is not None:
            for failure in _unstorable(timestamp, columns["timestamp"]):
                found.setdefault(failure.row, failure)
        if limits is not None:
            for failure in find_refused(columns, limits, timestamp, self._partition):
                found.setdefault(failure.row, failure)
        return tuple(found[row] for row in sorted(found))


def _marks_of(format_name: str, options: FormatOptions, parts: RecordParts) -> tuple[tuple[str, str, bytes], ...]:
    """Returns the headers with schema ids, if ids are in headers."""
    marks = []
    if options.ids is IdPlace.HEADER and FORMATS[format_name].schema_kind is not None:
        marks.append((VALUE_HEADER, "value", FORMATS[format_name].schema_mark(options)))
    if parts.key is not None and parts.key_format == keys.AVRO and parts.key_options.ids is IdPlace.HEADER:
        marks.append((KEY_HEADER, "key", FORMATS[keys.AVRO].schema_mark(parts.key_options)))
    return tuple(marks)


def _unstorable(column: str, timestamps_ms: pl.Series) -> list[RecordFailure]:
    rows = (timestamps_ms < LEAST_TIMESTAMP_MS).arg_true()
    return [
        RecordFailure(
            row,
            FailureKind.TIMESTAMP_NOT_STORABLE,
            f"`{column}` is {value} ms since 1970, but Kafka stores timestamps from {LEAST_TIMESTAMP_MS} ms on (NULL "
            "means the time of sending)",
        )
        for row, value in zip(rows, timestamps_ms.gather(rows), strict=True)
    ]
