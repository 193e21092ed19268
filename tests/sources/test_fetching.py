"""Records and events as a client's message objects give them, and which way is taken."""

from __future__ import annotations

import logging
from typing import Any

import confluent_kafka as ck
import pytest

from tests.sources.scripted import P0, ScriptedClient
from tidegate.ids import TopicPartition
from tidegate.sources import fetching
from tidegate.sources.fetching import MessageFetcher, open_fetcher


class Client(ScriptedClient):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_for: list[tuple[int, float]] = []

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
        self.asked_for.append((num_messages, timeout))
        return super().consume(num_messages, timeout)


def test_one_record_is_waited_for_and_the_others_are_those_that_are_there() -> None:
    client = Client()
    fetcher = MessageFetcher(client)
    client.put(P0, b"a", b"b", b"c", b"d")
    assert fetcher.wait(0.5)
    assert fetcher.take(3).records.values == [b"a", b"b", b"c"]
    assert client.asked_for == [(1, 0.5), (2, 0)]
    assert fetcher.wait(0.5)
    assert fetcher.take(1).records.values == [b"d"]
    assert client.asked_for[2:] == [(1, 0.5)], "there was no room for more"


def test_events_come_beside_the_records_and_may_be_of_no_partition() -> None:
    client: Any = Client()
    client.put(P0, b"a")
    client.end(P0)
    client._queue.append(ck.Message(error=ck.KafkaError(ck.KafkaError._ALL_BROKERS_DOWN)))
    fetched = MessageFetcher(client).take(10)
    assert fetched.records.values == [b"a"]
    assert [(event.partition, event.offset, event.error.code()) for event in fetched.events] == [
        (P0, 1, ck.KafkaError._PARTITION_EOF),
        (TopicPartition("", 0), 0, ck.KafkaError._ALL_BROKERS_DOWN),
    ]


def test_why_records_are_not_read_in_place_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidegate.sources")
    monkeypatch.setattr(fetching, "find_library", lambda: "there is no compiler")
    monkeypatch.setattr(fetching, "find_librdkafka", lambda: "and no library")
    fetching._report.cache_clear()
    consumer = ck.Consumer({"bootstrap.servers": "127.0.0.1:9", "group.id": "tests"})
    try:
        for _ in range(2):
            assert isinstance(open_fetcher(consumer), MessageFetcher)
    finally:
        consumer.close()
        fetching._report.cache_clear()
    assert [record.getMessage() for record in caplog.records] == [
        "records are read by message objects, at more CPU time than in place: there is no compiler; and no library"
    ]
