"""The time of the newest record read from each partition, once a second: for lag in seconds and latency.

Examining every record would cost as much as decoding it in some formats.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

from tidegate.ids import TopicPartition
from tidegate.sources.messages import Records

LOOK_S: Final = 1.0


class NewestRecords:
    """The newest records. Written by the loop's thread; any thread may copy `found`."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self.found: dict[TopicPartition, tuple[int, int]] = {}
        """Offset and Kafka timestamp, ms since 1970. Records without a timestamp are omitted."""
        self._elapsed = elapsed
        self._due: dict[Hashable, float] = {}

    def look(
        self,
        last: Mapping[Hashable, int],
        origins: Sequence[Hashable],
        messages: Records,
        partitions: Mapping[Hashable, TopicPartition],
    ) -> None:
        """Takes a batch that was read: its last offset by partition key, the key of each message, and the messages."""
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
