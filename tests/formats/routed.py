"""A format that sets everything that a record may have: columns of the frame with the names of a record's parts."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest

from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Columns, Decoder, Encoded, Format
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.record_limits import RecordLimits
from tidegate.formats.record_parts import HEADERS_TYPE
from tidegate.formats.records import OutputRecords, RecordEncoder
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import FormatOptions, Schemas

Header = tuple[str, bytes | None]


class RoutedFormat(Format):
    """Values of `bad` are no records."""

    name = "routed"
    writes = "what is there"
    page = "Routed."

    def decoder(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> Decoder:
        raise NotImplementedError

    def encoder(self, columns: Columns, options: FormatOptions) -> RoutedFormat:
        return self

    def encode(self, frame: pl.DataFrame) -> Encoded:
        bad = [row for row, value in enumerate(frame["value"]) if value == b"bad"]
        return Encoded(frame, [RecordFailure(row, FailureKind.WRONG_TYPE, "it is bad") for row in bad])


def encode_routed(patch: pytest.MonkeyPatch, frame: pl.DataFrame, limits: RecordLimits | None = None) -> OutputRecords:
    """By the encoder of a sink with this format."""
    patch.setattr("tidegate.formats.records.FORMATS", {**FORMATS, "routed": RoutedFormat()})
    return RecordEncoder("routed", ()).encode(frame, limits)


def headers_column(headers: Sequence[Sequence[Header] | None]) -> pl.Series:
    made = [None if one is None else [{"key": name, "value": value} for name, value in one] for one in headers]
    return pl.Series("headers", made, dtype=polars_type(HEADERS_TYPE))
