"""Detects records that a topic would reject when they are encoded, because Kafka rejects whole batches."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import polars as pl

from tidegate.clock import describe_stamp
from tidegate.formats.failures import FailureKind, RecordFailure

BATCH_OVERHEAD_BYTES: Final = 61
"""Size of an empty batch in format 2."""
RECORD_OVERHEAD_BYTES_MAX: Final = BATCH_OVERHEAD_BYTES + 21
"""Size of a batch with an empty record without headers: five numbers of one to five bytes each, and one byte twice."""
EDGE_MS: Final = 60_000
"""Within this distance of a timestamp limit, a broker may decide differently, because its clock differs and the record
arrives later.
"""
COMPRESSED_MARGIN: Final = 1.1
"""Factor by which the client's compression may be worse than the one tried here, which is of the same kind."""

EncodedHeaders = Sequence[Mapping[str, Any]]
"""One value of the column `headers` of `contract.Encoded`."""


class RecordLimits(msgspec.Struct, frozen=True):
    """Limits of a single record; None means unlimited or unknown."""

    topic: str
    record_bytes: int
    """Limit for key, value and headers together, set by the client."""
    batch_bytes: int | None = None
    """Limit for a batch as it arrives at the broker, even with a single record."""
    codec: str = ""
    """Codec of batches, which are compressed before they are compared with the limit: gzip, snappy, lz4, zstd, or
    empty.
    """
    now_ms: int = 0
    earliest_ms: int | None = None
    latest_ms: int | None = None
    needs_key: bool = False
    partitions: int | None = None


def fits(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]], limits: RecordLimits
) -> bool:
    """Returns whether one record is within the size limits."""
    listed = [{"key": name, "value": part} for name, part in headers]
    data = (key or b"") + (value or b"") + header_bytes(listed)
    return len(data) <= limits.record_bytes and not _exceeds(batch_size(key, value, listed), data, limits)


def find_refused(
    encoded: pl.DataFrame, limits: RecordLimits, timestamp: str | None, partition: str = "partition"
) -> Iterator[RecordFailure]:
    """Yields rows of `value`, and of `key`, `timestamp` and so on if present, that would be rejected.

    A row may be yielded more than once.

    :param timestamp: the column from which the timestamps come.
    :param partition: the column from which the partitions come.
    """
    if timestamp is not None:
        yield from _out_of_range(encoded["timestamp"], limits, timestamp)
    if limits.needs_key:
        keyless = encoded["key"].is_null() if "key" in encoded.columns else pl.repeat(True, encoded.height, eager=True)
        message = f"topic {limits.topic} is compacted and rejects records without a key"
        yield from (RecordFailure(row, FailureKind.NO_KEY, message) for row in keyless.arg_true())
    if limits.partitions is not None and "partition" in encoded.columns:
        yield from _no_partition(encoded["partition"], limits.partitions, limits.topic, partition)
    yield from _too_large(encoded, limits)


def _no_partition(partitions: pl.Series, count: int, topic: str, column: str) -> Iterator[RecordFailure]:
    for row in (partitions >= count).arg_true().to_list():
        message = f"`{column}` is {partitions[row]}, but topic {topic} has the partitions 0 to {count - 1}"
        yield RecordFailure(row, FailureKind.NO_PARTITION, message)


def is_at_edge(timestamps_ms: pl.Series, limits: RecordLimits) -> bool:
    """Returns whether a record is so close to a timestamp limit that the broker may decide differently."""
    for limit_ms in (limits.earliest_ms, limits.latest_ms):
        if limit_ms is not None and timestamps_ms.is_between(limit_ms - EDGE_MS, limit_ms + EDGE_MS).any():
            return True
    return False


def _out_of_range(timestamps_ms: pl.Series, limits: RecordLimits, column: str) -> Iterator[RecordFailure]:
    for limit_ms, setting, later in (
        (limits.earliest_ms, "before", False),
        (limits.latest_ms, "after", True),
    ):
        if limit_ms is None:
            continue
        rows = ((timestamps_ms > limit_ms) if later else (timestamps_ms < limit_ms)).arg_true()
        for row, at_ms in zip(rows, timestamps_ms.gather(rows), strict=True):
            distance_s = abs(at_ms - limits.now_ms) / 1000
            yield RecordFailure(
                row,
                FailureKind.TIMESTAMP_OUT_OF_RANGE,
                f"`{column}` is {describe_stamp(at_ms)}, {distance_s:.0f} s "
                f"{'after' if later else 'before'} now; topic {limits.topic} takes at most "
                f"{abs(limit_ms - limits.now_ms) / 1000:.0f} s ({describe_limit(setting)})",
            )


