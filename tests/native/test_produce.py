"""What C hands over from columns: a client without brokers gives it back, all but timestamps.

Those are compared at a broker in `sinks/test_mirror.py`.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple
from unittest import SkipTest

import polars as pl
import pytest

from tests.depth import DEPTH
from tests.native.any_records import draw_records
from tests.support import clients
from tests.support.records import listed, records_of
from tidegate.formats.records import OutputRecords, output_records
from tidegate.kafka.producing import BY_KEY, NativeProducing, RecordNotTaken
from tidegate.native.library import Address, loaded
from tidegate.native.librdkafka import Librdkafka, Message, find_librdkafka
from tidegate.simulation.model_broker.producer import Partitioner

ROWS = 700
"""More than two batches of C."""
REPORT = ctypes.CFUNCTYPE(None, Address, ctypes.POINTER(Message), Address)


class Handed(NamedTuple):
    """A record as the client has it."""

    value: bytes | None
    key: bytes | None
    partition: int
    headers: list[tuple[str, bytes | None]]


class Receiver:
    """A producer that gives back what it was handed."""

    def __init__(self) -> None:
        library, lib = loaded(), find_librdkafka()
        if library is None or not isinstance(lib, Librdkafka):
            raise SkipTest("records are not handed over in C here")
        self.lib = lib
        self._received: list[Handed] = []
        self.producer = clients.producer({"bootstrap.servers": "127.0.0.1:1", "queue.buffering.max.messages": 10_000})
        handle = lib.handle_of(self.producer)
        self.way = NativeProducing(library, lib, handle)
        self._report = REPORT(lambda _, one, __: self._received.append(self._read(one)))
        lib.report_undelivered(handle, ctypes.cast(self._report, Address).value or 0)

    def take(self) -> list[Handed]:
        """What was handed over since the last call, in order."""
        self.producer.purge()
        while len(self.producer):
            self.producer.poll(0.01)
        found, self._received = self._received, []
        return found

    def _read(self, at: ctypes._Pointer[Message]) -> Handed:
        one = at.contents
        value = None if one.value is None else ctypes.string_at(one.value, one.value_size)
        key = None if one.key is None else ctypes.string_at(one.key, one.key_size)
        return Handed(value, key, one.partition, self._headers(one))

    def _headers(self, one: Message) -> list[tuple[str, bytes | None]]:
        of = ctypes.CFUNCTYPE(ctypes.c_int32, Address, Address)(self.lib.address["message_headers"])
        get = ctypes.CFUNCTYPE(ctypes.c_int32, Address, ctypes.c_size_t, *[Address] * 3)(
            self.lib.address["header_get_all"]
        )
        headers, found = Address(), list[tuple[str, bytes | None]]()
        if of(ctypes.addressof(one), ctypes.addressof(headers)) != 0:
            return found
        name, value, size = ctypes.c_char_p(), Address(), ctypes.c_size_t()
        parts = [ctypes.addressof(part) for part in (name, value, size)]
        while get(headers, len(found), *parts) == 0:
            data = None if value.value is None else ctypes.string_at(value.value, size.value)
            found.append(((name.value or b"").decode(), data))
        return found


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.take()
    one.way.close()
    del one.producer


def rows_of(records: OutputRecords) -> list[Handed]:
    """What is to be handed over."""
    lists = listed(records)
    none = [None] * len(records)
    parts = (lists.keys or none, lists.partitions or none, lists.headers or none)
    return [
        Handed(value, key, BY_KEY if partition is None else partition, list(headers or ()))
        for value, key, partition, headers in zip(lists.values, *parts, strict=True)
    ]


def arranged(rows: list[Handed], partitions: int) -> list[Handed]:
    """Rows with their partitions, if the topic has so many, in the order in which C hands them over."""
    if not partitions:
        return rows
    keyed = [
        one
        if one.partition != BY_KEY or one.key is None
        else one._replace(partition=Partitioner().choose(one.key, partitions))
        for one in rows
    ]
    return sorted(keyed, key=lambda one: min(one.partition, partitions))


@pytest.mark.parametrize("seed", range(6 * DEPTH))
def test_every_part_of_every_record_is_handed_over_in_the_order_of_its_partition(receiver: Receiver, seed: int) -> None:
    print(f"seed {seed}")
    rnd = random.Random(seed)
    records = draw_records(rnd, ROWS if seed % 2 else 40)
    count, partitions = len(records), rnd.choice((0, 1, 3, 7, 8, 1000))
    cuts = [0, *sorted(rnd.sample(range(1, count), 3)), count]
    for start, end in pairwise(cuts):
        assert receiver.way.produce("t", records, start, end, partitions) == end
    assert receiver.take() == arranged(rows_of(records), partitions)


def test_keys_go_to_the_partitions_of_java(receiver: Receiver) -> None:
    """Some numbers are those of Java's tests; what has no key is left to the client."""
    keys = [b"21", b"foobar", b"a-little-bit-long-string", b"", None, b"abc", bytes(range(256))]
    records = records_of([b"v"] * len(keys), keys)
    assert receiver.way.produce("t", records, 0, len(keys), 1000) == len(keys)
    found = {one.key: one.partition for one in receiver.take()}
    assert found[b"21"] == (-973932308 & 0x7FFFFFFF) % 1000
    assert found[b"foobar"] == (-790332482 & 0x7FFFFFFF) % 1000
    assert found[b"a-little-bit-long-string"] == (-985981536 & 0x7FFFFFFF) % 1000
    assert found[None] == BY_KEY
    assert found[b""] == Partitioner().choose(b"", 1000)


