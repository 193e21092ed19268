"""The cluster queries of `tidegate doctor` and of the checks before a start. They change nothing.

Brokers are asked for the requests they support, not for a version number: vendors number releases differently, and
managed services have none. Kafka 3.0 is the oldest release that supports everything; `docs/compatibility.md` names the
oldest that was tested.

Permissions are tested by using them. Each request names a partition that no topic has, or a transaction that cannot
exist. Brokers check authorization first, so nothing changes whatever they answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.committable import Committable
from tidegate.ids import Attempt, CheckpointId, OperatorName, SlotIndex, TopicPartition, TransactionalId
from tidegate.kafka.channel import ClientChannel, connect
from tidegate.kafka.connection import GROUP_NOT_AUTHORIZED, NOT_AUTHORIZED
from tidegate.kafka.requests import (
    NO_PARTITION,
    empty_produce_request,
    end_request,
    fetch_request,
    group_offsets_request,
    quorum_request,
    topic_settings_request,
)

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


PAUSE_S: Final = 0.1
BROKERS_ASKED: Final = 5
THROTTLED_MAX: Final = 10
"""Consecutive empty fetch responses. After each one the broker mutes this connection for a while."""


class ClockReading(msgspec.Struct, frozen=True):
    """The controller's clock minus this machine's, with the uncertainty."""

    ahead_ms: int
    uncertain_ms: int


class ActiveProducer(msgspec.Struct, frozen=True):
    """A producer, idempotent or transactional, that the leader of a partition remembers for up to a day."""

    partition: TopicPartition
    producer_id: int
    last_ms: int
    """Timestamp of the producer's last record."""


