"""Builds the requests that `transactions.py` sends. Versions are pinned where a newer one has a different meaning."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from tidegate.committable import Committable
from tidegate.ids import TopicPartition, TransactionalId
from tidegate.kafka.facts import OpenBrokerTransaction


def describe_request(transactional_id: TransactionalId) -> Any:
    """Builds DescribeTransactions for one id."""
    from kafka.protocol.admin.transactions import DescribeTransactionsRequest

    return DescribeTransactionsRequest(transactional_ids=[transactional_id])


def end_request(committable: Committable, commit: bool) -> Any:
    """Builds EndTxn, version 4 at most: version 5 raises the epoch, so a retried request is rejected."""
    from kafka.protocol.producer.transaction import EndTxnRequest

    return EndTxnRequest(
        transactional_id=committable.transactional_id,
        producer_id=committable.producer_id,
        producer_epoch=committable.producer_epoch,
        committed=commit,
        max_version=4,
    )


def fence_request(transactional_id: TransactionalId, timeout_ms: int) -> Any:
    """Builds InitProducerId without a producer id, version 4 at most:
    newer versions use another transaction protocol.
    """
    from kafka.protocol.producer.transaction import InitProducerIdRequest

    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
        max_version=4,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        topics[partition.topic].append(partition.partition)
    return topics


def producers_request(partitions: Iterable[TopicPartition]) -> Any:
    """Builds DescribeProducers for partitions of one leader. A follower also answers, with what it has replicated so
    far.
    """
    from kafka.protocol.admin.transactions import DescribeProducersRequest

    topic = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest(
        topics=[topic(name=name, partition_indexes=parts) for name, parts in _by_topic(partitions).items()]
    )


def group_fetch_request(group: str) -> Any:
    """Builds OffsetFetch of all offsets of a group, version 7 at most: version 8 fetches several groups at once."""
    from kafka.protocol.consumer import OffsetFetchRequest

    return OffsetFetchRequest(group_id=group, topics=None, require_stable=False, min_version=2, max_version=7)


def group_offsets_request(group: str, offsets: Mapping[TopicPartition, int], text: str) -> Any:
    """Builds OffsetCommit for a group without members, version 8 at most: 9 needs
    a member epoch, 10 needs topic ids.
    """
    from kafka.protocol.consumer import OffsetCommitRequest

    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    part = topic.OffsetCommitRequestPartition
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[
            topic(
                name=name,
                partitions=[
                    part(
                        partition_index=index,
                        committed_offset=offsets[TopicPartition(name, index)],
                        committed_leader_epoch=-1,
                        committed_metadata=text,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in _by_topic(offsets).items()
        ],
        max_version=8,
    )


def marker_request(opened: OpenBrokerTransaction, epoch: int, commit: bool) -> Any:
    """Builds WriteTxnMarkers for one transaction in one partition, as `kafka-transactions.sh` sends it to abort.

    The marker has transaction version 0, as all of librdkafka's transactions: version 2 would require a higher epoch
    than that of the data.
    """
    from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

    marker = WriteTxnMarkersRequest.WritableTxnMarker
    partition = opened.partition
    topic = marker.WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
    return WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=opened.producer.id,
                producer_epoch=epoch,
                transaction_result=commit,
                topics=[topic],
                coordinator_epoch=max(0, opened.coordinator_epoch),
                transaction_version=0,
            )
        ],
        min_version=1,
        max_version=2,
    )


def topic_settings_request(topic: str, settings: Sequence[str]) -> Any:
    """Builds DescribeConfigs for settings of one topic."""
    from kafka.admin import ConfigResourceType

    return _settings_request(ConfigResourceType.TOPIC.value, topic, settings)


def broker_setting_request(node: int, setting: str) -> Any:
    """Builds DescribeConfigs for one setting of one broker; only that broker answers."""
    from kafka.admin import ConfigResourceType

    return _settings_request(ConfigResourceType.BROKER.value, str(node), [setting])


def _settings_request(kind: int, name: str, settings: Sequence[str]) -> Any:
    from kafka.protocol.admin.configs import DescribeConfigsRequest

    resource = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configuration_keys=list(settings))],
        include_synonyms=False,
        include_documentation=False,
    )


def quorum_request() -> Any:
    """Builds DescribeQuorum of the controllers. kafka-python's own call cannot read the response of brokers before
    Kafka 3.7.
    """
    from kafka.protocol.admin.cluster import DescribeQuorumRequest

    topic = DescribeQuorumRequest.TopicData
    part = topic.PartitionData(partition_index=0)
    return DescribeQuorumRequest(topics=[topic(topic_name="__cluster_metadata", partitions=[part])])


ANY_EPOCH: Final = -1
LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
"""Special values that Kafka accepts instead of a timestamp."""


def offsets_request(
    partitions: Iterable[TopicPartition],
    committed: bool,
    moment: int = LATEST_TIMESTAMP,
    epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> Any:
    """Builds ListOffsets for the latest offset, the first one, or the first record that is not older than `moment`.

    `moment` is in ms since 1970; the offset is -1 if there is no such record. The latest offset is the last stable
    offset if `committed`, otherwise the high watermark. Only the leader answers; if `epochs` names an epoch, only the
    leader of that epoch.
    """
    from kafka.protocol.consumer import ListOffsetsRequest

    topic = ListOffsetsRequest.ListOffsetsTopic
    part = topic.ListOffsetsPartition
    return ListOffsetsRequest(
        isolation_level=int(committed),
        topics=[
            topic(
                name=name,
                partitions=[
                    part(
                        partition_index=index,
                        current_leader_epoch=epochs.get(TopicPartition(name, index), ANY_EPOCH),
                        timestamp=moment,
                    )
                    for index in parts
                ],
            )
            for name, parts in _by_topic(partitions).items()
        ],
        min_version=4,
    )


NO_PARTITION: Final = (1 << 31) - 1
"""No topic has that many partitions. A broker checks the permission for it first and has no data to return."""


def fetch_request(offsets: Mapping[TopicPartition, int], max_bytes: int, partition_bytes: int | None = None) -> Any:
    """Builds a read-uncommitted fetch of partitions from these offsets, version 10 at most, which only the leader
    answers. It does not wait.

    The first partition with data always answers with one whole batch. Others answer with nothing if their first batch
    has more than `partition_bytes` (None: `max_bytes`), or if the answer as a whole has `max_bytes`. Followers also
    answer newer versions, and their high watermark may be 0 (seen with 4.3.1).
    """
    from kafka.protocol.consumer.fetch import FetchRequest

    topic = FetchRequest.FetchTopic
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        forgotten_topics_data=[],
        rack_id="",
        topics=[
            topic(
                topic=name,
                partitions=[
                    topic.FetchPartition(
                        partition=index,
                        current_leader_epoch=-1,
                        fetch_offset=offsets[TopicPartition(name, index)],
                        last_fetched_epoch=-1,
                        log_start_offset=-1,
                        partition_max_bytes=max_bytes if partition_bytes is None else partition_bytes,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in _by_topic(offsets).items()
        ],
        min_version=4,
        max_version=10,
    )


def empty_produce_request(partition: TopicPartition) -> Any:
    """Builds an empty Produce, version 9 at most: version 13 identifies topics by their ids."""
    from kafka.protocol.producer.produce import ProduceRequest

    topic = ProduceRequest.TopicProduceData
    part = topic.PartitionProduceData(index=partition.partition, records=b"")
    return ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=1000,
        topic_data=[topic(name=partition.topic, partition_data=[part])],
        min_version=3,
        max_version=9,
    )
