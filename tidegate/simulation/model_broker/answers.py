"""A node of the model broker. It answers kafka-python's request objects with its response objects and Kafka's error
codes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar
from uuid import UUID

from kafka.admin import ConfigResourceType
from kafka.protocol.admin import configs, transactions
from kafka.protocol.consumer import fetch, group, offsets
from kafka.protocol.metadata import find_coordinator, metadata
from kafka.protocol.producer import transaction

from tidegate.ids import TopicPartition, TransactionalId
from tidegate.kafka.batches import BatchHeader
from tidegate.kafka.facts import TRANSACTION_LOG
from tidegate.simulation.model_broker.broker import ANY_EPOCH, ModelBroker
from tidegate.simulation.model_broker.codes import Code, RequestRefused
from tidegate.simulation.model_broker.placement import NOBODY, NODES

T = TypeVar("T")

END_VERSION_MAX: Final = 4
"""Later versions raise the epoch, which is not modelled. They must not be sent."""
PORT: Final = 9092
EARLIEST_TIMESTAMP: Final = -2
LATEST_TIMESTAMP: Final = -1
_PRODUCER_STATES: Final = 4096
_BATCH_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_BEHIND_LENGTH: Final = _BATCH_HEADER.size - 12
_BATCH_MAGIC: Final = 2
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_CONTROL_RECORD: Final = struct.Struct(">BBBBBhhBhiB")


def name_of(request: Any) -> str:
    """Returns the name of the request's fault point."""
    return _HANDLERS[type(request).__name__][0]


def version_of(request: Any) -> int:
    """Returns the version that client and broker agree on: the newest that the request allows."""
    limit, newest = request._max_version, type(request).max_version  # noqa: SLF001 - the library itself reads this attribute
    return int(newest if limit is None else min(limit, newest))


def answer(broker: ModelBroker, now_ms: int, node: int, request: Any) -> Any:
    """Returns the node's answer. Raises KeyError for an unknown request."""
    _, handle = _HANDLERS[type(request).__name__]
    return handle(_Node(broker, now_ms, node, version_of(request)), request)


def answer_bytes(broker: ModelBroker, now_ms: int, node: int, request: Any) -> Any:
    """Returns the answer after encoding and decoding request and response.

    Fields that the version does not have are lost.
    """
    version = version_of(request)
    asked = type(request).decode(request.encode(version=version), version=version)
    asked._max_version = version  # noqa: SLF001 - as above
    given = answer(broker, now_ms, node, asked)
    return type(given).decode(given.encode(version=version), version=version)


class _Node:
    """One node at one moment."""

    def __init__(self, broker: ModelBroker, now_ms: int, node: int, version: int) -> None:
        self.broker = broker
        self.now_ms = now_ms
        self.node = node
        self.version = version

    def coordinate(self, key: str, call: Callable[[], T]) -> tuple[Code, T | None]:
        """Calls a coordinator's method, unless this node is not the coordinator of the key."""
        return _coded(call, lambda: self.broker.check_coordinator(self.now_ms, key, self.node))

    def lead(self, partition: TopicPartition, call: Callable[[], T], epoch: int = ANY_EPOCH) -> tuple[Code, T | None]:
        """Calls a leader's method, unless this node does not lead the partition, or the client knows another epoch."""
        return _coded(call, lambda: self.broker.check_leader(self.now_ms, partition, self.node, epoch))


def _coded(call: Callable[[], T], check: Callable[[], None] = lambda: None) -> tuple[Code, T | None]:
    try:
        check()
        return Code.NONE, call()
    except RequestRefused as refused:
        return refused.code, None


# -- the cluster -------------------------------------------------------------------------------------------------------


_BROKERS: Final = [
    metadata.MetadataResponse.MetadataResponseBroker(node_id=node, host="model", port=PORT + node) for node in NODES
]


def _metadata(at: _Node, asked: Any) -> Any:
    kind = metadata.MetadataResponse
    names = at.broker.topic_names() if asked.topics is None else [topic.name for topic in asked.topics]
    return kind(
        brokers=_BROKERS,
        cluster_id=at.broker.cluster_id,
        controller_id=NODES[0],
        topics=[_topic(at, name) for name in names],
    )