def test_rows_of_which_the_client_chooses_the_partition_keep_their_order_among_named_ones(receiver: Receiver) -> None:
    """The key of one may belong to the partition that another names."""
    records = records_of([b"%d" % row for row in range(9)], [b"k"] * 9, partitions=[2, None, 0] * 3)
    assert receiver.way.produce("t", records, 0, 9, 0) == 9
    assert [one.value for one in receiver.take()] == listed(records).values


def test_records_that_were_not_begun_here_are_not_continued(receiver: Receiver) -> None:
    """Their places are known only by the arrangement that was made at first."""
    records, others = records_of([b"a", b"b"], [b"k"] * 2), records_of([b"c", b"d"], [b"k"] * 2)
    assert receiver.way.produce("t", records, 0, 1, 3) == 1
    with pytest.raises(RuntimeError):
        receiver.way.produce("t", others, 1, 2, 3)
    assert receiver.way.produce("t", records, 1, 2, 7) == 2
    with pytest.raises(RuntimeError):
        receiver.way.produce("t", records, 1, 2, 3)


@pytest.mark.parametrize("seed", range(4 * DEPTH))
def test_the_size_is_that_of_keys_values_and_headers(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    records = draw_records(random.Random(seed), 40)
    rows = rows_of(records)
    size = sum(len(part or b"") for one in rows for part in (one.value, one.key))
    size += sum(len(name.encode()) + len(value or b"") for one in rows for name, value in one.headers)
    assert output_records(records.values, records.keys, headers=records.headers).size_bytes == size
    monkeypatch.setattr("tidegate.formats.records.loaded", lambda: None)
    assert output_records(records.values, records.keys, headers=records.headers).size_bytes == size


def test_what_is_no_header_is_refused(receiver: Receiver) -> None:
    kind = records_of([b"a"], headers=[[("h", b"")]]).headers
    assert kind is not None
    nameless = pl.Series([[{"key": "h", "value": b"1"}], [{"key": None, "value": b"2"}]], dtype=kind.dtype)
    with pytest.raises(RecordNotTaken) as raised:
        receiver.way.produce("t", OutputRecords(pl.Series([b"a", b"b"]), headers=nameless), 0, 2, 3)
    assert raised.value.row == 1
    assert [one.value for one in receiver.take()] == [b"a"]


PRODUCE_BATCH = ctypes.CFUNCTYPE(
    ctypes.c_int, Address, ctypes.c_int32, ctypes.c_int, ctypes.POINTER(Message), ctypes.c_int
)
FULL, TOO_LARGE = -184, 10


@pytest.mark.parametrize(
    ("errors", "taken"),
    [
        ([], ROWS),
        ([(300, FULL), (301, FULL), (302, FULL)], None),  # 303 to 511 were taken
        ([(row, FULL) for row in range(300, 512)], 300),
        ([(0, FULL)], None),
        ([(300, TOO_LARGE)], None),
    ],
)
@pytest.mark.parametrize("partitions", [0, 1])
def test_records_that_are_taken_behind_a_refused_one_fail_the_transaction(
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    partitions: int,
    errors: list[tuple[int, int]],
    taken: int | None,
) -> None:
    """librdkafka goes on behind a record that it refuses: sent again, that one would come after them."""
    refused, asked = dict(errors), 0

    def produce(_topic: int, partition: int, _flags: int, batch: ctypes._Pointer[Message], count: int) -> int:
        nonlocal asked
        assert partition == (0 if partitions else BY_KEY)
        for at in range(count):
            batch[at].err = refused.get(asked + at, 0)
        good = count - sum(asked <= row < asked + count for row in refused)
        asked += count
        return good

    call = PRODUCE_BATCH(produce)
    address = {**receiver.lib.address, "produce_batch": ctypes.cast(call, Address).value or 0}
    monkeypatch.setattr(receiver.lib, "address", address)
    records = records_of([b"%d" % row for row in range(ROWS)], [b"k"] * ROWS)
    if taken is None:
        with pytest.raises(RecordNotTaken) as raised:
            receiver.way.produce("t", records, 0, ROWS, partitions)
        assert raised.value.row == errors[0][0]
        assert ("out of order" in str(raised.value.reason)) == (errors[0][1] == FULL)
    else:
        assert receiver.way.produce("t", records, 0, ROWS, partitions) == taken
    assert asked <= min(refused, default=ROWS) + 256, "nothing more is handed over behind a refused record"
