"""Which thread the daemon's questions to Kafka wait in, and what is asked before sources get positions."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.sources.kafka_topics import source_operator
from tests.support.clocks import HandClock
from tests.waiting import PATIENCE_S
from tidegate.clock import SYSTEM_CLOCK
from tidegate.coordinator.start_offsets import UnassignedSource
from tidegate.coordinator.types import SourcePositions
from tidegate.daemon.kafka_edge import AFTERMATH_S, KafkaEdge, TopicMissing
from tidegate.ids import Attempt, TopicPartition
from tidegate.kafka.connection import BrokerConnection
from tidegate.kafka.errors import BrokerUnavailable, SourceFailed
from tidegate.operators.builtin.kafka_source import SourceOperator


def edge_of(client: Any) -> KafkaEdge:
    edge = KafkaEdge({})
    edge._commit_client = edge._other_client = cast("Any", client)
    return edge


@pytest.mark.parametrize("running", [False, True])
def test_what_is_open_at_the_end_of_an_attempt_does_not_wait_for_a_partition_without_a_leader(
    monkeypatch: pytest.MonkeyPatch, running: bool
) -> None:
    """To measure the lag is tried for 30 s, again and again, and what an attempt leaves has 10 s. While one runs the
    janitor waits: no commit waits for it.
    """
    monkeypatch.setattr("tidegate.daemon.kafka_edge.SOON_S", 0.01)
    asked, answers, listed = threading.Event(), threading.Event(), threading.Event()

    def stable_offsets(_partitions: object) -> dict[TopicPartition, int]:
        asked.set()
        assert answers.wait(PATIENCE_S)
        return {}

    def list_transactions(*_what: object, **_more: object) -> list[object]:
        listed.set()
        return []

    edge = edge_of(SimpleNamespace(stable_offsets=stable_offsets, list_transactions=list_transactions))

    async def scene() -> None:
        lag = asyncio.create_task(edge.stable_offsets([TopicPartition("orders", 0)]))
        await asyncio.to_thread(asked.wait, PATIENCE_S)
        fence = asyncio.create_task(edge.fence_leftovers("shop", (), Attempt(2), "token", running=running))
        if not running:
            assert await asyncio.wait_for(fence, PATIENCE_S) == []
        assert listed.is_set() is not running
        answers.set()
        await asyncio.gather(lag, fence)
        await close(edge)

    asyncio.run(scene())


async def close(edge: KafkaEdge) -> None:
    """Its threads; the clients are not real."""
    edge._commit_client = edge._other_client = None
    await edge.close()


class Forbidding:
    """Everything may be described, and only what is named may be read."""

    def __init__(self, *readable: str) -> None:
        self.readable = readable

    def may_read(self, topic: str) -> bool:
        return topic in self.readable

    def first_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 3)


def begin(source: SourceOperator, *topics: str, known: Iterable[str] = ()) -> list[SourcePositions]:
    edge = edge_of(Forbidding("orders-a", "orders-b"))
    parts = tuple(TopicPartition(topic, 0) for topic in topics)
    unplaced = UnassignedSource(source.name, parts, known_topics=frozenset(known))

    async def scene() -> list[SourcePositions]:
        try:
            return await edge.read_beginnings([(source, unplaced)], dt.datetime.now(dt.UTC))
        finally:
            await close(edge)

    return asyncio.run(scene())


def test_a_topic_that_a_pattern_has_found_and_that_may_not_be_read_gets_no_position() -> None:
    """A slot would be refused, and a checkpoint that has positions of it keeps it in the pattern."""
    source = source_operator("", "", topics=(), pattern="orders-.*", until="never", kafka={})
    (found,) = begin(source, "orders-a", "orders-b")
    assert dict(found.next_offsets) == {TopicPartition("orders-a", 0): 3, TopicPartition("orders-b", 0): 3}
    with pytest.raises(SourceFailed, match=r"not read orders-c, orders-d, which match orders-\.\*; ") as new:
        begin(source, "orders-a", "orders-d", "orders-c")
    text = str(new.value).partition("grant READ")[2]
    assert text == (
        ", or change `pattern` so that it does not match orders-c, orders-d: no checkpoint has positions of it yet"
    )


def test_a_topic_that_has_more_partitions_and_may_not_be_read_any_more_cannot_be_left_out_of_the_pattern() -> None:
    """A checkpoint has positions of the ones before, and such a change would be refused."""
    source = source_operator("", "", topics=(), pattern="orders-.*", until="never", kafka={})
    with pytest.raises(SourceFailed, match=r"not read orders-c, which match orders-\.\*; grant READ$"):
        begin(source, "orders-c", known=["orders-a", "orders-c"])
    with pytest.raises(SourceFailed, match=r"; grant READ, or change `pattern` so that it does not match orders-d: no"):
        begin(source, "orders-c", "orders-d", known=["orders-c"])


def test_a_topic_that_a_pattern_has_found_and_that_is_gone_is_not_simply_to_be_created_again() -> None:
    """Its name is in no file, and a start refuses a new topic of that name."""
    client = SimpleNamespace(
        interruptions=0, cluster_id=lambda: "cluster-1", topics=lambda _topics: {}, close=lambda: None
    )
    edge = KafkaEdge({"bootstrap.servers": "b:1"}, cast("Any", SimpleNamespace(connect=lambda _kafka, _s: client)))

    async def scene() -> None:
        await edge.open()
        try:
            await edge.cluster_facts(["orders-c"])
        finally:
            await edge.close()

    with pytest.raises(
        TopicMissing, match=r"^topic orders-c does not exist on b:1\. If it was deleted, .*--drop"
    ) as gone:
        asyncio.run(scene())
    assert gone.value.exit_code == 2


@pytest.mark.parametrize("more", [{"topics": ("orders-c",)}, {"pattern": "orders-.*", "kafka": {"sasl.username": "x"}}])
def test_a_topic_that_is_named_or_read_by_a_user_of_its_own_is_left_to_the_slots(more: dict[str, Any]) -> None:
    source = source_operator("", "", **{"topics": (), "until": "never", "kafka": {}, **more})
    assert len(begin(source, "orders-c")) == 1


@pytest.mark.parametrize("name", ["bootstrap.servers", "metadata.broker.list"])
def test_the_address_of_the_cluster_is_known_under_both_its_names(name: str) -> None:
    """Messages named none, and the command that ends a transaction by hand did not either."""
    kafka = {name: "a:1,b:2"}
    assert KafkaEdge(kafka).bootstrap == "a:1,b:2"
    connection = BrokerConnection(kafka, 1.0, lambda _kafka, _timeout_s: cast("Any", None), SYSTEM_CLOCK)
    with pytest.raises(BrokerUnavailable, match="at a:1,b:2: "):
        connection.refuse(7, "asking")


def test_an_outage_explains_failures_while_it_lasts_and_a_minute_longer() -> None:
    """Requests of then run into their time limits after it."""
    clock = HandClock(100.0)
    edge = KafkaEdge({}, cast("Any", SimpleNamespace(clock=clock)))
    assert (edge.unavailable, edge.explains_failures) == (False, False)
    edge.note(answering=True)
    assert (edge.unavailable, edge.explains_failures) == (False, False)
    edge.note(answering=False)
    clock.now += 1000
    edge.note(answering=False)
    assert (edge.unavailable, edge.explains_failures) == (True, True)
    edge.note(answering=True)
    clock.now += AFTERMATH_S - 1
    edge.note(answering=True)
    assert (edge.unavailable, edge.explains_failures) == (False, True)
    clock.now += 1
    assert (edge.unavailable, edge.explains_failures) == (False, False)


def test_a_client_that_connects_while_all_are_closed_is_closed_as_well() -> None:
    """To close does not wait for it: a broker that is away may be tried for minutes."""
    asked, connected = threading.Event(), threading.Event()
    ended: list[str] = []

    def connect(*_what: object) -> object:
        asked.set()
        assert connected.wait(PATIENCE_S)
        return SimpleNamespace(close=lambda: ended.append("closed"))

    edge = KafkaEdge({}, cast("Any", SimpleNamespace(connect=connect)))

    async def scene() -> None:
        opening = asyncio.create_task(edge.open())
        await asyncio.to_thread(asked.wait, PATIENCE_S)
        await edge.close()
        assert ended == []
        connected.set()
        with pytest.raises(BrokerUnavailable, match="closed meanwhile"):
            await opening

    asyncio.run(scene())
    assert ended == ["closed"]
