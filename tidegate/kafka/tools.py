"""The Kafka tools of sinks and the daemon: clients, producers, threads and the clock.

The simulation substitutes its own. librdkafka is imported only when it is first needed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.kafka.channel import PAUSE_S, STEP_S, RequestChannel, open_client_channel
from tidegate.kafka.diagnosis import Obstacle, diagnose, find_obstacle
from tidegate.kafka.errors import BrokerUnavailable, LoginRefused, LoginRefusedLater, PropertyRefused
from tidegate.kafka.tls import RENEWAL_S
from tidegate.kafka.transactions import TransactionClient
from tidegate.threads import Threads

if TYPE_CHECKING:
    import confluent_kafka as ck

    from tidegate.kafka.facts import TopicLimits
    from tidegate.kafka.writer import TransactionWriter

_CLIENT_LOG: Final = logging.getLogger("tidegate.sinks.librdkafka")


class KafkaProducer(Protocol):
    """The part of confluent_kafka.Producer that is used."""

    def __len__(self) -> int:
        """Returns the number of undelivered records plus events that have not been polled."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Returns the metadata of one topic, or of all."""

    def init_transactions(self, timeout: float = -1) -> None:
        """Obtains a new epoch of the transactional id."""

    def begin_transaction(self) -> None:
        """Begins a transaction locally."""

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        *,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Queues one record."""

    def produce_batch(self, topic: str, messages: list[dict[str, Any]]) -> int:
        """Queues several records and returns how many were accepted. The others have their error in `_error`."""

    def poll(self, timeout: float = -1) -> int:
        """Serves events."""

    def flush(self, timeout: float = -1) -> int:
        """Serves events until the queue is empty, and returns how many records remain in it."""

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Discards queued records."""


class KafkaConsumer(Protocol):
    """The part of confluent_kafka.Consumer that is used."""

    def assign(self, partitions: list[ck.TopicPartition]) -> None:
        """Reads exactly these partitions from their offsets."""

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
        """Returns up to `num_messages` messages that arrive before the timeout."""

    def close(self) -> None:
        """Closes the consumer."""


class KafkaTools(Threads):
    """The Kafka tools that connect to real brokers."""

    clock: Clock = SYSTEM_CLOCK

    def connect(self, kafka: Mapping[str, str], timeout_s: float) -> TransactionClient:
        """Returns a client for queries about transactions. Raises BrokerUnavailable, LoginRefused, KafkaRefused."""
        return TransactionClient(kafka, timeout_s, self.channel, self.clock)

    def channel(self, kafka: Mapping[str, str], timeout_s: float) -> RequestChannel:
        """Opens a channel for kafka-python request objects. Raises the same errors as `connect`."""
        return open_client_channel(kafka, timeout_s)

    def connect_again(self, kafka: Mapping[str, str], timeout_s: float) -> TransactionClient:
        """Connects from a slot. The daemon's login succeeded, so a refusal may be temporary.

        Waits while TLS files are being replaced. Raises BrokerUnavailable, LoginRefusedLater, KafkaRefused.
        """
        patient_until = self.clock.monotonic() + RENEWAL_S
        while True:
            try:
                return self.connect(kafka, timeout_s)
            except LoginRefused as refused:
                raise LoginRefusedLater(refused.message, **refused.fields) from refused
            except PropertyRefused:
                if self.clock.monotonic() >= patient_until:
                    raise
            self.clock.sleep(PAUSE_S)

    def explain(self, kafka: Mapping[str, str], silence: BrokerUnavailable) -> None:
        """Diagnoses a failed connection. Raises BrokerUnavailable with the obstacle, if there is one, and `text` as a
        field.
        """
        obstacle = diagnose(kafka, STEP_S)
        if obstacle is not None:
            message = f"{obstacle.text}; {obstacle.remedy}"
            raise BrokerUnavailable(message, text=obstacle.text) from silence

    def find_obstacle(self, kafka: Mapping[str, str]) -> Obstacle | None:
        """Diagnoses the way to the brokers step by step; waits at most STEP_S for each step."""
        return find_obstacle(kafka, STEP_S)

    def writer(self, sink: str, topics: Mapping[str, TopicLimits], properties: Mapping[str, str]) -> TransactionWriter:
        """Returns a writer for one transaction. Raises KafkaRefused."""
        from tidegate.kafka.writer import TransactionWriter

        return TransactionWriter(sink, topics, properties, self)

    def producer(self, config: Mapping[str, Any]) -> KafkaProducer:
        """Returns a producer. Raises KafkaException, TypeError, ValueError for settings that it does not accept."""
        import confluent_kafka as ck

        return ck.Producer(dict(config), logger=_CLIENT_LOG)

    def consumer(self, config: Mapping[str, Any]) -> KafkaConsumer:
        """Returns a consumer."""
        import confluent_kafka as ck

        return ck.Consumer(dict(config), logger=_CLIENT_LOG)


KAFKA_TOOLS: Final = KafkaTools()
