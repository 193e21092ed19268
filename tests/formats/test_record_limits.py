"""Records that a topic would refuse are bad where they are encoded (X11, X12)."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import polars as pl
import pytest

from tests.formats.routed import encode_routed, headers_column
from tests.support.records import listed
from tidegate.datatypes import BIGINT, BINARY, TIMESTAMP
from tidegate.formats.failures import FailureKind
from tidegate.formats.record_limits import EDGE_MS, RecordLimits, batch_size, compressed_size
from tidegate.formats.record_parts import RecordParts
from tidegate.formats.records import OutputRecords, RecordEncoder

NOW = 1_800_000_000_000
LIMITS = RecordLimits("kept", record_bytes=1_000_000, batch_bytes=2000, now_ms=NOW)
VALUE = [("value", BINARY)]


def encode_values(sizes: list[int], limits: RecordLimits, keys: list[bytes | None] | None = None) -> OutputRecords:
    frame = pl.DataFrame({"value": [b"x" * size for size in sizes]})
    if keys is None:
        return RecordEncoder("raw", VALUE).encode(frame, limits)
    frame = frame.with_columns(pl.Series("k", keys, dtype=pl.Binary()))
    return RecordEncoder("raw", VALUE, RecordParts(key="k")).encode(frame, limits)


def stamped(*offsets_ms: int | None, **limits: int) -> OutputRecords:
    """Records with timestamps that lie so far from now."""
    at = [None if offset is None else (NOW + offset) * 1000 for offset in offsets_ms]
    frame = pl.DataFrame({"n": range(len(at)), "at": pl.Series(at, dtype=pl.Int64()).cast(pl.Datetime("us", "UTC"))})
    bounds = {f"{name}_ms": NOW + offset for name, offset in limits.items()}
    encoder = RecordEncoder("json", [("n", BIGINT), ("at", TIMESTAMP)], RecordParts(timestamp="at"))
    return encoder.encode(frame, msgspec.structs.replace(LIMITS, **bounds))


def test_X12_the_size_of_a_batch_of_one_record_is_kafkas() -> None:
    for value, key, whole in (
        (1930, None, 2000),
        (1829, 100, 2000),
        (99_928, None, 100_000),
        (1_048_516, None, 1_048_588),
    ):
        assert batch_size(None if key is None else b"k" * key, b"x" * value) == whole
    assert batch_size(None, None) == 61 + 1 + 4 + 2


def test_X12_a_record_that_the_topic_would_refuse_is_bad_with_sizes_and_limits() -> None:
    encoded = encode_values([1930, 1931, 5, 90_000], LIMITS)
    assert [failure.row for failure in encoded.failures] == [1, 3]
    assert [len(value or b"") for value in listed(encoded).values] == [1930, 5]
    assert encoded.size_bytes == 1935
    assert str(encoded.failures[0]) == (
        "RECORD_TOO_LARGE: key and value have 1931 bytes, 2001 in Kafka's format; max.message.bytes of topic kept is "
        "2000, and message.max.bytes of the producer (`kafka` of the sink) leaves 1000000 for them"
    )


def test_X12_headers_count_as_they_lie_in_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    headers: list[dict[str, Any]] = [{"key": "é", "value": b"x" * 100}, {"key": "n", "value": None}]
    assert batch_size(None, b"x" * 10, headers) == batch_size(None, b"x" * 10) + (1 + 2) + (2 + 100) + (1 + 1) + 1 + 1
    names = [("h", b"y" * 100)] * 3
    frame = pl.DataFrame([pl.Series("value", [b"x" * 1618] * 2 + [b"x" * 1619]), headers_column([names, None, names])])
    encoded = encode_routed(monkeypatch, frame, LIMITS)
    assert [one.row for one in encoded.failures] == [2]
    assert str(encoded.failures[0]).startswith(
        "RECORD_TOO_LARGE: key, value and headers have 1931 bytes, 2001 in Kafka's format; max.message.bytes of topic"
    )


def test_X12_the_key_counts_and_so_does_the_clients_own_limit() -> None:
    encoded = encode_values([1829, 1829, 10], LIMITS, [b"k" * 100, b"k" * 101, None])
    assert [failure.row for failure in encoded.failures] == [1]
    client = RecordLimits("kept", record_bytes=100, batch_bytes=None)
    encoded = encode_values([100, 101], client)
    assert [failure.row for failure in encoded.failures] == [1]
    assert "is not visible to this user" in encoded.failures[0].message


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_X12_what_is_small_enough_when_compressed_is_written(codec: str) -> None:
    noise = random.Random(7).randbytes(30_000)
    frame = pl.DataFrame({"value": [b"ab" * 15_000, noise, b"small"]})
    limits = msgspec.structs.replace(LIMITS, batch_bytes=20_000, codec=codec)
    encoded = RecordEncoder("raw", VALUE).encode(frame, limits)
    assert [failure.row for failure in encoded.failures] == [1]
    assert len(encoded) == 2
    assert compressed_size(codec, b"ab" * 15_000) < 5_000
    plain = RecordEncoder("raw", VALUE).encode(frame, msgspec.structs.replace(limits, codec=""))
    assert [failure.row for failure in plain.failures] == [0, 1]


def test_X11_timestamps_beyond_the_topics_limits_are_bad() -> None:
    hour = 3_600_000
    encoded = stamped(0, hour, hour + 1, -2 * hour, -2 * hour - 1, None, earliest=-2 * hour, latest=hour)
    assert [failure.row for failure in encoded.failures] == [2, 4]
    assert listed(encoded).timestamps_ms == [NOW, NOW + hour, NOW - 2 * hour, None]
    late, early = (str(failure) for failure in encoded.failures)
    assert late == (
        "TIMESTAMP_OUT_OF_RANGE: `at` is 2027-01-15T09:00:00.001Z, 3600 s after now; topic kept takes at most 3600 s "
        "(message.timestamp.after.max.ms, before Kafka 4.0 message.timestamp.difference.max.ms)"
    )
    assert "7200 s before now; topic kept takes at most 7200 s (message.timestamp.before.max.ms, " in early
    assert stamped(10**12, -(10**12)).failures == ()


def test_X11_records_near_a_limit_are_known_to_be_so() -> None:
    assert not stamped(0, None, latest=EDGE_MS + 1).at_edge
    assert stamped(1, None, latest=EDGE_MS + 1).at_edge
    assert stamped(0, -EDGE_MS, earliest=-2 * EDGE_MS).at_edge
    assert not stamped(0).at_edge


def test_X11_a_compacted_topic_takes_no_record_without_a_key() -> None:
    limits = msgspec.structs.replace(LIMITS, needs_key=True)
    encoded = encode_values([1, 2, 3], limits, [b"a", None, b""])
    assert [(failure.row, str(failure)) for failure in encoded.failures] == [
        (1, "NO_KEY: topic kept is compacted and rejects records without a key")
    ]
    assert [failure.row for failure in encode_values([1, 2], limits).failures] == [0, 1]


def test_a_row_is_bad_once_with_the_first_reason() -> None:
    limits = msgspec.structs.replace(LIMITS, needs_key=True)
    encoded = encode_values([90_000], limits)
    assert [failure.kind for failure in encoded.failures] == [FailureKind.NO_KEY]


def test_without_limits_everything_is_encoded() -> None:
    frame = pl.DataFrame({"value": [b"x" * 9_000_000]})
    assert len(RecordEncoder("raw", VALUE).encode(frame)) == 1
