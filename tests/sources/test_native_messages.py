"""Records that C reads in place are those that the client's message objects show, column by column."""

from __future__ import annotations

import ctypes
import gc
import random
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka as ck
import pytest
from kafka import KafkaProducer

from tests.conftest import SessionBroker, TopicMaker
from tests.sources.kafka_topics import produce
from tests.sources.ways import NATIVE, WAYS, Way, consumer_of
from tests.support import clients
from tests.waiting import PATIENCE_S, wait_until
from tidegate.ids import TopicPartition
from tidegate.sources.fetching import Fetcher, FetchEvent, NativeFetcher
from tidegate.sources.messages import NO_RECORDS, OutOfOrder, Records
from tidegate.sources.native_messages import NativeMessages

pytestmark = pytest.mark.slow

SEED = 20_261_126
RECORDS = 600
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
END = ck.KafkaError._PARTITION_EOF


@contextmanager
def fetching(bootstrap: str, way: str, parts: list[TopicPartition], offset: int = 0) -> Iterator[Fetcher]:
    """From an offset of each of these partitions on."""
    consumer = consumer_of(bootstrap)
    fetcher = Way(way).fetcher(consumer)
    try:
        fetcher.expect(parts)
        consumer.assign([ck.TopicPartition(part.topic, part.partition, offset) for part in parts])
        yield fetcher
    finally:
        fetcher.close()
        consumer.close()


def fetch(fetcher: Fetcher, count: int, room: int = 100) -> tuple[Records, list[FetchEvent]]:
    """So many records at least, and the events among them."""
    found: list[Records] = [NO_RECORDS]
    events: list[FetchEvent] = []

    def enough() -> bool:
        while fetcher.wait(0.0):
            records, more = fetcher.take(room)
            assert len(records) + len(more) <= room
            found[0] = found[0].joined(records)
            events.extend(more)
        return len(found[0]) >= count

    wait_until(enough, f"{count} records")
    return found[0], events


def any_headers(dice: random.Random) -> list[tuple[str, str | bytes | None]]:
    return [(dice.choice(["", "a", "ä", "n" * 40]), any_bytes(dice)) for _ in range(dice.choice([0, 0, 1, 3]))]


def any_bytes(dice: random.Random) -> bytes | None:
    return dice.choice([None, b"", b"\x00", b"k", dice.randbytes(11), dice.randbytes(12), dice.randbytes(300)])


def fill(bootstrap: str, topics: list[str]) -> None:
    """Records as they may be, some with a header whose name is not UTF-8 or has a NUL, which only the other client
    writes.
    """
    dice = random.Random(SEED)
    now_ms = round(time.time() * 1000)  # older ones are deleted, newer ones refused
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 0}
    producers = [clients.producer({**settings, "compression.type": codec}) for codec in CODECS]
    with_strange_names = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(RECORDS):
        topic, partition = dice.choice(topics), dice.randrange(3)
        headers = any_headers(dice)
        if number % 97 in (5, 7):
            name = _NotUtf8("x") if number % 97 == 5 else "cut\0off"
            strange = [*((name, value or b"") for name, value in headers), (name, b"1")]
            with_strange_names.send(topic, b"v", b"k", headers=strange, partition=partition)
            continue
        if number % 97 == 6:
            without_time = dice.choice((-1, -(1 << 40)))
            with_strange_names.send(topic, b"v", b"k", partition=partition, timestamp_ms=without_time)
            continue
        at_ms = now_ms - dice.randrange(100_000)
        key, value = any_bytes(dice), any_bytes(dice)
        dice.choice(producers).produce(topic, value, key, partition, headers=headers, timestamp=at_ms)
    with_strange_names.close()
    assert not any(producer.flush(60) for producer in producers)


