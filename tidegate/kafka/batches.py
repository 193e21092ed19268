"""Parses the headers of record batches (message format 2) as they are stored in a partition. Pure.

Only headers and control records are read, so the codec of the data does not matter and nothing is decompressed. Format:
Kafka documentation, "Record Batch" and "Control Batches".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from tidegate.ids import ProducerId
from tidegate.kafka.facts import LoggedRange, Marker

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, crc, attributes, last offset delta, two timestamps, producer id, epoch,
base sequence, record count.
"""
_LENGTH_STARTS_BEHIND: Final = 12
_MAGIC: Final = 2
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_CONTROL_KEY: Final = struct.Struct(">hh")
_COMMIT: Final = 1


class BatchHeader(msgspec.Struct, frozen=True):
    """One record batch. Offsets refer to its first and last record, the sequence to its first."""

    base_offset: int
    last_offset: int
    producer: ProducerId
    base_sequence: int
    records: int
    transactional: bool
    commits: bool | None
    """For a control batch, True if it commits and False if it aborts. None for data, and for a batch without a record.
    """


def derive_headers(data: bytes) -> Iterator[BatchHeader]:
    """Yields the complete batches in a fetch response and skips a truncated last one. Raises ValueError for another
    format.
    """
    place = 0
    while place + _HEADER.size <= len(data):
        fields = _HEADER.unpack_from(data, place)
        base_offset, length, _, magic, _, attributes, last_delta, _, _, producer_id, epoch, sequence, records = fields
        if magic != _MAGIC:
            raise ValueError(f"batch at offset {base_offset} has message format {magic}; transactions need format 2")
        end = place + _LENGTH_STARTS_BEHIND + length
        if end > len(data):
            return
        tells = attributes & _CONTROL and records  # compaction may leave a control batch without its record
        commits = _control_kind(data, place + _HEADER.size) == _COMMIT if tells else None
        yield BatchHeader(
            base_offset=base_offset,
            last_offset=base_offset + last_delta,
            producer=ProducerId(producer_id, epoch),
            base_sequence=sequence,
            records=records,
            transactional=bool(attributes & _TRANSACTIONAL),
            commits=commits,
        )
        place = end


def derive_first_sequence(batches: Iterable[BatchHeader], producer: ProducerId) -> int | None:
    """Returns the sequence of the producer's first data batch, or None if it has none."""
    for batch in batches:
        if batch.commits is None and batch.producer == producer and batch.base_sequence >= 0:
            return batch.base_sequence
    return None


def derive_marker(batches: Iterable[BatchHeader], producer: ProducerId) -> Marker:
    """Returns how the producer's transaction ended: COMMIT or ABORT, or OPEN if there is no marker for it.

    A marker carries the epoch of the transaction (EndTxn) or a newer one (timeout, fencing). The first marker of the
    producer id with that epoch or a newer one ends the transaction.
    """
    for batch in batches:
        if batch.commits is not None and batch.producer.id == producer.id and batch.producer.epoch >= producer.epoch:
            return Marker.COMMIT if batch.commits else Marker.ABORT
    return Marker.OPEN


def derive_ranges(
    batches: Iterable[BatchHeader], start_offset: int, end_offset: int, producer: ProducerId
) -> Iterator[LoggedRange]:
    """Yields the offset ranges of the producer's transaction from `start_offset` to `end_offset`; adjacent ranges are
    merged.

    If a batch begins before `start_offset` because the log was truncated within it, only the remainder is counted.
    """
    joined: LoggedRange | None = None
    for batch in batches:
        if batch.base_offset >= end_offset:
            break
        if batch.commits is not None or not (batch.transactional and batch.records) or batch.producer != producer:
            continue
        first = max(batch.base_offset, start_offset)
        records = min(batch.records, batch.last_offset + 1 - first)
        if joined is not None and joined.next_offset == first:
            joined = LoggedRange(joined.first_offset, batch.last_offset + 1, joined.records + records)
            continue
        if joined is not None:
            yield joined
        joined = LoggedRange(first, batch.last_offset + 1, records)
    if joined is not None:
        yield joined


def _control_kind(data: bytes, place: int) -> int:
    """Returns the type of a control record. It follows length, attributes, timestamp, offset delta and the key's
    length.
    """
    place = _skip_varint(data, place) + 1
    for _ in range(3):
        place = _skip_varint(data, place)
    kind: int = _CONTROL_KEY.unpack_from(data, place)[1]
    return kind


def _skip_varint(data: bytes, place: int) -> int:
    while data[place] & 0x80:
        place += 1
    return place + 1
