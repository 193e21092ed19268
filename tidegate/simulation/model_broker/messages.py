"""Records of the model as messages of the real client."""

from __future__ import annotations

import confluent_kafka as ck

from tidegate.ids import TopicPartition
from tidegate.simulation.model_broker.log import Record


def make_message(partition: TopicPartition, offset: int, record: Record) -> ck.Message:
    """Builds the message of one record."""
    return ck.Message(
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        key=record.key,
        value=record.value,
        headers=list(record.headers),
        error=None,
        timestamp=(ck.TIMESTAMP_CREATE_TIME, record.timestamp_ms),
    )
