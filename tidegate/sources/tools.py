"""What sources work with: a Kafka client, a thread, the time. The simulation hands in others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import confluent_kafka as ck

from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.kafka.connecting import STEP_S, import_client
from tidegate.kafka.diagnosis import Obstacle, diagnose
from tidegate.kafka.errors import PropertyRefused
from tidegate.sources.fetching import Fetcher, open_fetcher
from tidegate.threads import Threads

_CLIENT_LOG = logging.getLogger("tidegate.sources.librdkafka")
_CLIENT_LOG.setLevel(logging.CRITICAL)  # it repeats every failed connection; the reader reports once


class Consumer(Protocol):
    """What is used of confluent_kafka.Consumer."""

    def assign(self, partitions: list[ck.TopicPartition]) -> None:
        """Read these and nothing else, from their offsets on."""

    def incremental_assign(self, partitions: list[ck.TopicPartition]) -> None:
        """Read these, too."""

    def pause(self, partitions: list[ck.TopicPartition]) -> None:
        """Stop reading these."""

    def resume(self, partitions: list[ck.TopicPartition]) -> None:
        """Read these again."""

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
        """At most as many messages and events: those that came until the time was over."""

    def get_watermark_offsets(
        self, partition: ck.TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """First offset, and the last stable one; `cached`, of the last fetch: the high watermark instead of it."""

    def offsets_for_times(self, partitions: list[ck.TopicPartition], timeout: float = -1) -> list[ck.TopicPartition]:
        """Of partitions whose `offset` is OFFSET_END: their last stable offsets, asked in one request per broker."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Metadata of a topic, or of all."""

    def close(self) -> None:
        """End it."""


class SourceTools(Threads):
    """The real ones."""

    clock: Clock = SYSTEM_CLOCK

    def consumer(self, config: Mapping[str, Any], on_error: Callable[[ck.KafkaError], None]) -> Consumer:
        """A client that reads. Raises KafkaException, TypeError, ValueError for settings that it does not take."""
        return ck.Consumer(dict(config), error_cb=on_error, logger=_CLIENT_LOG)

    def fetcher(self, consumer: Consumer, on_error: Callable[[ck.KafkaError], None]) -> Fetcher:
        """How its records come. `on_error` is the client's."""
        return open_fetcher(consumer, on_error)

    def find_obstacle(self, kafka: Mapping[str, str]) -> Obstacle | None:
        """What is in the way to the brokers, looked at step by step; waits STEP_S at most for each."""
        import_client()
        try:
            return diagnose(kafka, STEP_S)
        except PropertyRefused as refused:  # files that are being replaced
            return Obstacle(refused.message, "put it right", str(refused.fields.get("property", "")), final=False)


SOURCE_TOOLS: Final = SourceTools()
