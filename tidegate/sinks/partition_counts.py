"""How many partitions the topics of a sink have, for sinks whose rows name theirs.

What is known grows old: a topic may be given partitions at any time. So it only admits rows; before a row is refused,
brokers are asked again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidegate.clock import Clock

if TYPE_CHECKING:
    from tidegate.kafka.transactions import TransactionClient

LOOK_S: Final = 1.0
"""Between two questions about a topic: bad rows may come in every batch. A topic's new partitions take longer than that
until all brokers and the source know them."""
LOOKUP_TIMEOUT_S: Final = 10.0


class PartitionCounts:
    """Of one sink subtask. `learn` is called by the thread that opens producers, the rest by the slot loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._of_producers: dict[str, int] = {}
        self._of_looks: dict[str, int] = {}  # apart, because another thread writes it
        self._checked_at: dict[str, float] = {}

    def learn(self, counts: Mapping[str, int]) -> None:
        """What a new producer has found, for all topics."""
        self._of_producers = dict(counts)

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return bool(self._of_producers)

    def __getitem__(self, topic: str) -> int:
        """The most that was seen: a broker may lag, and topics never lose partitions."""
        return max(self._of_producers[topic], self._of_looks.get(topic, 0))

    def look_again(self, topic: str, client: TransactionClient) -> bool:
        """Whether the topic has more than was known. Blocks for one question; asks at most once in LOOK_S.

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
