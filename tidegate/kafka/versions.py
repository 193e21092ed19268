"""Reads which brokers exist, their versions, and which of our requests they do not support. Changes nothing.

Brokers are asked for the requests they support, not for a version number: vendors number releases differently, and
managed services have none. Kafka 3.0 is the oldest release that supports everything; `docs/compatibility.md` names the
oldest that was tested.
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
"""Kafka's code for all operations; lower codes are not operations."""


class BrokerVersion(msgspec.Struct, frozen=True):
    """Version and gaps of one broker."""

    node: int
    version: str
    """The oldest release that supports all requests the broker supports, such as `4.3`."""
    lacking: tuple[str, ...] = ()
    """Names of requests that Tidegate sends and this broker does not support."""


class ClusterNodes(msgspec.Struct, frozen=True):
    """A cluster according to the metadata of one of its brokers."""

    cluster_id: str
    brokers: tuple[int, ...]
    operations: frozenset[str] = frozenset()
    """Operations that this user may perform on the cluster; empty if the broker does not report them."""


def read_nodes(client: KafkaAdminClient) -> ClusterNodes:
    """Reads the nodes of a cluster. Replaces `describe_cluster` of kafka-python 3.0, which fails with brokers before
    Kafka 3.7.

    Uses Metadata version 10 at most: newer versions do not report this user's permissions. Raises KafkaError.
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
    """Returns the version of every available broker. Raises KafkaError."""
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
    """Returns the requests that some brokers supported by librdkafka lack, with the version that is sent."""
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