def _log(at: _Node) -> Any:
    kind = metadata.MetadataResponse.MetadataResponseTopic
    return kind(
        error_code=Code.NONE,
        name=TRANSACTION_LOG,
        partitions=[
            kind.MetadataResponsePartition(
                error_code=Code.NONE, partition_index=index, leader_id=node, leader_epoch=epoch
            )
            for index, (node, epoch) in enumerate(at.broker.placement.told_logs(at.now_ms))
        ],
    )


def _topic(at: _Node, name: str) -> Any:
    kind = metadata.MetadataResponse.MetadataResponseTopic
    if name == TRANSACTION_LOG:
        return _log(at)
    facts = at.broker.topics([name]).get(name)
    if facts is None:
        return kind(error_code=Code.UNKNOWN_TOPIC_OR_PARTITION, name=name, partitions=[])
    partitions = []
    for index in range(facts.partitions):
        leader = at.broker.placement.told_leader(TopicPartition(name, index), at.now_ms)
        partitions.append(
            kind.MetadataResponsePartition(
                error_code=Code.LEADER_NOT_AVAILABLE if leader == NOBODY else Code.NONE,
                partition_index=index,
                leader_id=leader,
                leader_epoch=at.broker.placement.told_leader_epoch(TopicPartition(name, index), at.now_ms),
            )
        )
    return kind(error_code=Code.NONE, name=name, topic_id=UUID(facts.topic_id), partitions=partitions)


def _find_coordinator(at: _Node, asked: Any) -> Any:
    kind = find_coordinator.FindCoordinatorResponse
    found = []
    for key in asked.coordinator_keys:
        node = at.broker.placement.told_coordinator(key, at.now_ms)
        found.append(kind.Coordinator(key=key, node_id=node, host="model", port=PORT + node, error_code=Code.NONE))
    return kind(coordinators=found)


def _describe_configs(at: _Node, asked: Any) -> Any:
    """Answers with the settings of topics and of the requested node. Settings that are not set are left out."""
    kind = configs.DescribeConfigsResponse

    def read(resource: Any) -> Mapping[str, str]:
        if resource.resource_type != ConfigResourceType.BROKER.value:
            return at.broker.settings(resource.resource_name)
        assert resource.resource_name == str(at.node), "only a broker itself says what it is set to"
        return {"transactional.id.expiration.ms": str(at.broker.id_lifetime_ms)}

    results = []
    for resource in asked.resources:
        code, found = _coded(lambda resource=resource: read(resource))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        results.append(
            kind.DescribeConfigsResult(
                error_code=code,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[
                    kind.DescribeConfigsResult.DescribeConfigsResourceResult(name=name, value=found[name])
                    for name in resource.configuration_keys
                    if found is not None and name in found
                ],
            )
        )
    return kind(results=results)


# -- coordinators ------------------------------------------------------------------------------------------------------


def _describe_transactions(at: _Node, asked: Any) -> Any:
    kind = transactions.DescribeTransactionsResponse
    states = []
    for name in map(TransactionalId, asked.transactional_ids):
        code, found = at.coordinate(name, lambda name=name: at.broker.describe(at.now_ms, name))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        if found is None:
            states.append(kind.TransactionState(error_code=code, transactional_id=name))
            continue
        topics: dict[str, list[int]] = {}
        for part in sorted(found.partitions):
            topics.setdefault(part.topic, []).append(part.partition)
        states.append(
            kind.TransactionState(
                error_code=code,
                transactional_id=name,
                transaction_state=found.state.value,
                transaction_timeout_ms=found.timeout_ms,
                transaction_start_time_ms=found.opened_at_ms,
                producer_id=found.producer.id,
                producer_epoch=found.producer.epoch,
                topics=[
                    kind.TransactionState.TopicData(topic=topic, partitions=parts) for topic, parts in topics.items()
                ],
            )
        )
    return kind(transaction_states=states)


def _end_transaction(at: _Node, asked: Any) -> Any:
    if at.version > END_VERSION_MAX:
        raise ValueError(f"EndTxn of version {at.version} raises the epoch: {END_VERSION_MAX} at most may be sent")
    owner = (TransactionalId(asked.transactional_id), asked.producer_id, asked.producer_epoch)
    code, _ = at.coordinate(owner[0], lambda: at.broker.end_transaction(at.now_ms, *owner, asked.committed))
    if at.version < 2 and code is Code.PRODUCER_FENCED:  # only newer versions know this code
        code = Code.INVALID_PRODUCER_EPOCH
    return transaction.EndTxnResponse(error_code=code)


