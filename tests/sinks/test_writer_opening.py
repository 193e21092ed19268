"""A transaction is opened while the broker is away: every question waits as long as the opening may take."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.sinks.driving import Cluster
from tidegate.ids import TransactionalId
from tidegate.kafka.properties import derive_producer_properties
from tidegate.kafka.writer import OPEN_TIMEOUT_S, TransactionWriter

pytestmark = pytest.mark.slow


class WatchedClient:
    """Asks through a real client and keeps how long each answer may take."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.patience_s: dict[str, float] = {}

    def describe(self, transactional_id: str, timeout_s: float = 0.0) -> Any:
        self.patience_s["describe"] = timeout_s
        return self._client.describe(transactional_id, timeout_s)


def test_all_questions_of_an_opening_wait_as_long_as_the_opening(cluster_tv2: Cluster) -> None:
    client: Any = WatchedClient(cluster_tv2.client)
    topic = cluster_tv2.topic(1)
    properties = derive_producer_properties(
        {"bootstrap.servers": cluster_tv2.bootstrap}, TransactionalId(f"{cluster_tv2.pipeline}.opening"), 60_000
    )
    writer = TransactionWriter("out", {topic: cluster_tv2.client.topic_limits(topic)}, properties)
    started = time.monotonic()
    writer.open(client, lambda: False)
    took_s = time.monotonic() - started
    writer.discard()
    assert client.patience_s.keys() == {"describe"}
    assert min(client.patience_s.values()) >= OPEN_TIMEOUT_S - took_s, client.patience_s