class Inspector:
    """A connection for these queries. The constructor raises the same errors as `connect`; the methods raise
    KafkaError, OSError.
    """

    def __init__(self, kafka: Mapping[str, str], timeout_s: float) -> None:
        self.client: Any = connect(kafka, timeout_s)
        self._channel = ClientChannel(self.client)

    def close(self) -> None:
        """Closes all connections."""
        self._channel.close()

    def versions(self) -> list[BrokerVersion]:
        """Returns the version of every available broker."""
        return read_versions(self.client)

    def operations(self) -> frozenset[str]:
        """Returns the operations that this user may perform on the cluster."""
        return read_nodes(self.client).operations

    def clock(self, now: Callable[[], float] = time.time) -> ClockReading | None:
        """Reads the controller's clock from a quorum response. Returns None if this user may not ask, or Kafka is too
        old.
        """
        from kafka.errors import KafkaError

        with suppress(KafkaError):
            before = now()
            answer = self._ask(quorum_request())
            after = now()
            return derive_clock(answer.to_dict(), int(before * 1000), int(after * 1000))
        return None

    def topic_settings(self, topics: Collection[str], names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Returns the settings of each topic that this user may see.

        A topic with hidden settings has an empty entry.
        """
        return {topic: self._settings(topic, names) for topic in sorted(topics)}

    def broker_settings(self, names: Sequence[str]) -> dict[str, int]:
        """Returns the lowest value of each limit among up to five brokers. Their limits agree except during a rolling
        change.

        Settings that this user may not see are left out.
        """
        from kafka.admin import ConfigResource, ConfigResourceType
        from kafka.errors import KafkaError

        least: dict[str, int] = {}
        for node in map(str, read_nodes(self.client).brokers[:BROKERS_ASKED]):
            try:
                resource = ConfigResource(ConfigResourceType.BROKER, node, dict.fromkeys(names, ""))
                found = self.client.describe_configs([resource], config_filter="all")["broker"]
            except KafkaError:
                return {}
            for name, entry in found.get(node, {}).items():
                least[name] = min(int(entry["value"]), least.get(name, int(entry["value"])))
        return least

    def producers(self, partitions: Collection[TopicPartition]) -> list[ActiveProducer]:
        """Returns the active producers of the partitions. Needs READ on the topics."""
        import kafka

        asked = [kafka.TopicPartition(one.topic, one.partition) for one in partitions]
        return [
            ActiveProducer(TopicPartition(part.topic, part.partition), one.producer_id, one.last_timestamp)
            for part, state in self.client.describe_producers(asked).items()
            for one in state.active_producers
        ]

    # -- rights ----------------------------------------------------------------------------------------------------

    def may_read(self, topic: str) -> bool:
        """Tests READ on a topic.

        Raises ThrottlingQuotaExceededError when a quota of this user leaves no room to ask.
        """
        from kafka.errors import ThrottlingQuotaExceededError

        for _ in range(THROTTLED_MAX):
            answer = self._ask(fetch_request({TopicPartition(topic, NO_PARTITION): 0}, 1))
            if answer.responses:
                return answer.responses[0].partitions[0].error_code not in NOT_AUTHORIZED
        raise ThrottlingQuotaExceededError(f"{THROTTLED_MAX} questions about topic {topic} had no answer")

    def may_write(self, topic: str) -> bool:
        """Tests WRITE on a topic."""
        answer = self._ask(empty_produce_request(TopicPartition(topic, NO_PARTITION)))
        return answer.responses[0].partition_responses[0].error_code not in NOT_AUTHORIZED

    def may_see_settings(self, topic: str) -> bool:
        """Tests DESCRIBE_CONFIGS on a topic."""
        return self._ask(topic_settings_request(topic, ("cleanup.policy",))).results[0].error_code not in NOT_AUTHORIZED

    def may_see(self, topic: str) -> bool:
        """Tests DESCRIBE on a topic. For a hidden topic a broker answers that it is forbidden or does not exist."""
        from kafka.protocol.metadata import MetadataRequest

        named = [MetadataRequest.MetadataRequestTopic(name=topic)]
        answer = self._ask(MetadataRequest(topics=named, allow_auto_topic_creation=False))
        return answer.topics[0].error_code not in NOT_AUTHORIZED

    def may_mirror(self, group: str, topic: str) -> bool:
        """Tests READ on a consumer group; `topic` is any topic that this user may read."""
        answer = self._ask(group_offsets_request(group, {TopicPartition(topic, NO_PARTITION): 0}, ""))
        return bool(answer.topics[0].partitions[0].error_code != GROUP_NOT_AUTHORIZED)

    def may_transact(self, transactional_id: TransactionalId) -> bool:
        """Tests WRITE on a transactional id that no producer may have used."""
        sink, slot = OperatorName("none"), SlotIndex(0)
        nothing = Committable(sink, slot, Attempt(0), CheckpointId(0), transactional_id, 0, 0, (), 0, 0)
        return self._ask(end_request(nothing, commit=False)).error_code not in NOT_AUTHORIZED

    # -- inside ----------------------------------------------------------------------------------------------------

    def _settings(self, topic: str, names: Sequence[str]) -> dict[str, str]:
        result = self._ask(topic_settings_request(topic, names)).results[0]
        return {} if result.error_code else {config.name: config.value or "" for config in result.configs}

    def _ask(self, request: Any) -> Any:
        from kafka.errors import KafkaError, NodeNotReadyError

        (answer,) = self._channel.send([(request, None)], ANSWER_S)
        asked = time.monotonic()
        while isinstance(answer, NodeNotReadyError) and time.monotonic() < asked + ANSWER_S:
            time.sleep(PAUSE_S)  # the client itself waits when a quota of this user is exhausted
            (answer,) = self._channel.send([(request, None)], ANSWER_S)
        if isinstance(answer, KafkaError):
            raise answer
        return answer


def derive_clock(answer: Mapping[str, Any], before_ms: int, after_ms: int) -> ClockReading | None:
    """Derives the clock reading from the metadata quorum, whose leader reports the current time as its own
    last-caught-up time. Pure.
    """
    for topic in answer["topics"]:
        for part in topic["partitions"]:
            for voter in part["current_voters"]:
                stamp = voter.get("last_caught_up_timestamp", -1)
                if voter["replica_id"] == part["leader_id"] and stamp > 0:
                    return ClockReading(stamp - (before_ms + after_ms) // 2, (after_ms - before_ms + 1) // 2)
    return None
