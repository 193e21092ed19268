"""The Kafka source against a real broker."""

from __future__ import annotations

import confluent_kafka as ck
import msgspec
import polars as pl
import pytest
from kafka import KafkaProducer

from tests.conftest import SessionBroker, TopicMaker
from tests.sources.kafka_topics import NEW, Reading, orders, produce, produce_transaction, source_operator
from tests.sources.ways import WAYS, Way
from tests.support import clients
from tests.waiting import wait_until
from tidegate.coordinator.types import SourcePositions
from tidegate.datatypes import BIGINT, BINARY, INT, STRING, TIMESTAMP
from tidegate.formats.contract import Decoded, Messages
from tidegate.formats.failures import FailureKind
from tidegate.formats.kinds.raw.rows import RawDecoder
from tidegate.ids import OperatorName, TopicPartition
from tidegate.kafka.channel import connect
from tidegate.kafka.errors import SourceFailed, SourceUnavailable
from tidegate.operators.builtin.kafka_source import PARTS, MetadataColumn
from tidegate.sources.dead_letter_topic import Marks, dead_letter_of
from tidegate.sources.reader import ConsumerThread
from tidegate.sources.tools import SourceTools

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, params=WAYS)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of this holds in both ways in which records come."""
    monkeypatch.setattr(SourceTools, "fetcher", Way(request.param).fetcher)


def test_bounded_read_returns_all_records_of_all_partitions_in_order(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics("orders", 3)
    for partition in range(3):
        produce(broker.bootstrap, topic, orders(range(partition * 1000, partition * 1000 + 1000)), partition)
    with Reading(source_operator(broker.bootstrap, topic), 3) as reading:
        frame = reading.read()
    assert frame.height == 3000
    for partition in range(3):
        rows = frame.filter(frame["__tidegate_partition"] == partition)
        assert rows["id"].to_list() == list(range(partition * 1000, partition * 1000 + 1000))
        assert rows["__tidegate_offset"].to_list() == list(range(1000))
    assert dict(reading.source.positions().next_offsets) == {TopicPartition(topic, p): 1000 for p in range(3)}


def test_F04_reading_resumes_at_restored_positions(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics()
    produce(broker.bootstrap, topic, orders(range(100)))
    restored = SourcePositions(OperatorName("orders"), ((TopicPartition(topic, 0), 40),))
    with Reading(source_operator(broker.bootstrap, topic, until="never"), restored=restored) as reading:
        frame = reading.read(60)
    assert frame["id"].to_list() == list(range(40, 100))


def test_F08_positions_are_those_behind_the_polled_records(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics()
    produce(broker.bootstrap, topic, orders(range(5)))
    with Reading(source_operator(broker.bootstrap, topic, until="never")) as reading:
        reading.source.wait_ready(60)
        assert dict(reading.source.positions().next_offsets) == {TopicPartition(topic, 0): 0}
        reading.read(5)
        assert dict(reading.source.positions().next_offsets) == {TopicPartition(topic, 0): 5}


def test_restart_of_a_bounded_read_keeps_its_ends(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics()
    produce(broker.bootstrap, topic, orders(range(10)))
    operator = source_operator(broker.bootstrap, topic)
    with Reading(operator) as reading:
        reading.source.wait_ready(60)
        first = reading.source.positions()
    produce(broker.bootstrap, topic, orders(range(10, 20)))
    with Reading(operator, restored=first) as reading:
        assert reading.read()["id"].to_list() == list(range(10))
        assert dict(reading.source.positions().next_offsets) == {TopicPartition(topic, 0): 10}


def test_empty_partitions_finish_at_once(broker: SessionBroker, topics: TopicMaker) -> None:
    with Reading(source_operator(broker.bootstrap, topics("empty", 2)), 2) as reading:
        assert reading.read().height == 0


def test_a_subtask_without_partitions_has_finished(broker: SessionBroker, topics: TopicMaker) -> None:
    with Reading(source_operator(broker.bootstrap, topics()), 0) as reading:
        assert reading.source.ready
        assert reading.source.finished
        assert reading.source.positions().next_offsets == ()


def test_partition_with_only_aborted_records_finishes(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics()
    produce_transaction(broker.bootstrap, topic, orders(range(7)), commit=False)
    with Reading(source_operator(broker.bootstrap, topic)) as reading:
        assert reading.read().height == 0
        assert dict(reading.source.positions().next_offsets) == {TopicPartition(topic, 0): 8}  # 7 records and a marker


def test_positions_move_past_transaction_markers(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics()
    produce_transaction(broker.bootstrap, topic, orders(range(3)))
    produce_transaction(broker.bootstrap, topic, orders(range(3, 5)), commit=False)
    produce_transaction(broker.bootstrap, topic, orders(range(5, 6)))
    with Reading(source_operator(broker.bootstrap, topic)) as reading:
        assert reading.read()["id"].to_list() == [0, 1, 2, 5]
        assert dict(reading.source.positions().next_offsets) == {TopicPartition(topic, 0): 9}


def test_records_behind_the_end_are_not_emitted(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics()
    produce(broker.bootstrap, topic, orders(range(20)))
    restored = SourcePositions(
        OperatorName("orders"), ((TopicPartition(topic, 0), 5),), ((TopicPartition(topic, 0), 12),)
    )
    with Reading(source_operator(broker.bootstrap, topic), restored=restored) as reading:
        assert reading.read()["id"].to_list() == list(range(5, 12))
        assert dict(reading.source.positions().next_offsets) == {TopicPartition(topic, 0): 12}


def test_start_latest_reads_only_what_comes_later(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics()
    produce(broker.bootstrap, topic, orders(range(3)))
    with Reading(source_operator(broker.bootstrap, topic, start="latest", until="never")) as reading:
        reading.source.wait_ready(60)
        produce(broker.bootstrap, topic, orders(range(3, 6)))
        assert reading.read(3)["id"].to_list() == [3, 4, 5]


def test_start_map_names_offsets_and_the_others_begin_at_the_beginning(
    broker: SessionBroker, topics: TopicMaker
) -> None:
    topic = topics("map", 2)
    for partition in range(2):
        produce(broker.bootstrap, topic, orders(range(partition * 10, partition * 10 + 10)), partition)
    with Reading(source_operator(broker.bootstrap, topic, start={0: 7}), 2) as reading:
        assert sorted(reading.read()["id"].to_list()) == [7, 8, 9, *range(10, 20)]


def test_start_and_until_take_timestamps(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics()
    for second in range(10):
        produce(broker.bootstrap, topic, orders([second]), timestamp=1_700_000_000_000 + second * 1000)
    operator = source_operator(broker.bootstrap, topic, start="2023-11-14T22:13:23Z", until="2023-11-14T22:13:27")
    with Reading(operator) as reading:
        assert reading.read()["id"].to_list() == [3, 4, 5, 6]


def test_two_topics_keep_their_positions_apart(broker: SessionBroker, topics: TopicMaker) -> None:
    first, second = topics("a"), topics("b")
    produce(broker.bootstrap, first, orders(range(3)))
    produce(broker.bootstrap, second, orders(range(10, 15)))
    with Reading(source_operator(broker.bootstrap, first, topics=(first, second))) as reading:
        assert sorted(reading.read()["id"].to_list()) == [0, 1, 2, 10, 11, 12, 13, 14]
    assert dict(reading.source.positions().next_offsets) == {TopicPartition(first, 0): 3, TopicPartition(second, 0): 5}


def test_bad_records_come_with_partition_offset_and_reason(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics()
    produce(broker.bootstrap, topic, [*orders([0]), b"", b"{", None, *orders([4]), b'{"id":"x"}'])
    with Reading(source_operator(broker.bootstrap, topic)) as reading:
        frame = reading.read()
    failures = [failure for batch in reading.batches for failure in batch.failures]
    assert frame["__tidegate_offset"].to_list() == [0, 4]
    assert [(f.partition, f.offset) for f in failures] == [(TopicPartition(topic, 0), o) for o in (1, 2, 3, 5)]
    assert "empty" in failures[0].failure.message
    assert "tombstone" in failures[2].failure.message
    assert "$.id" in failures[3].failure.message
    assert sum(batch.records for batch in reading.batches) == 6


def test_X19_a_wrong_type_in_a_declared_column_that_nobody_reads_is_bad(
    broker: SessionBroker, topics: TopicMaker
) -> None:
    topic = topics()
    produce(broker.bootstrap, topic, [*orders([0]), b'{"id": 1, "name": 7}', b'{"id": 2, "name": null}', *orders([3])])
    with Reading(source_operator(broker.bootstrap, topic, output=(("id", BIGINT),))) as reading:
        frame = reading.read()
    assert frame.select("id", "__tidegate_offset").rows() == [(0, 0), (2, 2), (3, 3)]
    failures = [failure for batch in reading.batches for failure in batch.failures]
    assert [(one.offset, one.failure.kind) for one in failures] == [(1, FailureKind.WRONG_TYPE)]


def test_X13_a_record_that_makes_the_decoder_raise_is_bad_alone(
    broker: SessionBroker, topics: TopicMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fall_over(self: RawDecoder, messages: Messages) -> Decoded:
        if b"poison" in messages.values:
            raise ZeroDivisionError("poison")
        return Decoded(pl.DataFrame({"value": messages.values}, schema={"value": pl.Binary()}), [])

    monkeypatch.setattr(RawDecoder, "decode", fall_over)
    topic = topics()
    produce(broker.bootstrap, topic, [b"a", b"poison", b"b"])
    raw = source_operator(broker.bootstrap, topic, format="raw", output=(("value", BINARY),))
    with Reading(raw) as reading:
        frame = reading.read()
    assert frame.select("value", "__tidegate_offset").rows() == [(b"a", 0), (b"b", 2)]
    [failure] = [failure for batch in reading.batches for failure in batch.failures]
    assert (failure.offset, str(failure.failure)) == (1, "INTERNAL_ERROR: ZeroDivisionError: poison")


def test_raw_source_has_the_fixed_schema(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics()
    produce(broker.bootstrap, topic, [b"\xff", None], key=b"k", timestamp=1_700_000_000_123)
    columns = (
        ("key", BINARY),
        ("value", BINARY),
        ("timestamp", TIMESTAMP),
        ("topic", STRING),
        ("partition", INT),
        ("offset", BIGINT),
    )
    operator = source_operator(broker.bootstrap, topic, format="raw", schema=columns, output=columns)
    with Reading(operator) as reading:
        frame = reading.read()
    assert frame["value"].to_list() == [b"\xff", None]
    assert frame["key"].to_list() == [b"k", b"k"]
    assert frame["topic"].to_list() == [topic, topic]
    assert frame["offset"].to_list() == [0, 1]
    assert frame["timestamp"].dt.epoch("ms").to_list() == [1_700_000_000_123] * 2


def test_a_raw_record_whose_timestamp_no_calendar_has_fails_alone(broker: SessionBroker, topics: TopicMaker) -> None:
    """Brokers before 4.0 take any timestamp: producers that mean microseconds or nanoseconds are not noticed there."""
    topic = topics("raw", 1, {"message.timestamp.after.max.ms": str(2**63 - 1)})
    seconds = 1_700_000_000
    for factor in (10**3, 10**6, 10**9, 10**3):
        produce(broker.bootstrap, topic, [b"v"], timestamp=seconds * factor)
    columns = (("value", BINARY), ("timestamp", TIMESTAMP))
    with Reading(source_operator(broker.bootstrap, topic, format="raw", schema=columns, output=columns)) as reading:
        frame = reading.read()
    assert frame["timestamp"].dt.epoch("s").to_list() == [seconds] * 2
    failures = [failure for batch in reading.batches for failure in batch.failures]
    assert [failure.offset for failure in failures] == [1, 2]
    assert "OUT_OF_RANGE: the record's timestamp is 1700000000000000000 ms" in str(failures[1].failure)


def test_values_of_10_mb_are_read_within_bounded_memory(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics("big", 1, {"max.message.bytes": "20000000"})
    value = b'{"id":1,"name":"' + b"x" * 10_000_000 + b'"}'
    produce(broker.bootstrap, topic, [value] * 6)
    with Reading(source_operator(broker.bootstrap, topic)) as reading:
        frame = reading.read()
    assert frame["name"].str.len_bytes().to_list() == [10_000_000] * 6
    assert max(batch.record_bytes for batch in reading.batches) <= 5 * len(value)


def test_unknown_topic_fails_with_its_name(broker: SessionBroker) -> None:
    with (
        Reading(source_operator(broker.bootstrap, "no-such-topic"), restored=NEW) as reading,
        pytest.raises(SourceFailed, match="no-such-topic does not exist"),
    ):
        reading.source.wait_ready(60)


def test_no_broker_at_the_address_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.sources.tools.REQUEST_SECONDS", 0.2)
    with Reading(source_operator("127.0.0.1:9", "orders"), restored=NEW) as reading:
        reader = reading.source._reader
        assert reader is not None
        nothing = reader._outage.last
        wait_until(lambda: reader._outage.last != nothing, "the first error")
        with pytest.raises(SourceUnavailable, match=r"127\.0\.0\.1:9 in 0\.2 s \(.*(refused|down|failure)"):
            reading.source.wait_ready(0.2)


def test_input_lost_to_retention_stops_with_the_lost_range(broker: SessionBroker, topics: TopicMaker) -> None:
    from kafka import TopicPartition as AdminPartition

    topic = topics()
    produce(broker.bootstrap, topic, orders(range(50)))
    admin = connect({"bootstrap.servers": broker.bootstrap}, 60)
    admin.delete_records({AdminPartition(topic, 0): 30})
    admin.close()
    restored = SourcePositions(OperatorName("orders"), ((TopicPartition(topic, 0), 10),))
    stopping = source_operator(broker.bootstrap, topic, until="never")
    lost = r"offset 10 is gone, the log now starts at 30: 20 offsets were removed.*\[10, 30\); "
    with Reading(stopping, restored=restored) as reading, pytest.raises(SourceFailed, match=lost + "restore the data"):
        reading.read(1)
    going_on = msgspec.structs.replace(stopping, on_lost_input="continue")
    with Reading(going_on, restored=restored) as reading, pytest.raises(SourceUnavailable, match=lost + "on_lost_in"):
        reading.read(1)


def test_offset_behind_the_end_of_the_log_is_refused(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics()
    produce(broker.bootstrap, topic, orders(range(5)))
    restored = SourcePositions(OperatorName("orders"), ((TopicPartition(topic, 0), 100),))
    with (
        Reading(source_operator(broker.bootstrap, topic, until="never"), restored=restored) as reading,
        pytest.raises(SourceFailed, match="is past the end of the log"),
    ):
        reading.read(1)


def test_settings_that_the_client_refuses_are_named() -> None:
    operator = source_operator("127.0.0.1:9", "orders")
    broken = msgspec.structs.replace(operator, kafka={**operator.kafka, "fetch.min.bytes": "many"})
    with (
        Reading(broken, restored=NEW) as reading,
        pytest.raises(SourceFailed, match=r"rejects its settings.*fetch\.min\.bytes"),
    ):
        reading.source.wait_ready(60)


def test_a_failure_that_nobody_foresaw_reaches_the_loop(
    broker: SessionBroker, topics: TopicMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise RuntimeError("a mistake of ours")

    topic = topics()
    with Reading(source_operator(broker.bootstrap, topic, until="never")) as reading:
        reading.source.wait_ready(60)
        monkeypatch.setattr(ConsumerThread, "_wait_for_room", fail)
        with pytest.raises(SourceUnavailable, match="RuntimeError: a mistake of ours"):
            reading.read(1)


class Latin(str):
    """A name that goes out as bytes that are not UTF-8, as other clients write them."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return super().encode("latin-1")


