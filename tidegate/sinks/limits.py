"""A sink subtask's knowledge of its topics: limits of one record, from the settings of topic and producer, and
partition counts.

The thread that opens producers reads the limits once, before the first producer. A topic whose settings change while
records flow rejects records itself, and the next attempt reads its settings again. The numbers were measured to the
byte at a real broker; `tests/sinks/test_limits.py` measures them again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.clock import Clock
from tidegate.formats.record_limits import RecordLimits
from tidegate.kafka.errors import SinkRefused
from tidegate.kafka.facts import TopicLimits
from tidegate.kafka.properties import largest_record
from tidegate.kafka.tools import KafkaTools
from tidegate.kafka.writer import OPEN_TIMEOUT_S
from tidegate.operators.builtin.dead_letters import DeadLetterOperator, find_unfit
from tidegate.operators.builtin.kafka_sink import SinkOperator

if TYPE_CHECKING:
    from tidegate.kafka.transactions import TransactionClient

CLIENT_OVERHEAD_BYTES: Final = 36
"""Bytes that librdkafka adds to key and value before it compares them with `message.max.bytes`."""
ARRIVAL_MS: Final = 10_000
"""Allowance for the time in the client and at the broker: a record must still be young enough on arrival."""
_CODECS: Final = frozenset({"gzip", "snappy", "lz4", "zstd"})


def refuse_keyless(operator: SinkOperator, topic: str, limits: TopicLimits) -> None:
    """Raises SinkRefused if a topic could accept no record at all; skipping all records would not help."""
    if isinstance(operator, DeadLetterOperator):
        _refuse_for_letters(operator, topic, limits)
    elif limits.compacted and operator.key is None:
        raise SinkRefused(
            f"sink {operator.name} writes records without a key, which the compacted topic {topic} does not "
            f"accept; set `key` of the sink, or change the topic's cleanup.policy",
            sink=operator.name,
            topic=topic,
        )


def _refuse_for_letters(operator: DeadLetterOperator, topic: str, limits: TopicLimits) -> None:
    unfit = find_unfit(compacted=limits.compacted, batch_bytes=limits.batch_bytes)
    if unfit is not None:
        raise SinkRefused(f"dead_letters: topic {topic} {'; '.join(unfit)}", sink=operator.name, topic=topic)


def derive_record_limits(topic: str, properties: Mapping[str, str], limits: TopicLimits, now_ms: int) -> RecordLimits:
    """Returns the limits. `properties` are the producer's; `now_ms` is the slot's clock, which should match the
    brokers'.
    """
    codec = properties.get("compression.type", properties.get("compression.codec", "none"))
    compressed = codec in _CODECS and limits.codec in ("producer", codec)
    return RecordLimits(
        topic=topic,
        record_bytes=largest_record(properties) - CLIENT_OVERHEAD_BYTES,
        batch_bytes=limits.batch_bytes,
        codec=codec if compressed else "",
        now_ms=now_ms,
        earliest_ms=None if limits.before_ms is None else now_ms - limits.before_ms + ARRIVAL_MS,
        latest_ms=None if limits.after_ms is None else now_ms + limits.after_ms,
        needs_key=limits.compacted,
    )


CHECK_S: Final = 1.0
"""Seconds between two requests about a topic, since bad rows may come in every batch.

New partitions of a topic take longer than this to become known to all brokers and to the source.
"""
LOOKUP_TIMEOUT_S: Final = 10.0


class PartitionCounts:
    """Partition counts of a sink's topics, for sinks whose rows name their partitions.

    A known count becomes outdated, since partitions can be added to a topic at any time. So it only serves to accept
    rows; before a row is rejected, the brokers are asked again. The thread that opens producers calls `learn`, the slot
    loop the rest.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._of_producers: dict[str, int] = {}
        self._of_checks: dict[str, int] = {}  # separate, because another thread writes the other one
        self._checked_at: dict[str, float] = {}

    def learn(self, counts: Mapping[str, int]) -> None:
        """Stores the counts that a new producer has found, for all topics."""
        self._of_producers = dict(counts)

    def __bool__(self) -> bool:
        """Returns whether anything is known."""
        return bool(self._of_producers)

    def __getitem__(self, topic: str) -> int:
        """Returns the highest count seen: a broker may lag, and topics never lose partitions."""
        return max(self._of_producers[topic], self._of_checks.get(topic, 0))

    def look_again(self, topic: str, client: TransactionClient) -> bool:
        """Returns whether the topic has more partitions than were known. Blocks for one request, at most once in
        CHECK_S.

        Raises BrokerUnavailable, KafkaRefused.
        """
        now = self._clock.monotonic()
        if now - self._checked_at.get(topic, -math.inf) < CHECK_S:
            return False
        self._checked_at[topic] = now
        known = self[topic]
        found = client.topics([topic], LOOKUP_TIMEOUT_S).get(topic)
        if found is None or found.partitions <= known:
            return False
        self._of_checks[topic] = found.partitions
        return True


class SinkTopics:
    """The topics of one sink subtask. The thread that opens producers calls `read` and `learn`, the loop the rest."""

    def __init__(self, operator: SinkOperator, properties: Mapping[str, str], tools: KafkaTools) -> None:
        self._operator = operator
        self._properties = properties
        self._tools = tools
        self.limits: dict[str, TopicLimits] = {}
        """Limits of all topics; empty before they are read."""
        self._names_partitions = operator.partition is not None or isinstance(operator, DeadLetterOperator)
        self._partitions = PartitionCounts(tools.clock)
        self._client: TransactionClient | None = None
        """The client for requests about unknown partitions that rows name."""

    @property
    def known(self) -> bool:
        """Whether rows can be checked against the topics."""
        return bool(self.limits) and (not self._names_partitions or bool(self._partitions))

    def record_limits(self, topic: str) -> RecordLimits:
        """Returns the current limits for a record of the topic. Call it only when `known`."""
        limits = derive_record_limits(topic, self._properties, self.limits[topic], self._tools.clock.now_ms())
        if not self._names_partitions:
            return limits
        return msgspec.structs.replace(limits, partitions=self._partitions[topic])

    def has_grown(self, topic: str) -> bool:
        """Asks the brokers whether the topic has partitions that were not known. Blocks for the answer.

        Raises BrokerUnavailable, KafkaRefused.
        """
        return self._client is not None and self._partitions.look_again(topic, self._client)

    def read(self, client: TransactionClient | None) -> None:
        """Reads what is not known yet, over `client` or its own connection.

        Raises SinkRefused for a topic that can accept no record of the sink; BrokerUnavailable, KafkaRefused.
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
        """Stores the partition counts that a new producer has found."""
        self._partitions.learn(partitions)

    def close(self, shared: TransactionClient | None) -> None:
        """Closes the connection, unless it is the shared one, which its owner closes."""
        if self._client is not None and self._client is not shared:
            self._client.close()