class _NotUtf8(str):
    """A name that is written as other bytes than its own."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return b"\xff\xfe"


def places(records: Records) -> list[tuple[str, int, int]]:
    return list(zip(records.topics, records.partitions, records.offsets, strict=True))


def rows_of(records: Records) -> dict[tuple[str, int, int], tuple[object, ...]]:
    """Everything that is known of each record, by its place."""
    columns = (
        records.values,
        records.keys,
        [None if one is None else list(one) for one in records.headers],
        records.timestamps_ms,
        records.sizes,
        records.key_column.to_list(),
        records.timestamp_column.to_list(),
        records.partition_column.to_list(),
        records.offset_column.to_list(),
    )
    return dict(zip(places(records), zip(*columns, strict=True), strict=True))


def test_both_ways_give_the_same_records(broker: SessionBroker, topics: TopicMaker) -> None:
    names = [topics("first", 3), topics("second", 3)]
    fill(broker.bootstrap, names)
    parts = [TopicPartition(name, number) for name in names for number in range(3)]
    found: list[dict[tuple[str, int, int], tuple[object, ...]]] = []
    for way in WAYS:
        with fetching(broker.bootstrap, way, parts) as fetcher:
            records, _ = fetch(fetcher, RECORDS)
            assert len(records) == RECORDS
            assert records.size_bytes == sum(records.sizes)
            check_record_bytes(records, way)
            rows = rows_of(records)
            assert sum(row[2] is None for row in rows.values()) == len(range(5, RECORDS, 97)), "names are not UTF-8"
            assert sum(row[3] is None for row in rows.values()) == len(range(6, RECORDS, 97)), "no negative time is one"
            cut = [row for row in rows.values() if ("cut", b"1") in (row[2] or ())]  # type: ignore[operator]  # a list
            assert len(cut) == len(range(7, RECORDS, 97)), "the client ends names at a NUL"
            check_parts(records)
            check_flat(records, way)
            if isinstance(records, NativeMessages):
                check_headers_in_place(records)
            found.append(rows)
    assert found[0] == found[1]


def check_parts(records: Records) -> None:
    """Parts of a batch are as their rows in it."""
    whole, order = rows_of(records), places(records)
    assert rows_of(records.part(10, 250)) == {place: whole[place] for place in order[10:250]}
    chosen = list(range(0, len(records), 7))
    assert rows_of(records.choose(chosen)) == {order[row]: whole[order[row]] for row in chosen}
    split = records.part(0, 100).joined(records.part(100, len(records)))
    assert (rows_of(split), split.size_bytes) == (whole, records.size_bytes)
    assert len(records.part(3, 3)) == 0
    check_origins(records, order)
    for row in (0, 5, len(records) - 1):
        raw = records.raw(row)
        headers = None if raw.headers is None else list(raw.headers)
        assert (raw.value, raw.key, headers, raw.timestamp_ms) == whole[order[row]][:4]


def check_record_bytes(records: Records, way: str) -> None:
    """Of keys, values and headers; the client's message objects do not show headers with a name that is not UTF-8."""
    readable = [row for row, headers in enumerate(records.headers) if headers is not None]
    chosen = records.choose(readable)
    names = [name.encode() for headers in chosen.headers for name, _ in headers or ()]
    values = [value or b"" for headers in chosen.headers for _, value in headers or ()]
    parts = [*names, *values, *(part or b"" for part in (*chosen.keys, *chosen.values))]
    assert chosen.record_bytes == sum(map(len, parts))
    others = records.choose([row for row in range(len(records)) if row not in set(readable)])
    shown = len(others) * len(b"kv")
    assert (others.record_bytes == shown) == (way != NATIVE)
    assert records.record_bytes == chosen.record_bytes + others.record_bytes > shown


def check_origins(records: Records, order: list[tuple[str, int, int]]) -> None:
    """Partitions are numbered as they first occur, however they alternate, and no record precedes an older one."""
    dealt = sorted(range(len(order)), key=lambda row: (order[row][2], row))
    for rows in (range(len(order)), dealt):
        partitions, numbers, firsts, lasts = records.choose(rows).origins
        parts = [TopicPartition(*order[row][:2]) for row in rows]
        assert [partitions[number] for number in numbers] == parts
        assert partitions == tuple(dict.fromkeys(parts))
        assert list(firsts) == [parts.index(part) for part in partitions]
        assert list(lasts) == [len(parts) - 1 - parts[::-1].index(part) for part in partitions]
    first, second = [row for row in range(len(order)) if order[row][:2] == order[0][:2]][:2]
    other = next(row for row in range(len(order)) if order[row][:2] != order[0][:2])
    for chosen in ([first, first], [second, other, first], [other, second, second, first]):
        with pytest.raises(OutOfOrder) as caught:
            _ = records.choose(chosen).origins
        assert caught.value.row == (1 if other not in chosen else 2)
    assert tuple(map(len, records.part(0, 0).origins)) == (0, 0, 0, 0)


