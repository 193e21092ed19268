"""Batch headers against an independent encoder (kafka-python's)."""

from __future__ import annotations

import struct

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from tidegate.ids import ProducerId
from tidegate.kafka.batches import (
    BatchHeader,
    _skip_varint,
    derive_first_sequence,
    derive_headers,
    derive_marker,
    derive_ranges,
)
from tidegate.kafka.facts import LoggedRange, Marker

COMMIT, ABORT = struct.pack(">hh", 0, 1), struct.pack(">hh", 0, 0)


def batch(base: int, count: int, sequence: int, control: bytes | None = None, codec: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=True, producer_id=77, producer_epoch=5,
        base_sequence=sequence, batch_size=1 << 20,
    )  # fmt: skip
    for index in range(count):
        builder.append(index, 1_000, control if control is not None else b"k", b"v" * 50, [])
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, base)
    if control is not None:
        struct.pack_into(">h", data, 21, struct.unpack_from(">h", data, 21)[0] | 0x20)
    return bytes(data)


def test_headers_tell_owner_sequence_and_offsets() -> None:
    first, second = derive_headers(batch(100, 3, 0) + batch(103, 2, 3))
    assert (first.base_offset, first.last_offset, first.records, first.base_sequence) == (100, 102, 3, 0)
    assert (second.base_offset, second.last_offset, second.base_sequence) == (103, 104, 3)
    assert (first.producer, first.transactional, first.commits) == (ProducerId(77, 5), True, None)


@pytest.mark.parametrize(("key", "commits"), [(COMMIT, True), (ABORT, False)])
def test_control_batches_tell_how_the_transaction_ended(key: bytes, commits: bool) -> None:
    (header,) = derive_headers(batch(9, 1, -1, control=key))
    assert header.commits is commits


def test_compressed_batches_are_read_without_decompression() -> None:
    (header,) = derive_headers(batch(0, 20, 0, codec=1))
    assert header.records == 20


def test_a_batch_that_is_cut_off_is_left_out() -> None:
    whole = batch(0, 1, 0)
    for length in range(len(whole), 2 * len(whole)):
        assert len(list(derive_headers((whole + whole)[:length]))) == 1


def test_an_older_format_is_refused() -> None:
    data = bytearray(batch(0, 1, 0))
    data[16] = 1
    with pytest.raises(ValueError, match="format 1"):
        list(derive_headers(bytes(data)))


OURS = ProducerId(77, 5)


def header(
    base: int, records: int = 1, owner: ProducerId = OURS, commits: bool | None = None, ours: bool = True
) -> BatchHeader:
    return BatchHeader(base, base + records - 1, owner, 10 * base, records, ours, commits)


def test_control_batches_behind_others_are_read() -> None:
    first, second = derive_headers(batch(5, 2, 0) + batch(9, 1, -1, control=COMMIT))
    assert (first.commits, second.commits) == (None, True)


def emptied(base: int) -> bytes:
    """A control batch as compaction leaves it where nothing else says how far its producer was: the header alone."""
    data = bytearray(batch(base, 1, -1, control=ABORT)[:61])
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, 57, 0)
    return bytes(data)


def test_a_control_batch_without_its_record_says_nothing_and_is_passed_over() -> None:
    (alone,) = derive_headers(emptied(9))
    assert (alone.last_offset, alone.records, alone.commits) == (9, 0, None)
    *before, marker = derive_headers(batch(5, 2, 0) + emptied(9) + batch(10, 1, -1, control=COMMIT))
    assert marker.commits is True
    assert derive_marker([*before, marker], OURS) is Marker.COMMIT
    assert derive_first_sequence([alone, *before], OURS) == 0
    assert derive_first_sequence([alone], OURS) is None


def test_numbers_of_several_bytes_are_skipped() -> None:
    data = bytes([0x01, 0x81, 0x80, 0x01, 0x05])
    assert [_skip_varint(data, place) for place in (0, 1, 2, 4)] == [1, 4, 4, 5]


@pytest.mark.parametrize(
    ("marker", "found"),
    [
        (header(5, commits=True), Marker.COMMIT),
        (header(5, commits=False), Marker.ABORT),
        (header(5, owner=ProducerId(77, 6), commits=False), Marker.ABORT),  # a time-out or a fence has raised the epoch
        (header(5, owner=ProducerId(77, 4), commits=True), Marker.OPEN),  # of the transaction before
        (header(5, owner=ProducerId(78, 5), commits=True), Marker.OPEN),
        (header(5), Marker.OPEN),  # data
    ],
)
def test_the_first_marker_of_the_epoch_or_a_newer_one_ends_a_transaction(marker: BatchHeader, found: Marker) -> None:
    assert derive_marker([header(3, owner=ProducerId(1, 1), commits=True), header(4), marker], OURS) is found
    if found is not Marker.OPEN:
        assert derive_marker([marker, header(6, commits=not marker.commits)], OURS) is found


def test_the_first_sequence_is_of_data_of_this_epoch() -> None:
    batches = [
        header(1, owner=ProducerId(78, 5)),
        header(2, owner=ProducerId(77, 4)),
        header(3, commits=True),
        header(4),
        header(5),
    ]
    assert derive_first_sequence(batches, OURS) == 40
    assert derive_first_sequence(batches[:3], OURS) is None


def test_ranges_are_of_the_transactions_data_in_front_of_the_end_and_neighbours_are_joined() -> None:
    batches = [
        header(1, owner=ProducerId(78, 5)), header(2, 3), header(5, 2), header(7, owner=ProducerId(77, 4)),
        header(8, commits=True), header(9, ours=False), header(10, 4), header(14), header(20, 2),
    ]  # fmt: skip
    assert list(derive_ranges(batches, 0, 20, OURS)) == [LoggedRange(2, 7, 5), LoggedRange(10, 15, 5)]
    assert list(derive_ranges(batches, 0, 2, OURS)) == []
    assert list(derive_ranges(batches, 0, 21, OURS))[-1] == LoggedRange(20, 22, 2)
    cut = [one for one in batches if one.last_offset >= 4]
    assert list(derive_ranges(cut, 4, 20, OURS)) == [LoggedRange(4, 7, 3), LoggedRange(10, 15, 5)]


def test_batches_of_plain_producers_are_not_transactional() -> None:
    data = bytearray(batch(5, 2, 0))
    data[22] &= 0xFF - 0x10
    (header,) = derive_headers(bytes(data))
    assert not header.transactional
