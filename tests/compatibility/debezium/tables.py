"""What stands in a compacted topic by now, as a read-committed reader sees it."""

from __future__ import annotations

import uuid
from typing import Final

import confluent_kafka as ck

POLL_S: Final = 0.5
MANY: Final = 5000


class TopicTable:
    """The newest value of each key; a tombstone removes it. Of all partitions of one topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": f"table-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        self._consumer = ck.Consumer(settings)
        known = self._consumer.list_topics(topic, timeout=30).topics[topic].partitions
        assert known, f"there is no topic {topic}"
        self._consumer.assign([ck.TopicPartition(topic, one, 0) for one in known])
        self.rows: dict[bytes | None, bytes] = {}
        self.records = 0
        self.tombstones = 0

    def read(self) -> dict[bytes | None, bytes]:
        """All that has come since the last time; the table as it is then."""
        while found := self._consumer.consume(MANY, POLL_S):
            for one in found:
                assert one.error() is None, one.error()
                self.records += 1
                if (value := one.value()) is None:
                    self.tombstones += 1
                    self.rows.pop(one.key(), None)
                else:
                    self.rows[one.key()] = value
        return self.rows

    def close(self) -> None:
        """End the consumer."""
        self._consumer.close()