def check_flat(records: Records, way: str) -> None:
    """Headers as columns, where all names are UTF-8."""
    assert records.flat_headers is None
    readable = [row for row, headers in enumerate(records.headers) if headers is not None]
    flat = records.choose(readable).flat_headers
    assert (flat is not None) == (way == NATIVE)
    if flat is not None:
        expected = [list(headers) for headers in records.choose(readable).headers if headers is not None]
        assert list(zip(flat.names, flat.values, strict=True)) == [pair for headers in expected for pair in headers]
        assert flat.counts.to_list() == [len(headers) for headers in expected]


def check_headers_in_place(records: NativeMessages) -> None:
    """The client is asked for headers of no record but those with an empty part, or a name with a NUL, however they
    were compressed.
    """
    asked = 0

    def find(message: int, found: int) -> int:
        nonlocal asked
        asked += 1
        return ck.KafkaError._NOENT

    get = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(find)
    empty = sum(not value or key == b"" for key, value in zip(records.keys, records.values, strict=True))
    cut = sum(("cut", b"1") in (headers or ()) for headers in records.headers)  # one in each record
    records._address = {**records._address, "message_headers": ctypes.cast(get, ctypes.c_void_p).value or 0}
    assert sum(map(len, filter(None, records.headers))) > 0
    assert 0 < asked == empty + cut


@pytest.mark.parametrize("way", WAYS)
def test_ends_of_partitions_and_errors_come_next_to_the_records(
    broker: SessionBroker, topics: TopicMaker, way: str
) -> None:
    topic = topics("orders", 2)
    produce(broker.bootstrap, topic, [b"a", b"b"])
    parts = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    with fetching(broker.bootstrap, way, parts) as fetcher:
        events: list[FetchEvent] = []

        def both_ended() -> bool:
            if fetcher.wait(0.0):
                events.extend(fetcher.take(10).events)
            return len(events) >= 2

        wait_until(both_ended, "the ends of both partitions")
        ends = {(part, offset) for part, offset, error in events if error.code() == END}
        assert {(parts[0], 2), (parts[1], 0)} <= ends
    with fetching(broker.bootstrap, way, parts[:1], offset=77) as fetcher:
        _, events = fetch_event(fetcher)
        assert (events[0].partition, events[0].error.code()) == (parts[0], ck.KafkaError._AUTO_OFFSET_RESET) or (
            events[0].error.code() == END
        )


def fetch_event(fetcher: Fetcher) -> tuple[Records, list[FetchEvent]]:
    events: list[FetchEvent] = []

    def any_event() -> bool:
        if fetcher.wait(0.0):
            events.extend(fetcher.take(10).events)
        return bool(events)

    wait_until(any_event, "an event")
    return NO_RECORDS, events


def test_messages_are_given_back_with_the_last_batch_that_has_them(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics()
    produce(broker.bootstrap, topic, [b"%d" % number for number in range(50)])
    with fetching(broker.bootstrap, NATIVE, [TopicPartition(topic, 0)]) as fetcher:
        assert isinstance(fetcher, NativeFetcher)
        records, _ = fetch(fetcher, 50, room=50)
        (loan,) = map(weakref.ref, fetcher._loans._open)
        part = records.part(48, 50)
        del records
        gc.collect()
        assert part.values == [b"48", b"49"], "part of it is still in use"
        del part
        gc.collect()
        assert loan() is None


def test_a_wait_ends_when_the_fetcher_is_woken(broker: SessionBroker, topics: TopicMaker) -> None:
    with fetching(broker.bootstrap, NATIVE, [TopicPartition(topics(), 0)]) as fetcher:
        fetch_event(fetcher)  # the end of the partition, after which nothing arrives
        fetcher.wake()
        begun = time.monotonic()
        assert not fetcher.wait(PATIENCE_S)
        assert time.monotonic() - begun < PATIENCE_S / 2


def test_nothing_is_read_after_the_end_of_the_client(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics()
    produce(broker.bootstrap, topic, [b"a"])
    with fetching(broker.bootstrap, NATIVE, [TopicPartition(topic, 0)]) as fetcher:
        records, _ = fetch(fetcher, 1)
    with pytest.raises(RuntimeError, match="after the client that read them had been closed"):
        _ = records.values
    assert list(records.offsets) == [0], "this is no memory of the client's"
