"""The time of the newest record that was read of each partition, once a second: for lag in seconds and latency.

To look at every record would cost as much as some formats take to decode it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

from tidegate.ids import TopicPartition
from tidegate.sources.messages import Records

LOOK_S: Final = 1.0


class NewestRecords:
    """Written by the loop's thread; `found` may be copied by any."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self.found: dict[TopicPartition, tuple[int, int]] = {}
        """Offset and Kafka timestamp, ms since 1970. Not those without a timestamp."""
        self._elapsed = elapsed
        self._due: dict[Hashable, float] = {}

    def look(
        self,
        last: Mapping[Hashable, int],
        origins: Sequence[Hashable],
        messages: Records,
        partitions: Mapping[Hashable, TopicPartition],
    ) -> None:
        """A batch was read: its last offset by key of the partition, the key of each of its messages, and these."""
        now_s = self._elapsed()
        due = [key for key in last if now_s >= self._due.get(key, 0.0)]
        if not due:
            return
        rows = dict(zip(origins, range(len(origins)), strict=True))
        for key in due:
            self._due[key] = now_s + LOOK_S
            at_ms = messages.part(rows[key], rows[key] + 1).timestamps_ms[0]
            if at_ms is not None:
                self.found[partitions[key]] = (last[key], at_ms)
