"""Records and events as a client's message objects give them, and which way is taken."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import confluent_kafka as ck
import pytest

from tests.sources.scripted import P0, P1, ScriptedClient
from tests.support import clients
from tidegate.ids import TopicPartition
from tidegate.native.library import Library
from tidegate.native.librdkafka import Librdkafka
from tidegate.sources import fetching
from tidegate.sources.fetching import NO_OFFSET, Fetched, FetchEvent, MessageFetcher, open_fetcher


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


def test_events_come_next_to_the_records_and_may_be_of_no_partition() -> None:
    client: Any = Client()
    client.put(P0, b"a")
    client.end(P0)
    client._queue.append(ck.Message(error=ck.KafkaError(ck.KafkaError._ALL_BROKERS_DOWN)))
    fetched = MessageFetcher(client).take(10)
    assert fetched.records.values == [b"a"]
    assert [(event.partition, event.offset, event.error.code()) for event in fetched.events] == [
        (P0, 1, ck.KafkaError._PARTITION_EOF),
        (TopicPartition("", 0), NO_OFFSET, ck.KafkaError._ALL_BROKERS_DOWN),
    ]


def test_an_offset_that_the_client_hides_is_none_and_never_the_first_one() -> None:
    """What it hides are librdkafka's negative ones."""
    client: Any = Client()
    cut_off = ck.KafkaError(ck.KafkaError._AUTO_OFFSET_RESET)
    client._queue.append(ck.Message(error=cut_off, topic="orders", partition=0, offset=ck.OFFSET_INVALID))
    ((part, offset, _),) = MessageFetcher(client).take(10).events
    assert (part, offset) == (P0, NO_OFFSET)
    assert offset < 0


class Handles(Librdkafka):
    """Knows the handle of one client."""

    def __init__(self, client: object, handle: int) -> None:
        self._of = {id(client): handle}

    def handle_of(self, client: object) -> int:
        return self._of[id(client)]


LIBRARY = object.__new__(Library)


def forget(error: ck.KafkaError) -> None:
    """Of no interest here."""


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[ck.Consumer]:
    caplog.set_level(logging.INFO, "tidegate.sources")
    fetching._report.cache_clear()
    made = clients.consumer({"bootstrap.servers": "127.0.0.1:9", "group.id": "tests"})
    monkeypatch.setattr(fetching, "find_library", lambda: LIBRARY)
    monkeypatch.setattr(fetching, "find_librdkafka", lambda: Handles(made, 7))
    yield made
    made.close()
    fetching._report.cache_clear()


def test_records_are_read_in_place_by_the_handle_of_their_client(
    consumer: ck.Consumer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fetching, "NativeFetcher", lambda *found: found)
    found: Any = open_fetcher(consumer, forget)
    assert (found[0], found[2:]) == (LIBRARY, (consumer, 7, forget))
    assert caplog.records == []


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ({"find_library": "no compiler"}, "no compiler"),
        ({"find_librdkafka": "another release"}, "another release"),
        ({"find_library": "no compiler", "find_librdkafka": "another release"}, "no compiler; another release"),
        ({}, "the client's handle was not found"),
    ],
)
def test_why_records_are_not_read_in_place_is_logged_once(
    consumer: ck.Consumer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    missing: dict[str, str],
    reason: str,
) -> None:
    monkeypatch.setattr(fetching, "find_librdkafka", lambda: Handles(consumer, 0))
    for name, why in missing.items():
        monkeypatch.setattr(fetching, name, lambda why=why: why)
    for _ in range(2):
        assert isinstance(open_fetcher(consumer, forget), MessageFetcher)
    assert [record.getMessage() for record in caplog.records] == [
        f"records are read as message objects, which takes more CPU time: {reason}"
    ]


@pytest.mark.parametrize(
    ("events", "wanted"),
    [
        ([], [b"a", b"x", b"b", b"y", b"c"]),
        ([(P0, 1)], [b"a", b"x"]),
        ([(P0, 3), (P1, 1)], [b"a", b"x", b"b"]),
        ([(P0, 1), (P0, 2), (TopicPartition("returns", 0), 0)], [b"a", b"x"]),
        ([(P0, 2), (P0, 1)], [b"a", b"x"]),
        ([(P1, NO_OFFSET)], [b"a"]),
        ([(TopicPartition("", 0), NO_OFFSET)], [b"a", b"x", b"b", b"y", b"c"]),
    ],
)
def test_records_before_events_are_none_that_an_event_may_have_passed_over(
    events: list[tuple[TopicPartition, int]], wanted: list[bytes]
) -> None:
    client = ScriptedClient()
    for part, value in ((P0, b"a"), (P1, b"x"), (P0, b"b"), (P1, b"y"), (P0, b"c")):
        client.put(part, value)
    error = ck.KafkaError(ck.KafkaError._NOT_IMPLEMENTED)
    fetched = Fetched(MessageFetcher(client).take(10).records, [FetchEvent(*place, error) for place in events])
    assert fetched.before_events().values == wanted
