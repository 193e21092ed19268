"""The model's metadata in the form that librdkafka clients receive."""

from __future__ import annotations

from typing import Any, Final

import confluent_kafka as ck
from confluent_kafka import admin

from tidegate.ids import TopicPartition
from tidegate.simulation.model_broker.broker import ModelBroker
from tidegate.simulation.model_broker.placement import NODES
from tidegate.simulation.port import BrokerPort, LinkLost, LinkSilent

PAUSE_S: Final = 0.1

_ADMIN: Any = admin  # the used classes are not in its __all__

# ruff: noqa: SLF001 - the client's own error codes begin with an underscore, but are public


def read_metadata(broker: ModelBroker, port: BrokerPort, topic: str | None, timeout_s: float) -> Any:
    """Returns the library's ClusterMetadata, as `Producer.list_topics` does.

    Raises KafkaException if no broker answers in time.
    """
    deadline_s = port.clock.monotonic() + timeout_s
    while True:
        left_s = deadline_s - port.clock.monotonic()
        try:
            return port.call("metadata", lambda: _derive(broker, topic, port.clock.now_ms()), left_s)
        except LinkSilent:
            raise _failed(ck.KafkaError._TIMED_OUT) from None
        except LinkLost:
            if deadline_s - port.clock.monotonic() <= PAUSE_S:
                raise _failed(ck.KafkaError._TRANSPORT) from None
            port.clock.sleep(PAUSE_S)


def _derive(broker: ModelBroker, topic: str | None, now_ms: int) -> Any:
    """Builds the metadata at the broker; without a topic only the nodes."""
    found = _ADMIN.ClusterMetadata()
    found.cluster_id = broker.cluster_id
    for node in NODES:
        found.brokers[node] = _ADMIN.BrokerMetadata()
        found.brokers[node].id = node
    if topic is not None:
        found.topics[topic] = _topic(broker, topic, now_ms)
    return found


def _topic(broker: ModelBroker, name: str, now_ms: int) -> Any:
    topic = _ADMIN.TopicMetadata()
    topic.topic = name
    facts = broker.topics([name]).get(name)
    if facts is None:
        topic.error = ck.KafkaError(ck.KafkaError.UNKNOWN_TOPIC_OR_PART)
        return topic
    for number in range(facts.partitions):
        topic.partitions[number] = _ADMIN.PartitionMetadata()
        topic.partitions[number].id = number
        topic.partitions[number].leader = broker.placement.told_leader(TopicPartition(name, number), now_ms)
    return topic


def _failed(code: int) -> ck.KafkaException:
    return ck.KafkaException(ck.KafkaError(code, f"Failed to get metadata: {ck.KafkaError(code).str()}"))