def describe_limit(setting: str) -> str:
    """Names the topic setting that limits timestamps; `setting` is `before` or `after`, relative to now."""
    return f"message.timestamp.{setting}.max.ms, before Kafka 4.0 message.timestamp.difference.max.ms"


def _too_large(encoded: pl.DataFrame, limits: RecordLimits) -> Iterator[RecordFailure]:
    least = limits.record_bytes
    if limits.batch_bytes is not None:
        least = min(least, limits.batch_bytes - RECORD_OVERHEAD_BYTES_MAX)
    if encoded.estimated_size() <= least:  # of all records together, so no single one is larger
        return
    parts = [pl.col(name).bin.size().cast(pl.Int64) for name in ("key", "value") if name in encoded.columns]
    sizes = encoded.select(pl.sum_horizontal(parts)).to_series()
    headers_of = encoded["headers"].to_list() if "headers" in encoded.columns else None
    if headers_of is not None:
        sizes += pl.Series([len(header_bytes(headers)) for headers in headers_of], dtype=pl.Int64)
    for row in (sizes > least).arg_true():
        key, value = (encoded[name][row] if name in encoded.columns else None for name in ("key", "value"))
        headers = None if headers_of is None else headers_of[row]
        batch_bytes = batch_size(key, value, headers)
        data = (key or b"") + (value or b"") + header_bytes(headers)
        if sizes[row] > limits.record_bytes or _exceeds(batch_bytes, data, limits):
            topic = "not visible to this user" if limits.batch_bytes is None else limits.batch_bytes
            yield RecordFailure(
                row,
                FailureKind.RECORD_TOO_LARGE,
                f"{_named(headers)} have {sizes[row]} bytes, {batch_bytes} in Kafka's format; "
                f"max.message.bytes of topic {limits.topic} is {topic}, and message.max.bytes of the producer (`kafka` "
                f"of the sink) leaves {limits.record_bytes} for them",
            )


def _named(headers: EncodedHeaders | None) -> str:
    return "key and value" if headers is None else "key, value and headers"


def _exceeds(batch_bytes: int, data: bytes, limits: RecordLimits) -> bool:
    if limits.batch_bytes is None or batch_bytes <= limits.batch_bytes:
        return False
    if not limits.codec:
        return True
    return compressed_size(limits.codec, data) * COMPRESSED_MARGIN > limits.batch_bytes


def batch_size(key: bytes | None, value: bytes | None, headers: EncodedHeaders | None = None) -> int:
    """Returns the size of a batch (format 2) with one record, before compression."""
    parts = sum(_varint_bytes(-1 if part is None else len(part)) + len(part or b"") for part in (key, value))
    record = 3 + parts + _varint_bytes(len(headers or ())) + len(header_bytes(headers))
    return BATCH_OVERHEAD_BYTES + _varint_bytes(record) + record


def header_bytes(headers: EncodedHeaders | None) -> bytes:
    """Returns as many bytes as headers take in a record; only the lengths in between differ from the record's."""
    found = bytearray()
    for header in headers or ():
        for part in (header["key"].encode(), header["value"]):
            found += bytes(_varint_bytes(-1 if part is None else len(part))) + (part or b"")
    return bytes(found)


def _varint_bytes(number: int) -> int:
    zigzag = number * 2 if number >= 0 else -number * 2 - 1
    return max(1, (zigzag.bit_length() + 6) // 7)


def compressed_size(codec: str, data: bytes) -> int:
    """Returns the approximate size after compression by the client.

    Polars provides all of Kafka's codecs; its frame around the data is small.
    """
    buffer = io.BytesIO()
    pl.DataFrame({"data": [data]}).write_parquet(buffer, compression=codec, statistics=False)  # type: ignore[arg-type]  # one of four names
    return buffer.tell()
