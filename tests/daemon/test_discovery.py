"""One look at the topics of a running attempt, with the real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]  # not in their __all__

from tests.conftest import SessionBroker, TopicMaker
from tests.coordinator.values import on_cluster
from tests.support import clients
from tests.support.clusters import alone
from tests.waiting import PATIENCE_S, wait_until
from tidegate.coordinator.discovery import ClusterReplaced, TopicFound, TopicGone, TopicReplaced
from tidegate.coordinator.entries import ClusterIdentity, Identity
from tidegate.coordinator.recovery import RestorePlan, SlotRestore
from tidegate.daemon.discovery import Discovery
from tidegate.daemon.kafka_clusters import KafkaClusters
from tidegate.daemon.kafka_edge import KafkaEdge
from tidegate.datatypes import BIGINT
from tidegate.errors import TidegateError
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import (
    MAIN_CLUSTER,
    Attempt,
    CheckpointId,
    ClusterName,
    OperatorName,
    SlotIndex,
    TopicPartition,
    VertexId,
)
from tidegate.kafka.errors import BrokerUnavailable
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Node, Plan, Vertex
from tidegate.task.messages import AddPartitions

pytestmark = pytest.mark.slow

ORDERS = OperatorName("orders")
ATTEMPT = Attempt(7)
Sent = list[tuple[SlotIndex, AddPartitions]]


def plan_of(topic: str, until: str, pattern: str = "") -> Plan:
    """With a `pattern` the topic is one that it has found."""
    schema = (("id", BIGINT),)
    names = () if pattern else (topic,)
    policy = BadRecordPolicy.FAIL
    source = SourceOperator(ORDERS, names, "json", schema, schema, "earliest", until, policy, {}, pattern=pattern)
    return Plan("shop", 2, 128, True, (Vertex(VertexId("orders"), (Node(source, (), ()),)),), ())


def look(
    broker: SessionBroker, topic: str, *steps: Callable[[], None], until: str = "never", pattern: str = ""
) -> Sent:
    """One look before each step and one after the last; what was sent to the slots."""
    sent: Sent = []

    async def serve() -> None:
        edge = KafkaEdge({"bootstrap.servers": broker.bootstrap})
        await edge.open()
        kafka = alone(edge)
        try:
            ids = {name: found.topic_id for name, found in (await edge.topic_facts([topic])).items()}
            takeover = SimpleNamespace(identity=Identity("shop", on_cluster(ids, await edge.cluster_id()), 2, 128))
            journal = SimpleNamespace(state=SimpleNamespace(takeover=takeover))
            services = cast("Any", SimpleNamespace(kafka=kafka, journal=journal))
            slots = tuple(
                SlotRestore(SlotIndex(slot), range(1), {ORDERS: parts}, (), ())
                for slot, parts in enumerate([(TopicPartition(topic, 0),), ()])
            )
            restore = RestorePlan(ATTEMPT, None, slots, CheckpointId(1))
            found = Discovery(
                plan_of(topic, until, pattern), restore, services, lambda *to: sent.append(to), _unwanted, 1.0, 0.0
            )
            await _steps(found.discover_topics if pattern else found.look, steps)
        finally:
            await edge.close()

    asyncio.run(serve())
    return sent


def _unwanted(error: TidegateError) -> None:
    raise AssertionError(f"looks are made by the test: {error}")


async def _steps(once: Callable[[], Awaitable[None]], steps: tuple[Callable[[], None], ...]) -> None:
    await once()
    for step in steps:
        await asyncio.to_thread(step)
        await once()


def grow(broker: SessionBroker, topic: str, partitions: int) -> None:
    admin = clients.admin({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        future.result(30)
    wait_until(lambda: len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == partitions, "partitions")


def delete(broker: SessionBroker, topic: str) -> None:
    clients.delete_topics(broker.bootstrap, [topic])
    # The controller has answered; the broker that is asked next may be behind it.
    admin = clients.admin({"bootstrap.servers": broker.bootstrap})
    wait_until(lambda: topic not in admin.list_topics(timeout=30).topics, "the broker has forgotten it", 60)


def test_each_new_partition_is_sent_to_one_slot_and_once(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics()
    sent = look(broker, topic, lambda: grow(broker, topic, 4), lambda: None, lambda: grow(broker, topic, 5))

    def order(*numbers: int) -> AddPartitions:
        return AddPartitions(ATTEMPT, ORDERS, tuple(TopicPartition(topic, number) for number in numbers))

    assert sent == [(0, order(2)), (1, order(1, 3)), (0, order(4))]


@pytest.mark.parametrize("unavailable", [False, True])
def test_a_look_that_fails_is_not_told_while_the_daemon_says_that_no_broker_answers(
    unavailable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    looked = asyncio.Event()

    async def cluster_id() -> str:
        return "cluster-1"

    async def topic_facts(_topics: object) -> dict[str, object]:
        if looked.is_set():
            await asyncio.Event().wait()
        looked.set()
        raise BrokerUnavailable("reading the topics' metadata: no final answer")

    async def scene() -> None:
        takeover = SimpleNamespace(identity=Identity("shop", on_cluster({"a": "1"}), 2, 128))
        journal = SimpleNamespace(state=SimpleNamespace(takeover=takeover))
        kafka = KafkaClusters(
            {
                MAIN_CLUSTER: cast(
                    "Any",
                    SimpleNamespace(
                        cluster_id=cluster_id, topic_facts=topic_facts, unavailable=unavailable, suffix="", place=""
                    ),
                )
            }
        )
        services = cast("Any", SimpleNamespace(kafka=kafka, journal=journal))
        restore = RestorePlan(ATTEMPT, None, (), CheckpointId(1))
        made = Discovery(plan_of("a", "never"), restore, services, _no_order, _unwanted, 0.0)
        made.start()
        await asyncio.wait_for(looked.wait(), 10)
        made.close()

    asyncio.run(scene())
    told = [record.getMessage() for record in caplog.records]
    assert told == (
        []
        if unavailable
        else ["the topics were not checked for new partitions: reading the topics' metadata: no final answer"]
    )


def _no_order(_slot: SlotIndex, order: AddPartitions) -> None:
    raise AssertionError(order)


def test_a_bounded_source_gets_none(broker: SessionBroker, topics: TopicMaker) -> None:
    """Its read ends where the topic ended when it began."""
    topic = topics()
    assert look(broker, topic, lambda: grow(broker, topic, 4), until="latest") == []


def test_a_topic_of_the_same_name_with_another_id_is_told(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics()

    def replace() -> None:
        delete(broker, topic)
        broker.create_topics({topic: 1})

    with pytest.raises(TopicReplaced, match=f"topic {topic} was deleted and created again"):
        look(broker, topic, replace)


def test_a_topic_that_was_deleted_is_told_behind_three_looks(broker: SessionBroker, topics: TopicMaker) -> None:
    """Its reader only sees that nothing comes."""
    topic = topics()
    with pytest.raises(TopicGone, match=f"topic {topic} no longer exists"):
        look(broker, topic, lambda: delete(broker, topic), lambda: None, lambda: None)


def test_a_new_topic_that_matches_ends_the_attempt(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics()
    other = f"{topic}-other"
    with pytest.raises(TopicFound, match=rf"source orders: new topics match {topic}\.\*: {other};") as found:
        look(broker, topic, lambda: None, lambda: broker.create_topics({other: 1}), pattern=f"{topic}.*")
    assert found.value.retriable


def test_topics_are_listed_seldom() -> None:
    listed: list[str] = []

    async def all_topics() -> dict[str, object]:
        listed.append("asked")
        return {}

    services = cast("Any", SimpleNamespace(kafka=alone(SimpleNamespace(all_topics=all_topics))))
    restore = RestorePlan(ATTEMPT, None, (), CheckpointId(1))
    plan = plan_of("orders", "never", "orders.*")
    found = Discovery(plan, restore, services, lambda *_: None, _unwanted, 10.0)
    asyncio.run(_steps(found.discover_topics, (lambda: None,) * 11))
    assert len(listed) == 2


def test_an_internal_error_ends_the_attempt() -> None:
    """Nobody waits for the looks: new partitions, and a topic that was replaced, were never noticed again."""

    async def scene() -> TidegateError:
        failed: asyncio.Future[TidegateError] = asyncio.get_running_loop().create_future()
        services = cast(
            "Any", SimpleNamespace(kafka=alone(None), journal=SimpleNamespace(state=SimpleNamespace(takeover=None)))
        )
        restore = RestorePlan(ATTEMPT, None, (), CheckpointId(1))
        found = Discovery(plan_of("orders", "never"), restore, services, lambda *_: None, failed.set_result, 0.0)
        found.start()
        return await asyncio.wait_for(failed, PATIENCE_S)

    error = asyncio.run(scene())
    assert error.retriable
    assert "the topics cannot be checked: AssertionError" in error.message


@pytest.mark.parametrize("ids", [("cluster-1", "cluster-2"), ("cluster-1", "cluster-3")])
def test_another_cluster_at_the_address_of_one_ends_the_pipeline(ids: tuple[str, str]) -> None:
    """Its topics may have the same names, and it would be told that they were deleted or created again."""
    us = ClusterName("us")

    def edge(cluster_id: str, place: str) -> Any:
        async def tell_id() -> str:
            return cluster_id

        async def topic_facts(_topics: object) -> dict[str, object]:
            return {}

        return SimpleNamespace(cluster_id=tell_id, topic_facts=topic_facts, place=place, suffix="")

    known = {**on_cluster({}), us: ClusterIdentity("cluster-2", {})}
    journal = SimpleNamespace(state=SimpleNamespace(takeover=SimpleNamespace(identity=Identity("shop", known, 2, 128))))
    edges = {MAIN_CLUSTER: edge(ids[0], "eu:9092"), us: edge(ids[1], "us:9092 (cluster us)")}
    services = cast("Any", SimpleNamespace(kafka=KafkaClusters(edges), journal=journal))
    restore = RestorePlan(ATTEMPT, None, (), CheckpointId(1))
    found = Discovery(plan_of("orders", "never"), restore, services, lambda *_: None, _unwanted, 10.0)
    if ids[1] == "cluster-2":
        asyncio.run(found.look())
        return
    with pytest.raises(
        ClusterReplaced, match=r"another Kafka cluster answers at us:9092 \(cluster us\) while"
    ) as caught:
        asyncio.run(found.look())
    assert not caught.value.retriable
