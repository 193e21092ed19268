"""Partitions that a topic gets while its source is read."""

from __future__ import annotations

import confluent_kafka as ck
import msgspec
import pytest
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]  # not in their __all__

from tests.conftest import SessionBroker, TopicMaker
from tests.sources.kafka_topics import Reading, orders, produce, source_operator
from tests.support import clients
from tests.waiting import wait_until
from tidegate.coordinator.types import SourcePositions
from tidegate.ids import OperatorName, TopicPartition
from tidegate.kafka.errors import SourceFailed

pytestmark = pytest.mark.slow


def grow(bootstrap: str, topic: str, partitions: int) -> None:
    """Grow to as many partitions in all; returns when their leader takes records."""
    admin = clients.admin({"bootstrap.servers": bootstrap})
    for future in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        future.result(60)
    wait_until(lambda: len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == partitions, "partitions")


def test_an_added_partition_is_read_from_its_first_offset_next_to_the_others(
    broker: SessionBroker, topics: TopicMaker
) -> None:
    """Its records are older than the order to read it, and `start: latest` does not skip them."""
    topic = topics()
    with Reading(source_operator(broker.bootstrap, topic, start="latest", until="never")) as reading:
        reading.source.wait_ready(60)
        produce(broker.bootstrap, topic, orders(range(5)))
        reading.read(5)
        grow(broker.bootstrap, topic, 3)
        produce(broker.bootstrap, topic, orders(range(10, 20)), 1)
        produce(broker.bootstrap, topic, orders(range(20, 30)), 2)
        reading.source.add_partitions([TopicPartition(topic, 1), TopicPartition(topic, 2)])
        assert reading.source.positions().next_offsets == (
            (TopicPartition(topic, 0), 5),
            (TopicPartition(topic, 1), 0),
            (TopicPartition(topic, 2), 0),
        )
        produce(broker.bootstrap, topic, orders(range(5, 8)))
        frame = reading.read(28)
        for partition, wanted in enumerate(([*range(8)], [*range(10, 20)], [*range(20, 30)])):
            rows = frame.filter(frame["__tidegate_partition"] == partition)
            assert rows["id"].to_list() == wanted
            assert rows["__tidegate_offset"].to_list() == list(range(len(wanted)))
        assert [offset for _, offset in reading.source.positions().next_offsets] == [8, 10, 10]


def test_a_subtask_without_partitions_begins_with_its_first_one(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics()
    with Reading(source_operator(broker.bootstrap, topic, until="never"), 0) as reading:
        assert reading.source.positions().next_offsets == ()
        grow(broker.bootstrap, topic, 2)
        produce(broker.bootstrap, topic, orders(range(4)), 1)
        reading.source.add_partitions([TopicPartition(topic, 1)])
        assert reading.read(4)["id"].to_list() == list(range(4))
        assert reading.source.positions().next_offsets == ((TopicPartition(topic, 1), 4),)


def test_partitions_are_added_more_than_once_and_restored_where_they_were(
    broker: SessionBroker, topics: TopicMaker
) -> None:
    topic = topics()
    operator = source_operator(broker.bootstrap, topic, until="never")
    with Reading(operator) as reading:
        reading.source.wait_ready(60)
        for partition in (1, 2):
            grow(broker.bootstrap, topic, partition + 1)
            produce(broker.bootstrap, topic, orders(range(partition * 10, partition * 10 + 4)), partition)
            reading.source.add_partitions([TopicPartition(topic, partition)])
            reading.read(4 * partition)
        last = reading.source.positions()
    assert [offset for _, offset in last.next_offsets] == [0, 4, 4]
    produce(broker.bootstrap, topic, orders(range(90, 93)), 2)
    with Reading(operator, 3, restored=last) as reading:
        assert reading.read(3)["id"].to_list() == [90, 91, 92]


def test_a_partition_that_the_broker_does_not_know_yet_is_waited_for(broker: SessionBroker, topics: TopicMaker) -> None:
    """The daemon's broker may have heard of it earlier than the reader's."""
    topic = topics()
    with Reading(source_operator(broker.bootstrap, topic, until="never")) as reading:
        reading.source.wait_ready(60)
        reading.source.add_partitions([TopicPartition(topic, 1)])
        produce(broker.bootstrap, topic, orders(range(3)))
        reading.read(3)
        grow(broker.bootstrap, topic, 2)
        produce(broker.bootstrap, topic, orders(range(3, 5)), 1)
        assert reading.read(5)["id"].to_list() == list(range(5))


def test_the_second_topic_of_a_source_gets_a_partition(broker: SessionBroker, topics: TopicMaker) -> None:
    """Partitions of two topics with the same number are kept apart."""
    one, two = topics("one"), topics("two")
    operator = msgspec.structs.replace(source_operator(broker.bootstrap, one, until="never"), topics=(one, two))
    with Reading(operator) as reading:
        reading.source.wait_ready(60)
        grow(broker.bootstrap, two, 2)
        produce(broker.bootstrap, two, orders(range(7)), 1)
        reading.source.add_partitions([TopicPartition(two, 1)])
        reading.read(7)
        found = dict(reading.source.positions().next_offsets)
    assert found == {TopicPartition(one, 0): 0, TopicPartition(two, 0): 0, TopicPartition(two, 1): 7}


def test_a_partition_that_lost_its_first_records_stops_the_source(broker: SessionBroker, topics: TopicMaker) -> None:
    """They were new, and nobody has read them."""
    topic = topics()
    with Reading(source_operator(broker.bootstrap, topic, until="never")) as reading:
        reading.source.wait_ready(60)
        grow(broker.bootstrap, topic, 2)
        produce(broker.bootstrap, topic, orders(range(9)), 1)
        clients.delete_records(broker.bootstrap, [ck.TopicPartition(topic, 1, 5)])
        reading.source.add_partitions([TopicPartition(topic, 1)])
        with pytest.raises(SourceFailed, match=r"\[1\]: offset 0 is gone, the log now starts at 5: 5 offsets"):
            reading.read(9)


def test_an_attempt_that_was_told_nothing_reads_it_from_its_first_offset_too(
    broker: SessionBroker, topics: TopicMaker
) -> None:
    """A crash before the first checkpoint that has the partition: the next attempt's positions lack it."""
    topic = topics()
    grow(broker.bootstrap, topic, 2)
    produce(broker.bootstrap, topic, orders(range(6)), 1)
    restored = SourcePositions(OperatorName("orders"), ((TopicPartition(topic, 0), 0),))
    operator = source_operator(broker.bootstrap, topic, start="latest", until="never")
    with Reading(operator, 2, restored=restored) as reading:
        assert reading.read(6)["id"].to_list() == list(range(6))
