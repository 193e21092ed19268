"""Raw records as rows, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from typing_extensions import override

from tidegate.datatypes import FIRST_MOMENT, LAST_MOMENT
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Decoded, Decoder, Encoder, Messages
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.raw import FORMAT
from tidegate.formats.text import ExpressionEncoder

_FIRST_MS, _LAST_MS = FIRST_MOMENT // 1000, LAST_MOMENT // 1000


class RawDecoder(Decoder):
    """Creates frames with the columns `names`.

    Kafka accepts any timestamp, and producers that use units other than milliseconds write years after 9999. Such a
    record is bad if its timestamp is read.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._types = {name: polars_type(FORMAT.fixed_columns[name]) for name in names}

    @override
    def decode(self, messages: Messages) -> Decoded:
        if not self._types:
            return Decoded(pl.DataFrame(height=len(messages)), ())
        columns = {name: _column(messages, name) for name in self._types}
        failures = [
            RecordFailure(row, FailureKind.OUT_OF_RANGE, f"the record's timestamp is {at_ms} ms, after the year 9999")
            for row, at_ms in enumerate(columns.get("timestamp", ()))
            if at_ms is not None and not _FIRST_MS <= at_ms <= _LAST_MS
        ]
        if failures:
            bad = {failure.row for failure in failures}
            good = [row for row in range(len(messages)) if row not in bad]
            columns = {name: [values[row] for row in good] for name, values in columns.items()}
        return Decoded(pl.DataFrame([self._series(name, values) for name, values in columns.items()]), failures)

    def _series(self, name: str, values: Sequence[Any]) -> pl.Series:
        if name == "timestamp":
            return pl.Series(name, values, dtype=pl.Datetime("ms", "UTC")).cast(self._types[name])
        return pl.Series(name, values, dtype=self._types[name])


def _column(messages: Messages, name: str) -> Sequence[Any]:
    match name:
        case "key":
            return messages.keys
        case "value":
            return messages.values
        case "timestamp":
            return messages.timestamps_ms
        case "topic":
            return messages.topics
        case "partition":
            return messages.partitions
    return messages.offsets


def raw_encoder() -> Encoder:
    """Returns an encoder of records whose value is the column `value`."""
    return ExpressionEncoder(pl.col("value").cast(pl.Binary))
