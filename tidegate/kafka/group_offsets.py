"""Reads and writes the offsets of a consumer group without members, to which positions are mirrored with a metadata
text.

librdkafka's admin client is not used: abandoning it while a broker hangs aborts the process (2.16.0, assertion in
`rd_kafka_enq_once_del_source_return`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from tidegate.clock import Clock
from tidegate.ids import TopicPartition
from tidegate.kafka.connection import BrokerConnection
from tidegate.kafka.errors import KafkaRefused
from tidegate.kafka.requests import group_fetch_request, group_offsets_request

WRITTEN_AT_ONCE: Final = 500
"""Partitions per request. A coordinator writes each request as one batch, and its topic accepts 1 MiB by default."""
_HAS_MEMBERS: Final = 25
"""UNKNOWN_MEMBER_ID: only members of the group may write its offsets."""


def read_texts(broker: BrokerConnection, group: str, timeout_s: float) -> dict[TopicPartition, str]:
    """Returns the metadata text of each committed offset. Raises the same errors as BrokerConnection."""
    answer = broker.ask_coordinator(
        group, lambda: group_fetch_request(group), lambda a: a.error_code, timeout_s, group=True
    )
    broker.refuse(answer.error_code, f"reading the consumer group {group}")
    return {
        TopicPartition(topic.name, part.partition_index): part.metadata or ""
        for topic in answer.topics
        for part in topic.partitions
        if part.committed_offset >= 0
    }


def write_offsets(
    broker: BrokerConnection,
    group: str,
    offsets: Mapping[TopicPartition, int],
    text: str,
    timeout_s: float,
    clock: Clock,
) -> None:
    """Writes the offsets, each with `text` as its metadata. After an error some may be written.

    Raises the same errors as BrokerConnection.
    """
    deadline = clock.monotonic() + timeout_s
    wanted = sorted(offsets.items())
    for start in range(0, len(wanted), WRITTEN_AT_ONCE):
        some = dict(wanted[start : start + WRITTEN_AT_ONCE])
        request = partial(group_offsets_request, group, some, text)
        answer = broker.ask_coordinator(group, request, _first_error, deadline - clock.monotonic(), group=True)
        code = _first_error(answer)
        if code == _HAS_MEMBERS:
            raise KafkaRefused(
                f"no positions can be mirrored, because the consumer group {group} has members: somebody else reads "
                "with the pipeline's name as `group.id`; give them another name"
            )
        broker.refuse(code, f"mirroring positions to the consumer group {group}")


def _first_error(answer: Any) -> int:
    return next((part.error_code for topic in answer.topics for part in topic.partitions if part.error_code), 0)