def _init_producer(at: _Node, asked: Any) -> Any:
    name = TransactionalId(asked.transactional_id)
    code, owner = at.coordinate(name, lambda: at.broker.init_producer(at.now_ms, name, asked.transaction_timeout_ms))
    producer_id, epoch = (-1, -1) if owner is None else owner
    return transaction.InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch)


def _list_transactions(at: _Node, _asked: Any) -> Any:
    kind = transactions.ListTransactionsResponse
    code, found = _coded(lambda: at.broker.list_transactions(at.now_ms, at.node))
    if code is Code.NOT_COORDINATOR:
        code = Code.COORDINATOR_LOAD_IN_PROGRESS  # the request names no id that another node could coordinate
    states = [
        kind.TransactionState(
            transactional_id=one.transactional_id, producer_id=one.producer_id, transaction_state=one.state.value
        )
        for one in found or ()
    ]
    return kind(error_code=code, transaction_states=states)


def _commit_offsets(at: _Node, asked: Any) -> Any:
    kind = group.OffsetCommitResponse
    wanted = {
        TopicPartition(topic.name, part.partition_index): (part.committed_offset, part.committed_metadata)
        for topic in asked.topics
        for part in topic.partitions
    }
    code, _ = at.coordinate(asked.group_id, lambda: at.broker.mirror_offsets(asked.group_id, wanted))
    return kind(
        topics=[
            kind.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    kind.OffsetCommitResponseTopic.OffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=code
                    )
                    for part in topic.partitions
                ],
            )
            for topic in asked.topics
        ]
    )


