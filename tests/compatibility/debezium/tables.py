"""What stands in a compacted topic by now, as a read-committed reader sees it."""

from __future__ import annotations

import uuid
from typing import Final

import confluent_kafka as ck

from tests.support import clients

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
        self.name = topic
        self._consumer = clients.consumer(settings)
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


def read_records(bootstrap: str, topic: str) -> list[tuple[str | None, str | None]]:
    """Keys and values of all that is committed in a topic of one partition, as texts; a tombstone has no value."""
    return [(_text(key), _text(value)) for key, value in read_bytes(bootstrap, topic)]


def read_bytes(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """As `read_records`."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": f"records-{uuid.uuid4().hex}",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = clients.consumer(settings)
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    found: list[tuple[bytes | None, bytes | None]] = []
    try:
        while True:
            for one in consumer.consume(MANY, POLL_S):
                error = one.error()
                if error is None:
                    found.append((one.key(), one.value()))
                elif error.code() == ck.KafkaError._PARTITION_EOF:
                    return found
                else:
                    raise ck.KafkaException(error)
    finally:
        consumer.close()


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
