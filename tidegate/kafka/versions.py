"""Which brokers there are, what each is, and which requests of ours it does not answer. Changes nothing.

Brokers are asked for what they answer, not for a number: vendors count otherwise, and a managed service counts not at
all. Kafka 3.0 is the oldest that answers everything; the oldest that was run is in docs/compatibility.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.kafka.channel import ClientChannel

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

ANSWER_S: Final = 15.0
_ALL: Final = 2
"""Kafka's number for all operations; below it there are none."""


class BrokerVersion(msgspec.Struct, frozen=True):
    """What one broker is."""

    node: int
    version: str
    """The oldest release that answers all it does, such as `4.3`."""
    lacking: tuple[str, ...] = ()
    """Names of requests that Tidegate sends and this broker does not answer."""


class ClusterNodes(msgspec.Struct, frozen=True):
    """A cluster by the metadata of any broker of it."""

    cluster_id: str
    brokers: tuple[int, ...]
    operations: frozenset[str] = frozenset()
    """What this user may do with the cluster as a whole; empty when the broker does not say."""


def read_nodes(client: KafkaAdminClient) -> ClusterNodes:
    """In place of `describe_cluster` of kafka-python 3.0, which fails with brokers before Kafka 3.7. Raises KafkaError.

    Metadata, version 10 at most: newer ones do not say what this user may do.
    """
    from kafka.admin import ACLOperation
    from kafka.errors import KafkaError
    from kafka.protocol.metadata import MetadataRequest

    request = MetadataRequest(
        topics=[], allow_auto_topic_creation=False, include_cluster_authorized_operations=True, max_version=10
    )
    (answer,) = ClientChannel(client).send([(request, None)], ANSWER_S)
    if isinstance(answer, KafkaError):
        raise answer
    return ClusterNodes(
        str(answer.cluster_id),
        tuple(sorted(broker.node_id for broker in answer.brokers)),
        frozenset(ACLOperation(one).name for one in answer.authorized_operations or () if one > _ALL),
    )


def read_versions(client: KafkaAdminClient) -> list[BrokerVersion]:
    """Of every broker that is there. Raises KafkaError."""
    found = []
    for node in read_nodes(client).brokers:
        data = client.get_broker_version_data(node)
        lacking = tuple(name for name, needed in _needed().items() if not _answers(data, *needed))
        found.append(BrokerVersion(node, ".".join(map(str, data.broker_version)), lacking))
    return found


def _answers(data: Any, request: Any, min_version: int) -> bool:
    from kafka.errors import IncompatibleBrokerVersion

    try:
        data.api_version(request, min_version=min_version)
    except IncompatibleBrokerVersion:
        return False
    return True


def _needed() -> Mapping[str, tuple[Any, int]]:
    """Requests that are not in every broker that librdkafka can talk to, with the version that is sent."""
    from kafka.protocol.admin.transactions import (
        DescribeProducersRequest,
        DescribeTransactionsRequest,
        ListTransactionsRequest,
    )
    from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
    from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

    return MappingProxyType(
        {
            "DescribeProducers": (DescribeProducersRequest, 0),
            "DescribeTransactions": (DescribeTransactionsRequest, 0),
            "ListTransactions": (ListTransactionsRequest, 0),
            "FindCoordinator 4": (FindCoordinatorRequest, 4),
            "Metadata 10": (MetadataRequest, 10),
            "WriteTxnMarkers 1": (WriteTxnMarkersRequest, 1),
        }
    )