def produce_names_that_are_not_utf8(bootstrap: str, topic: str) -> None:
    """One in fifty of 200 orders has one."""
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    names = [Latin("\xe9") if order % 50 == 40 else "ok" for order in range(200)]
    for value, name in zip(orders(range(200)), names, strict=True):
        producer.send(topic, value=value, headers=[("a", b"1"), (name, b"1")])
    producer.close()


def test_a_header_whose_name_is_not_utf8_makes_its_record_bad_and_no_other(
    broker: SessionBroker, topics: TopicMaker
) -> None:
    """Reading the names of such a record from the client's second answer ends the process."""
    topic = topics()
    produce_names_that_are_not_utf8(broker.bootstrap, topic)
    headers = MetadataColumn("headers", "h", PARTS["headers"])
    operator = source_operator(broker.bootstrap, topic, metadata=(headers,))
    with Reading(msgspec.structs.replace(operator, output=operator.columns)) as reading:
        frame = reading.read()
    assert frame["id"].to_list() == [order for order in range(200) if order % 50 != 40]
    assert {header["key"] for headers in frame["h"].to_list() for header in headers} == {"a", "ok"}
    bad = [(one.offset, one.failure.kind) for batch in reading.batches for one in batch.failures]
    assert bad == [(order, FailureKind.NOT_UTF8) for order in range(200) if order % 50 == 40]


def test_a_record_with_a_name_that_is_not_utf8_among_dead_letters_is_none(
    broker: SessionBroker, topics: TopicMaker
) -> None:
    topic = topics()
    produce_names_that_are_not_utf8(broker.bootstrap, topic)
    consumer = clients.consumer({"bootstrap.servers": broker.bootstrap, "group.id": "tests"})
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    messages = consumer.consume(200, 60)
    consumer.close()
    marks = Marks()
    assert [dead_letter_of(message) for message in messages if not marks.note(message)] == [None] * 200
