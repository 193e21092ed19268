"""The newest record of each partition is looked at once a second."""

from __future__ import annotations

import confluent_kafka as ck
import pytest

from tests.support.clocks import HandClock
from tidegate.ids import TopicPartition
from tidegate.sources.kafka import NEWEST_LOOK_S, NewestRecords
from tidegate.sources.messages import KafkaMessages

PARTS = [TopicPartition("in", number) for number in range(2)]


def message(partition: int, offset: int, at_ms: int | None) -> ck.Message:
    stamp = (ck.TIMESTAMP_NOT_AVAILABLE, -1) if at_ms is None else (ck.TIMESTAMP_CREATE_TIME, at_ms)
    return ck.Message(topic="in", partition=partition, offset=offset, value=b"", timestamp=stamp, error=None)


def look(newest: NewestRecords, *messages: ck.Message) -> None:
    newest.observe(KafkaMessages(messages))


def test_the_last_record_of_each_partition_of_a_batch_counts() -> None:
    newest = NewestRecords(HandClock())
    look(newest, message(0, 7, 100), message(1, 3, 50), message(0, 8, 101), message(1, 4, 51))
    assert newest.found == {PARTS[0]: (8, 101), PARTS[1]: (4, 51)}


def test_a_partition_is_looked_at_once_a_second() -> None:
    clock = HandClock()
    newest = NewestRecords(clock)
    look(newest, message(0, 7, 100))
    clock.now = NEWEST_LOOK_S / 2
    look(newest, message(0, 8, 101), message(1, 3, 50))
    assert newest.found == {PARTS[0]: (7, 100), PARTS[1]: (3, 50)}
    clock.now = NEWEST_LOOK_S
    look(newest, message(0, 9, 102), message(1, 4, 51))
    assert newest.found == {PARTS[0]: (9, 102), PARTS[1]: (3, 50)}


@pytest.mark.parametrize("at_ms", [None, -1])
def test_a_record_without_a_timestamp_says_nothing(at_ms: int | None) -> None:
    newest = NewestRecords(HandClock())
    look(newest, message(0, 7, at_ms))
    assert newest.found == {}
