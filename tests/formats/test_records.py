"""Rows to Kafka records."""

from __future__ import annotations

import datetime as dt

import polars as pl
import pytest

from tidegate.datatypes import BIGINT, BINARY, STRING, TIMESTAMP
from tidegate.formats.records import RecordEncoder


@pytest.mark.parametrize(
    ("column", "keys"),
    [
        (pl.Series(["é", "", None]), ["é".encode(), b"", None]),
        (pl.Series([1, -5, None]), [b"1", b"-5", None]),
        (pl.Series([True, False, None]), [b"true", b"false", None]),
        (pl.Series([b"\xff", b"", None]), [b"\xff", b"", None]),
        (pl.Series([dt.date(2026, 1, 1), None, None]), [b"2026-01-01", None, None]),
        (
            pl.Series([dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None, None], dtype=pl.Datetime("us", "UTC")),
            [b"2026-01-01T00:00:00Z", None, None],
        ),
    ],
)
def test_keys_are_the_text_of_their_column(column: pl.Series, keys: list[bytes | None]) -> None:
    frame = pl.DataFrame([column.alias("k"), pl.Series("v", [1, 2, 3])])
    encoded = RecordEncoder("json", [("v", BIGINT)], "k").encode(frame)
    assert [record["key"] for record in encoded.records] == keys
    assert [record["value"] for record in encoded.records] == [b'{"v":1}', b'{"v":2}', b'{"v":3}']


def test_a_sink_without_key_writes_none() -> None:
    encoded = RecordEncoder("json", [("v", BIGINT)]).encode(pl.DataFrame({"v": [1]}))
    assert encoded.records == [{"value": b'{"v":1}'}]
    assert encoded.timestamps_ms is None


def test_a_timestamp_column_sets_milliseconds() -> None:
    at = pl.Series("at", [1_500, None], dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))
    encoded = RecordEncoder("json", [("v", BIGINT)], None, "at").encode(pl.DataFrame([pl.Series("v", [1, 2]), at]))
    assert encoded.timestamps_ms == [1, None]


@pytest.mark.parametrize("unit", ["us", None])
def test_rows_whose_timestamp_kafka_cannot_store_are_told_and_left_out(unit: str | None) -> None:
    at = pl.Series("at", [0, 7, None, -1], dtype=pl.Int64)
    if unit is not None:
        at = (at * 1000).cast(pl.Datetime("us", "UTC"))
    frame = pl.DataFrame([pl.Series("v", [1, 2, 3, 4]), at])
    encoded = RecordEncoder("json", [("v", BIGINT)], "v", "at").encode(frame)
    assert [record["key"] for record in encoded.records] == [b"2", b"3"]
    assert encoded.timestamps_ms == [7, None]
    assert encoded.size_bytes == 2 * len(b'2{"v":2}')
    assert [failure.row for failure in encoded.failures] == [0, 3]
    assert encoded.failures[1].message.startswith("`at` is -1 ms since 1970")


def test_raw_writes_value_and_key_and_null_is_a_tombstone() -> None:
    frame = pl.DataFrame({"key": ["a", "b"], "value": [b"\xff", None]})
    encoded = RecordEncoder("raw", [("key", STRING), ("value", BINARY)]).encode(frame)
    assert encoded.records == [{"key": b"a", "value": b"\xff"}, {"key": b"b", "value": None}]


def test_raw_needs_a_value_of_text_or_bytes() -> None:
    with pytest.raises(ValueError, match="column `value`"):
        RecordEncoder("raw", [("value", BIGINT)])


def test_size_counts_keys_and_values() -> None:
    encoder = RecordEncoder("raw", [("value", STRING)], "k")
    assert encoder.encode(pl.DataFrame({"k": ["ab", None], "value": ["é", None]})).size_bytes == 4


def test_a_timestamp_key_is_no_column_of_the_value() -> None:
    frame = pl.DataFrame({"at": pl.Series([0], dtype=pl.Datetime("us", "UTC")), "v": [1]})
    encoded = RecordEncoder("json", [("at", TIMESTAMP)], "v").encode(frame)
    assert encoded.records == [{"key": b"1", "value": b'{"at":"1970-01-01T00:00:00Z"}'}]
