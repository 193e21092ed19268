"""What each broker is, and which requests it does not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError
from kafka.protocol.broker_version_data import BrokerVersionData

from tests.kafka.test_connection import Scripted
from tidegate.kafka.inspection import BrokerVersion, ClusterNodes, read_nodes, read_versions


def cluster(releases: dict[int, tuple[int, int]], operations: list[int] | None = None) -> tuple[Any, Scripted]:
    """A client of brokers of these releases, by kafka-python's own table of them."""
    brokers = [SimpleNamespace(node_id=one) for one in releases]
    answer = SimpleNamespace(cluster_id="c", brokers=brokers, authorized_operations=operations)
    manager = Scripted(lambda _request, _node: answer)
    made = {node: BrokerVersionData(release) for node, release in releases.items()}
    return SimpleNamespace(_manager=manager, get_broker_version_data=made.get), manager


def test_each_broker_is_asked_what_it_answers() -> None:
    client, _ = cluster({2: (2, 8), 1: (4, 0), 4: (2, 6), 3: (3, 0)})
    lacking = "DescribeTransactions", "ListTransactions", "FindCoordinator 4"
    assert read_versions(client) == [
        BrokerVersion(1, "4.0"),
        BrokerVersion(2, "2.8", lacking),
        BrokerVersion(3, "3.0"),
        BrokerVersion(4, "2.6", ("DescribeProducers", *lacking, "Metadata 10", "WriteTxnMarkers 1")),
    ]


def test_a_cluster_is_known_by_any_of_its_brokers_and_so_is_what_this_user_may_do() -> None:
    """0 to 2 are Kafka's words for no operation and for all."""
    client, manager = cluster({2: (4, 0), 1: (4, 0)}, [1, 2, 8, 10])
    assert read_nodes(client) == ClusterNodes("c", (1, 2), frozenset({"DESCRIBE", "DESCRIBE_CONFIGS"}))
    assert manager.asked == [("Metadata", None)], "any of them knows"
    (request,) = manager.sent
    assert (request.topics, request.allow_auto_topic_creation) == ([], False)
    assert request.include_cluster_authorized_operations is True
    assert request._max_version == 10, "newer ones do not say what this user may do"
    assert read_nodes(cluster({1: (4, 0)})[0]) == ClusterNodes("c", (1,))


def test_a_cluster_that_does_not_answer_is_no_cluster_without_brokers() -> None:
    manager = Scripted(lambda _request, _node: KafkaConnectionError("away"))
    with pytest.raises(KafkaConnectionError, match="away"):
        read_nodes(SimpleNamespace(_manager=manager))
