"""Batch headers against an independent encoder (kafka-python's)."""

from __future__ import annotations

import struct

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from tidegate.sinks.batches import derive_headers

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
    assert (first.producer_id, first.producer_epoch, first.transactional, first.commits) == (77, 5, True, None)


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
