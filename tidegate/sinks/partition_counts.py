"""Partition counts of a sink's topics, for sinks whose rows name their partitions.

A known count becomes outdated, since partitions can be added to a topic at any time. So it only serves to accept rows;
before a row is rejected, the brokers are asked again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidegate.clock import Clock

if TYPE_CHECKING:
    from tidegate.kafka.transactions import TransactionClient

LOOK_S: Final = 1.0
"""Seconds between two requests about a topic, since bad rows may come in every batch.

New partitions of a topic take longer than this to become known to all brokers and to the source.
"""
LOOKUP_TIMEOUT_S: Final = 10.0


class PartitionCounts:
    """The counts of one sink subtask. The thread that opens producers calls `learn`, the slot loop the rest."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._of_producers: dict[str, int] = {}
        self._of_looks: dict[str, int] = {}  # separate, because another thread writes the other one
        self._checked_at: dict[str, float] = {}

    def learn(self, counts: Mapping[str, int]) -> None:
        """Stores the counts that a new producer has found, for all topics."""
        self._of_producers = dict(counts)

    def __bool__(self) -> bool:
        """Returns whether anything is known."""
        return bool(self._of_producers)

    def __getitem__(self, topic: str) -> int:
        """Returns the highest count seen: a broker may lag, and topics never lose partitions."""
        return max(self._of_producers[topic], self._of_looks.get(topic, 0))

    def look_again(self, topic: str, client: TransactionClient) -> bool:
        """Returns whether the topic has more partitions than were known. Blocks for one request, at most once in
        LOOK_S.

        Raises BrokerUnavailable, KafkaRefused.
        """
        now = self._clock.monotonic()
        if now - self._checked_at.get(topic, -math.inf) < LOOK_S:
            return False
        self._checked_at[topic] = now
        known = self[topic]
        found = client.topics([topic], LOOKUP_TIMEOUT_S).get(topic)
        if found is None or found.partitions <= known:
            return False
        self._of_looks[topic] = found.partitions
        return True
