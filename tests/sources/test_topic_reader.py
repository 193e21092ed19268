"""A topic as the commands read it: partitions that stop answering, and users that take their time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from types import SimpleNamespace

import confluent_kafka as ck
import pytest

from tidegate.dev.topics.client import TopicRefused
from tidegate.sources import topic_reader
from tidegate.sources.topic_reader import TopicReader


class Consumer:
    """Gives one batch after the other, and then none; every call takes a second of the clock."""

    def __init__(self, batches: Iterator[list[ck.Message]]) -> None:
        self.batches = batches
        self.refusals: Iterator[int] = iter(())
        """Codes of the errors that questions for the ends of partition 0 have, one after the other."""
        self.now = 0.0

    def assign(self, partitions: list[ck.TopicPartition]) -> None:
        """Whatever is asked for."""

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=[0])})

    def get_watermark_offsets(self, partition: ck.TopicPartition, timeout: float) -> tuple[int, int]:
        self.now += 1
        code = next(self.refusals, None)
        if code is not None:
            raise ck.KafkaException(ck.KafkaError(code))
        return 3, 7

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def consume(self, count: int, wait_s: float) -> list[ck.Message]:
        self.now += 1
        assert self.now < 1000, "it never ends"
        return next(self.batches, [])

    def close(self) -> None:
        """Nothing is open."""


def record(offset: int) -> ck.Message:
    return ck.Message(topic="orders", partition=0, offset=offset, value=b"v")


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Consumer:
    made = Consumer(iter([]))
    monkeypatch.setattr(ck, "Consumer", lambda config, **_: made)
    monkeypatch.setattr(topic_reader, "time", SimpleNamespace(monotonic=lambda: made.now, sleep=made.sleep))
    monkeypatch.setattr(topic_reader, "explain", lambda _, error, refused: refused(str(error)))
    return made


def open_topic() -> TopicReader:
    return TopicReader({"bootstrap.servers": "us:9092"}, "orders", committed=True, refused=TopicRefused)


def test_a_partition_that_stops_answering_is_given_up_although_others_get_new_records(consumer: Consumer) -> None:
    consumer.batches = ([record(offset)] for offset in itertools.count())
    with open_topic() as found, pytest.raises(TopicRefused, match="no record arrived for 30 s"):
        list(found.read({0: 0, 1: 0}, {0: 2, 1: 2}))


def test_a_slow_user_of_the_records_is_no_silence(consumer: Consumer) -> None:
    consumer.batches = iter([[record(0)], [], [record(1)]])
    with open_topic() as found:
        seen = []
        for message in found.read({0: 0}, {0: 2}):
            seen.append(message.offset())
            consumer.now += 60
        assert seen == [0, 1]


MOVED = ck.KafkaError.NOT_LEADER_FOR_PARTITION


def test_a_partition_whose_leader_moves_is_asked_again(consumer: Consumer) -> None:
    consumer.refusals = iter([MOVED, ck.KafkaError.LEADER_NOT_AVAILABLE])
    with open_topic() as found:
        assert found.bounds() == {0: (3, 7)}


@pytest.mark.parametrize(
    ("codes", "asked_s"),
    [(itertools.repeat(MOVED), topic_reader.ANSWER_S), ([ck.KafkaError.TOPIC_AUTHORIZATION_FAILED], 0.0)],
)
def test_a_partition_without_a_leader_is_given_up_and_a_refusal_is_final(
    consumer: Consumer, codes: Iterable[int], asked_s: float
) -> None:
    consumer.refusals = iter(codes)
    with open_topic() as found, pytest.raises(TopicRefused):
        found.bounds()
    assert asked_s <= consumer.now < asked_s + 3
