"""What a sink subtask knows about the topics that it writes: limits of records, and numbers of partitions.

The thread that opens producers reads the limits once, before the first producer: a topic whose settings change while
records flow refuses records itself, and the next attempt reads its settings again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from tidegate.formats.record_limits import RecordLimits
from tidegate.kafka.facts import TopicLimits
from tidegate.kafka.tools import KafkaTools
from tidegate.kafka.writer import OPEN_TIMEOUT_S
from tidegate.operators.builtin.dead_letters import DeadLetterOperator
from tidegate.sinks.limits import derive_record_limits, refuse_keyless
from tidegate.sinks.partition_counts import PartitionCounts

if TYPE_CHECKING:
    from tidegate.kafka.transactions import TransactionClient
    from tidegate.operators.builtin.kafka_sink import SinkOperator


class SinkTopics:
    """Of one sink subtask. `read` and `learn` are called by the thread that opens producers, the rest by the loop."""

    def __init__(self, operator: SinkOperator, properties: Mapping[str, str], tools: KafkaTools) -> None:
        self._operator = operator
        self._properties = properties
        self._tools = tools
        self.limits: dict[str, TopicLimits] = {}
        """Of all topics, or of none before they are read."""
        self._names_partitions = operator.partition is not None or isinstance(operator, DeadLetterOperator)
        self._partitions = PartitionCounts(tools.clock)
        self._client: TransactionClient | None = None
        """Answers questions about partitions that rows name and that are not known."""

    @property
    def known(self) -> bool:
        """Whether rows can be checked against the topics."""
        return bool(self.limits) and (not self._names_partitions or bool(self._partitions))

    def record_limits(self, topic: str) -> RecordLimits:
        """What a record may be like that is written to the topic now. Only when `known`."""
        limits = derive_record_limits(topic, self._properties, self.limits[topic], self._tools.clock.now_ms())
        if not self._names_partitions:
            return limits
        return msgspec.structs.replace(limits, partitions=self._partitions[topic])

    def has_grown(self, topic: str) -> bool:
        """Ask the brokers whether the topic has partitions that were not known. Blocks for the answer.

        Raises BrokerUnavailable, KafkaRefused.
        """
        return self._client is not None and self._partitions.look_again(topic, self._client)

    def read(self, client: TransactionClient | None) -> None:
        """Read what is not known, over `client` or a connection of its own.

        Raises SinkRefused for a topic that can take no record of the sink; BrokerUnavailable, KafkaRefused.
        """
        if not self.limits:
            limits = self._read_limits(client)
            for topic, one in limits.items():
                refuse_keyless(self._operator, topic, one)
            self.limits = limits
        if self._client is None and self._operator.partition is not None:
            self._client = client or self._tools.connect_again(self._operator.kafka, OPEN_TIMEOUT_S)

    def _read_limits(self, client: TransactionClient | None) -> dict[str, TopicLimits]:
        asked = client or self._tools.connect_again(self._operator.kafka, OPEN_TIMEOUT_S)
        try:
            return {topic: asked.topic_limits(topic, OPEN_TIMEOUT_S) for topic in self._operator.topics}
        finally:
            if asked is not client:
                asked.close()

    def learn(self, partitions: Mapping[str, int]) -> None:
        """Take over the numbers of partitions that a new producer has found."""
        self._partitions.learn(partitions)

    def close(self, shared: TransactionClient | None) -> None:
        """Close the connection, unless it is the shared one, which its owner closes."""
        if self._client is not None and self._client is not shared:
            self._client.close()
