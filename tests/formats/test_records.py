"""Rows to Kafka records."""

from __future__ import annotations

import datetime as dt

import polars as pl
import pytest

from tests.formats.routed import encode_routed, headers_column
from tests.support.records import listed
from tidegate.datatypes import BIGINT, BINARY, STRING, TIMESTAMP
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.record_limits import RecordLimits
from tidegate.formats.record_parts import RecordParts
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
    encoded = RecordEncoder("json", [("v", BIGINT)], RecordParts(key="k")).encode(frame)
    assert listed(encoded).keys == keys
    assert listed(encoded).values == [b'{"v":1}', b'{"v":2}', b'{"v":3}']


def test_a_sink_without_key_writes_none() -> None:
    encoded = RecordEncoder("json", [("v", BIGINT)]).encode(pl.DataFrame({"v": [1]}))
    assert (listed(encoded).keys, listed(encoded).values) == (None, [b'{"v":1}'])
    assert listed(encoded).timestamps_ms is None


def test_a_timestamp_column_sets_milliseconds() -> None:
    at = pl.Series("at", [1_500, None], dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))
    encoded = RecordEncoder("json", [("v", BIGINT)], RecordParts(timestamp="at")).encode(
        pl.DataFrame([pl.Series("v", [1, 2]), at])
    )
    assert listed(encoded).timestamps_ms == [1, None]


@pytest.mark.parametrize("unit", ["us", None])
def test_rows_whose_timestamp_kafka_cannot_store_are_told_and_left_out(unit: str | None) -> None:
    at = pl.Series("at", [0, 7, None, -1], dtype=pl.Int64)
    if unit is not None:
        at = (at * 1000).cast(pl.Datetime("us", "UTC"))
    frame = pl.DataFrame([pl.Series("v", [1, 2, 3, 4]), at])
    encoded = RecordEncoder("json", [("v", BIGINT)], RecordParts(key="v", timestamp="at")).encode(frame)
    assert listed(encoded).keys == [b"2", b"3"]
    assert listed(encoded).timestamps_ms == [7, None]
    assert encoded.size_bytes == 2 * len(b'2{"v":2}')
    assert [failure.row for failure in encoded.failures] == [0, 3]
    assert encoded.failures[1].message.startswith("`at` is -1 ms since 1970")


def test_raw_writes_value_and_key_and_null_is_a_tombstone() -> None:
    frame = pl.DataFrame({"key": ["a", "b"], "value": [b"\xff", None]})
    encoded = RecordEncoder("raw", [("value", BINARY)], RecordParts(key="key")).encode(frame)
    assert (listed(encoded).keys, listed(encoded).values) == ([b"a", b"b"], [b"\xff", None])


def test_size_counts_keys_and_values() -> None:
    encoder = RecordEncoder("raw", [("value", STRING)], RecordParts(key="k"))
    assert encoder.encode(pl.DataFrame({"k": ["ab", None], "value": ["é", None]})).size_bytes == 4


def test_a_timestamp_key_is_no_column_of_the_value() -> None:
    frame = pl.DataFrame({"at": pl.Series([0], dtype=pl.Datetime("us", "UTC")), "v": [1]})
    encoded = RecordEncoder("json", [("at", TIMESTAMP)], RecordParts(key="v")).encode(frame)
    assert (listed(encoded).keys, listed(encoded).values) == ([b"1"], [b'{"at":"1970-01-01T00:00:00Z"}'])


def test_a_format_may_set_everything_that_a_record_has(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pl.DataFrame(
        [
            pl.Series("value", [b"a", b"bad", None]),
            pl.Series("key", [None, b"k", b"k"]),
            pl.Series("timestamp", [7, None, None], dtype=pl.Int64),
            headers_column([[("h", b"1"), ("h", None)], [], None]),
            pl.Series("partition", [4, 5, None], dtype=pl.Int32),
        ]
    )
    encoded = encode_routed(monkeypatch, frame)
    assert (listed(encoded).values, listed(encoded).keys, listed(encoded).timestamps_ms) == (
        [b"a", None],
        [None, b"k"],
        [7, None],
    )
    assert (listed(encoded).headers, listed(encoded).partitions) == ([[("h", b"1"), ("h", None)], None], [4, None])
    assert encoded.size_bytes == 5
    assert encoded.failures == (RecordFailure(1, FailureKind.WRONG_TYPE, "it is bad"),)


def test_a_row_that_the_format_refuses_is_reported_by_it_and_not_by_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pl.DataFrame({"value": [b"bad", b"good"], "key": [None, None]}, schema_overrides={"key": pl.Binary()})
    encoded = encode_routed(monkeypatch, frame, RecordLimits("kept", 1000, needs_key=True))
    assert [(one.row, one.kind) for one in encoded.failures] == [(0, FailureKind.WRONG_TYPE), (1, FailureKind.NO_KEY)]
