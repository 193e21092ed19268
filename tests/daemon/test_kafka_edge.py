"""Which thread the daemon's questions to Kafka wait in."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.waiting import PATIENCE_S
from tidegate.clock import SYSTEM_CLOCK
from tidegate.daemon.kafka_edge import KafkaEdge
from tidegate.ids import Attempt, TopicPartition
from tidegate.kafka.connection import BrokerConnection
from tidegate.kafka.errors import BrokerUnavailable


def edge_of(client: Any) -> KafkaEdge:
    edge = KafkaEdge({})
    edge._commit_client = edge._other_client = cast("Any", client)
    return edge


@pytest.mark.parametrize("beside", [False, True])
def test_what_is_open_at_the_end_of_an_attempt_does_not_wait_for_a_partition_without_a_leader(
    monkeypatch: pytest.MonkeyPatch, beside: bool
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
        fence = asyncio.create_task(edge.fence_leftovers("shop", (), Attempt(2), "token", beside=beside))
        if not beside:
            assert await asyncio.wait_for(fence, PATIENCE_S) == []
        assert listed.is_set() is not beside
        answers.set()
        await asyncio.gather(lag, fence)

    asyncio.run(scene())


@pytest.mark.parametrize("name", ["bootstrap.servers", "metadata.broker.list"])
def test_the_address_of_the_cluster_is_known_under_both_its_names(name: str) -> None:
    """Messages named none, and the command that ends a transaction by hand did not either."""
    kafka = {name: "a:1,b:2"}
    assert KafkaEdge(kafka).bootstrap == "a:1,b:2"
    connection = BrokerConnection(kafka, 1.0, lambda _kafka, _timeout_s: cast("Any", None), SYSTEM_CLOCK)
    with pytest.raises(BrokerUnavailable, match="at a:1,b:2: "):
        connection.refuse(7, "asking")