def _fetch_offsets(at: _Node, asked: Any) -> Any:
    """Answers with all offsets of a group."""
    assert asked.topics is None
    kind = group.OffsetFetchResponse
    code, found = at.coordinate(asked.group_id, lambda: at.broker.group_offsets(asked.group_id))
    topics: dict[str, list[Any]] = {}
    for part, (offset, text) in sorted((found or {}).items()):
        topics.setdefault(part.topic, []).append(
            kind.OffsetFetchResponseTopic.OffsetFetchResponsePartition(
                partition_index=part.partition, committed_offset=offset, metadata=text, error_code=Code.NONE
            )
        )
    return kind(
        error_code=code,
        topics=[kind.OffsetFetchResponseTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )


# -- leaders -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=_PRODUCER_STATES)
def _producer_state(
    producer_id: int, epoch: int, last_sequence: int, coordinator_epoch: int, open_since: int | None
) -> Any:
    """Cached, because answers repeat the producers of all previous attempts, whose states no longer change."""
    return transactions.DescribeProducersResponse.TopicResponse.PartitionResponse.ProducerState(
        producer_id=producer_id,
        producer_epoch=epoch,
        last_sequence=last_sequence,
        last_timestamp=-1,
        coordinator_epoch=coordinator_epoch,
        current_txn_start_offset=-1 if open_since is None else open_since,
    )


def _describe_producers(at: _Node, asked: Any) -> Any:
    kind = transactions.DescribeProducersResponse

    def answer_for(partition: TopicPartition) -> Any:
        code, found = at.lead(partition, lambda: at.broker.producers(at.now_ms, partition))
        return kind.TopicResponse.PartitionResponse(
            partition_index=partition.partition,
            error_code=code,
            active_producers=[
                _producer_state(
                    producer_id, entry.epoch, entry.last_sequence, entry.coordinator_epoch, entry.open_since
                )
                for producer_id, entry in (found or {}).items()
            ],
        )

    return kind(
        topics=[
            kind.TopicResponse(
                name=topic.name,
                partitions=[answer_for(TopicPartition(topic.name, index)) for index in topic.partition_indexes],
            )
            for topic in asked.topics
        ]
    )


def _list_offsets(at: _Node, asked: Any) -> Any:
    kind = offsets.ListOffsetsResponse.ListOffsetsTopicResponse
    committed = bool(asked.isolation_level)

    def offset(partition: TopicPartition, moment: int) -> int:
        if moment >= 0:
            return at.broker.offset_at(at.now_ms, partition, moment, committed=committed)
        bounds = at.broker.offsets(at.now_ms, partition)
        if moment == EARLIEST_TIMESTAMP:
            return bounds.start
        return bounds.stable if committed else bounds.end

    def answer_for(partition: TopicPartition, part: Any) -> Any:
        code, found = at.lead(partition, lambda: offset(partition, part.timestamp), part.current_leader_epoch)
        return kind.ListOffsetsPartitionResponse(
            partition_index=partition.partition, error_code=code, offset=-1 if found is None else found
        )

    return offsets.ListOffsetsResponse(
        topics=[
            kind(
                name=topic.name,
                partitions=[
                    answer_for(TopicPartition(topic.name, part.partition_index), part) for part in topic.partitions
                ],
            )
            for topic in asked.topics
        ]
    )


def _fetch(at: _Node, asked: Any) -> Any:
    """Answers with batch headers, at least one."""
    kind = fetch.FetchResponse.FetchableTopicResponse

    def answer_for(partition: TopicPartition, wanted: Any) -> Any:
        code, found = at.lead(partition, lambda: at.broker.headers(at.now_ms, partition, wanted.fetch_offset))
        records = b""
        for header in found or ():
            if records and len(records) >= wanted.partition_max_bytes:
                break
            records += _encode_batch(header)
        end = at.broker.end_offset(partition) if code is Code.NONE else -1
        return kind.PartitionData(
            partition_index=partition.partition, error_code=code, high_watermark=end, records=records
        )

    return fetch.FetchResponse(
        responses=[
            kind(
                topic=topic.topic,
                partitions=[answer_for(TopicPartition(topic.topic, part.partition), part) for part in topic.partitions],
            )
            for topic in asked.topics
        ]
    )


def _write_markers(at: _Node, asked: Any) -> Any:
    kind = transaction.WriteTxnMarkersResponse.WritableTxnMarkerResult
    topic_kind = kind.WritableTxnMarkerTopicResult

    def answer_for(marker: Any, partition: TopicPartition) -> Any:
        code, _ = at.lead(
            partition,
            lambda: at.broker.write_marker(
                at.now_ms,
                partition,
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                marker.coordinator_epoch,
            ),
        )
        return topic_kind.WritableTxnMarkerPartitionResult(partition_index=partition.partition, error_code=code)

    return transaction.WriteTxnMarkersResponse(
        markers=[
            kind(
                producer_id=marker.producer_id,
                topics=[
                    topic_kind(
                        name=topic.name,
                        partitions=[
                            answer_for(marker, TopicPartition(topic.name, index)) for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in asked.markers
        ]
    )


@lru_cache(maxsize=4096)
def _encode_batch(header: BatchHeader) -> bytes:
    """Encodes a record batch in message format 2 as far as `kafka.batches` reads it: headers and control records.

    Records of data batches are left out, because code that needs them uses a consumer.
    """
    record = b"" if header.commits is None else _control_record(header.commits)
    attributes = _TRANSACTIONAL * header.transactional | _CONTROL * (header.commits is not None)
    return (
        _BATCH_HEADER.pack(
            header.base_offset, _BEHIND_LENGTH + len(record), 0, _BATCH_MAGIC, 0, attributes,
            header.last_offset - header.base_offset, 0, 0, header.producer.id, header.producer.epoch,
            header.base_sequence, header.records,
        )
        + record
    )  # fmt: skip


def _control_record(commits: bool) -> bytes:
    """Encodes length, attributes, two deltas, a 4-byte key (version, type), a 6-byte value, no headers; numbers in
    zigzag.
    """
    return _CONTROL_RECORD.pack(2 * 16, 0, 0, 0, 2 * 4, 0, int(commits), 2 * 6, 0, 0, 0)


_HANDLERS: Final[dict[str, tuple[str, Callable[[_Node, Any], Any]]]] = {
    "MetadataRequest": ("topics", _metadata),
    "FindCoordinatorRequest": ("coordinator", _find_coordinator),
    "DescribeConfigsRequest": ("settings", _describe_configs),
    "DescribeTransactionsRequest": ("describe", _describe_transactions),
    "EndTxnRequest": ("end", _end_transaction),
    "InitProducerIdRequest": ("fence", _init_producer),
    "ListTransactionsRequest": ("list", _list_transactions),
    "OffsetCommitRequest": ("mirror", _commit_offsets),
    "OffsetFetchRequest": ("group", _fetch_offsets),
    "DescribeProducersRequest": ("producers", _describe_producers),
    "ListOffsetsRequest": ("ends", _list_offsets),
    "FetchRequest": ("headers", _fetch),
    "WriteTxnMarkersRequest": ("marker", _write_markers),
}
"""Request -> the name of its fault point, and its handler."""
