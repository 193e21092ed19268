"""Rows to Kafka records as columns: what an encoder makes, without the rows that Kafka or the topic would refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import polars as pl

from tidegate.formats.contract import Columns, Encoded, Headers
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.record_limits import RecordLimits, find_refused, is_at_edge
from tidegate.formats.registry import FORMATS

LEAST_TIMESTAMP_MS: Final = 1
"""Brokers refuse timestamps before 1970, and the client writes the time of sending for 0."""


class OutputRecords(msgspec.Struct, frozen=True):
    """Records of one batch in row order, as columns of equal length; None for what the sink does not set."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    timestamps_ms: Sequence[int | None] | None = None
    """Milliseconds since 1970, from `LEAST_TIMESTAMP_MS` on; None: the time of sending."""
    headers: Sequence[Headers | None] | None = None
    partitions: Sequence[int | None] | None = None
    """None: the client chooses by the key."""
    topics: Sequence[str | None] | None = None
    """None: the sink's topic, by whose limits records are judged whatever topic they go to."""
    size_bytes: int = 0
    """Of all keys and values."""
    failures: tuple[RecordFailure, ...] = ()
    """Rows that are not among the records, because they have none or Kafka would refuse it."""
    at_edge: bool = False
    """A timestamp is so near at the topic's limits that the broker may refuse it all the same."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def keyed_values(self) -> bool:
        """Nothing is set but keys and values."""
        return self.timestamps_ms is None and self.headers is None and self.partitions is None and self.topics is None


class RecordEncoder:
    """The encoder of one sink's format, and what Kafka asks of every record. `timestamp` names a column of frames."""

    def __init__(
        self, format_name: str, columns: Columns, key: str | None = None, timestamp: str | None = None
    ) -> None:
        self._encoder = FORMATS[format_name].encoder(columns, key, timestamp)
        self._timestamp = timestamp or "timestamp"

    def encode(self, frame: pl.DataFrame, limits: RecordLimits | None = None) -> OutputRecords:
        """One record per row, but for the failures."""
        encoded = self._encoder.encode(frame)
        columns, failures = encoded.columns, self._failures(encoded, limits)
        if failures:
            columns = columns.filter(~pl.int_range(pl.len()).is_in([failure.row for failure in failures]))
        by_name = {column.name: column for column in columns}
        parts = {name: column.to_list() for name, column in by_name.items()}
        values, keys = parts["value"], parts.get("key")
        return OutputRecords(
            values,
            keys,
            parts.get("timestamp"),
            _headers(parts.get("headers")),
            parts.get("partition"),
            parts.get("topic"),
            _size_bytes(values) + (0 if keys is None else _size_bytes(keys)),
            failures,
            "timestamp" in parts and limits is not None and is_at_edge(by_name["timestamp"], limits),
        )

    def _failures(self, encoded: Encoded, limits: RecordLimits | None) -> tuple[RecordFailure, ...]:
        """Each row once, with the first reason."""
        columns = encoded.columns
        found = {failure.row: failure for failure in encoded.failures}
        timestamp = self._timestamp if "timestamp" in columns.columns else None
        if timestamp is not None:
            for failure in _unstorable(timestamp, columns["timestamp"]):
                found.setdefault(failure.row, failure)
        if limits is not None:
            for failure in find_refused(columns, limits, timestamp):
                found.setdefault(failure.row, failure)
        return tuple(found[row] for row in sorted(found))


def _headers(found: list[Any] | None) -> list[Headers | None] | None:
    if found is None:
        return None
    return [None if one is None else [(header["name"], header["value"]) for header in one] for one in found]


def _unstorable(column: str, timestamps_ms: pl.Series) -> list[RecordFailure]:
    rows = (timestamps_ms < LEAST_TIMESTAMP_MS).arg_true()
    return [
        RecordFailure(
            row,
            FailureKind.TIMESTAMP_NOT_STORABLE,
            f"`{column}` is {value} ms since 1970, and Kafka stores timestamps from {LEAST_TIMESTAMP_MS} ms on (NULL "
            "stands for the time of sending)",
        )
        for row, value in zip(rows, timestamps_ms.gather(rows), strict=True)
    ]


def _size_bytes(values: list[bytes | None]) -> int:
    """A query of Polars for it would cost more than the rest of a small batch."""
    return sum(map(len, filter(None, values)))
