"""What sinks and the daemon work with when they talk to Kafka: clients, producers, threads, the time.

The simulation hands in others. librdkafka is imported when it is first needed, not before.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.kafka.channel import RequestChannel, open_client_channel
from tidegate.kafka.connecting import PAUSE_S, STEP_S
from tidegate.kafka.diagnosis import diagnose
from tidegate.kafka.errors import BrokerUnavailable, LoginRefused, PropertyRefused
from tidegate.kafka.tls import RENEWAL_S
from tidegate.kafka.transactions import TransactionClient
from tidegate.threads import Threads

if TYPE_CHECKING:
    import confluent_kafka as ck

    from tidegate.kafka.facts import TopicLimits
    from tidegate.kafka.writer import TransactionWriter

_CLIENT_LOG: Final = logging.getLogger("tidegate.sinks.librdkafka")


class KafkaProducer(Protocol):
    """What is used of confluent_kafka.Producer."""

    def __len__(self) -> int:
        """Records that are not delivered, and events that nobody has polled."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Metadata of a topic, or of all."""

    def init_transactions(self, timeout: float = -1) -> None:
        """Get a new epoch of the transactional id."""

    def begin_transaction(self) -> None:
        """Locally."""

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
        """Queue one record."""

    def produce_batch(self, topic: str, messages: list[dict[str, Any]]) -> int:
        """Queue several; how many were taken. The others get their error as `_error`."""

    def poll(self, timeout: float = -1) -> int:
        """Serve events."""

    def flush(self, timeout: float = -1) -> int:
        """Serve events until nothing is queued; what is."""

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Give up what is queued."""


class KafkaConsumer(Protocol):
    """What is used of confluent_kafka.Consumer."""

    def assign(self, partitions: list[ck.TopicPartition]) -> None:
        """Read these and nothing else, from their offsets on."""

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
        """At most as many messages: those that came until the time was over."""

    def close(self) -> None:
        """End it."""


class KafkaTools(Threads):
    """The real ones."""

    clock: Clock = SYSTEM_CLOCK

    def connect(self, kafka: Mapping[str, str], timeout_s: float) -> TransactionClient:
        """A client for questions about transactions. Raises BrokerUnavailable, LoginRefused, KafkaRefused."""
        return TransactionClient(kafka, timeout_s, self.channel, self.clock)

    def channel(self, kafka: Mapping[str, str], timeout_s: float) -> RequestChannel:
        """For request objects of kafka-python. Raises as `connect`."""
        return open_client_channel(kafka, timeout_s)

    def connect_again(self, kafka: Mapping[str, str], timeout_s: float) -> TransactionClient:
        """For slots: the daemon was let in, so a refusal may pass, and another attempt is tried. Files that are being
        replaced are waited for.

        Raises BrokerUnavailable, KafkaRefused.
        """
        patient_until = self.clock.monotonic() + RENEWAL_S
        while True:
            try:
                return self.connect(kafka, timeout_s)
            except LoginRefused as refused:
                raise BrokerUnavailable(refused.message, **refused.fields) from refused
            except PropertyRefused:
                if self.clock.monotonic() >= patient_until:
                    raise
            self.clock.sleep(PAUSE_S)

    def explain(self, kafka: Mapping[str, str], silence: BrokerUnavailable) -> None:
        """Look what is in the way, if anything. Raises BrokerUnavailable, which names it, with `text` as a field."""
        obstacle = diagnose(kafka, STEP_S)
        if obstacle is not None:
            message = f"{obstacle.text}; {obstacle.remedy}"
            raise BrokerUnavailable(message, text=obstacle.text) from silence

    def writer(self, sink: str, topics: Mapping[str, TopicLimits], properties: Mapping[str, str]) -> TransactionWriter:
        """For one transaction. Raises KafkaRefused."""
        from tidegate.kafka.writer import TransactionWriter

        return TransactionWriter(sink, topics, properties, self)

    def producer(self, config: Mapping[str, Any]) -> KafkaProducer:
        """A client that writes. Raises KafkaException, TypeError, ValueError for settings that it does not take."""
        import confluent_kafka as ck

        return ck.Producer(dict(config), logger=_CLIENT_LOG)

    def consumer(self, config: Mapping[str, Any]) -> KafkaConsumer:
        """A reader of what was written."""
        import confluent_kafka as ck

        return ck.Consumer(dict(config), logger=_CLIENT_LOG)


KAFKA_TOOLS: Final = KafkaTools()
