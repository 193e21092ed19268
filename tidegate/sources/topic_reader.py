"""Reads a topic between offsets, for commands. Reading leaves no trace: no group, no stored positions."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from tidegate.config.properties import derive_client_properties
from tidegate.errors import TidegateError
from tidegate.kafka.diagnosis import diagnose
from tidegate.kafka.errors import BrokerUnavailable, LoginRefused
from tidegate.kafka.properties import derive_servers

if TYPE_CHECKING:  # the library is imported where it runs
    import confluent_kafka as ck

ANSWER_S: Final = 10.0
STEP_S: Final = 2.0
STALL_S: Final = 30.0
"""A read to an end fails after this time without a record or the end of a partition that is not complete."""
BATCH: Final = 500
POLL_S: Final = 0.05
"""Time to wait for records between two checks for Ctrl-C."""
CLIENT_LOG: Final = logging.getLogger("tidegate.daemon.topics.librdkafka")
CLIENT_LOG.setLevel(logging.CRITICAL + 1)  # everything relevant is in the error that ends the command


class TopicReader:
    """Reads one topic. Without `committed`, it also returns records of open and aborted transactions.

    A context manager that closes its client. `refused` is the error for what the cluster or the topic does not allow.
    """

    def __init__(self, kafka: Mapping[str, str], topic: str, *, committed: bool, refused: type[TidegateError]) -> None:
        import confluent_kafka as ck

        own = {
            "group.id": "tidegate-topic-read",  # the client requires one, but nothing is ever stored under it
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "fetch.wait.max.ms": "20",  # the default of 500 is waited for at every end and before every question
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
        self.topic = topic
        self._kafka, self._refused = kafka, refused
        config: dict[str, Any] = {**derive_client_properties(kafka, "consumer"), **own}
        try:
            self._consumer = ck.Consumer(config, logger=CLIENT_LOG)
        except (ck.KafkaException, TypeError, ValueError) as error:
            raise explain(kafka, error, refused) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._consumer.close()

    def bounds(self) -> dict[int, tuple[int, int]]:
        """Returns the first offset of each partition and the end of what can be read now.

        Raises `refused`, BrokerUnavailable, LoginRefused.
        """
        import confluent_kafka as ck

        try:
            found = self._consumer.list_topics(self.topic, timeout=ANSWER_S).topics[self.topic]
            if found.error is not None:
                raise self._refused(f"topic {self.topic} cannot be read: {found.error.str()}", topic=self.topic)
            return {number: self._bounds_of(number) for number in sorted(found.partitions)}
        except ck.KafkaException as error:
            raise explain(self._kafka, error, self._refused) from error

    def _bounds_of(self, number: int) -> tuple[int, int]:
        """Asks again while the partition moves to another leader, as right after its topic was created."""
        import confluent_kafka as ck

        deadline_s = time.monotonic() + ANSWER_S
        while True:
            try:
                return self._consumer.get_watermark_offsets(ck.TopicPartition(self.topic, number), ANSWER_S)
            except ck.KafkaException as error:
                moves = error.args[0].code() in (
                    ck.KafkaError.NOT_LEADER_FOR_PARTITION,
                    ck.KafkaError.LEADER_NOT_AVAILABLE,
                )
                if not moves or time.monotonic() > deadline_s:
                    raise
            time.sleep(POLL_S)

    def read(self, starts: Mapping[int, int], ends: Mapping[int, int] | None) -> Iterator[ck.Message]:
        """Yields records from `starts` up to `ends` (without `ends`, endlessly), in the order of each partition.

        Raises `refused`, BrokerUnavailable, LoginRefused.
        """
        import confluent_kafka as ck

        left = {number for number in starts if ends is None or starts[number] < ends[number]}
        self._consumer.assign([ck.TopicPartition(self.topic, number, starts[number]) for number in sorted(left)])
        heard_s = time.monotonic()
        while left:
            for message in self._consumer.consume(BATCH, POLL_S):
                number: Any = message.partition()
                offset: Any = message.offset()
                failed = message.error() is not None
                if failed:
                    self._check(message)
                elif ends is None or offset < ends[number]:
                    yield message
                if ends is not None and offset is not None and number in left:
                    heard_s = time.monotonic()  # complete partitions may receive new records, and do not count
                    if offset >= ends[number] - (not failed):
                        left.discard(number)
            if ends is not None and left and time.monotonic() - heard_s > STALL_S:
                raise explain(self._kafka, f"no record arrived for {STALL_S:g} s", self._refused)

    def _check(self, event: ck.Message) -> None:
        """Raises `refused` for permanent errors. The client reconnects by itself, and uses no group."""
        import confluent_kafka as ck

        error: Any = event.error()
        if error.code() in (ck.KafkaError.UNKNOWN_TOPIC_OR_PART, ck.KafkaError.TOPIC_AUTHORIZATION_FAILED):
            raise self._refused(f"topic {self.topic} cannot be read: {error.str()}", topic=self.topic)


def explain(
    kafka: Mapping[str, str], error: object, refused: type[TidegateError], start_remedy: str = ""
) -> TidegateError:
    """Returns an error that explains why the cluster did not answer, based on a step-by-step diagnosis.

    It is `refused` if the cluster can be reached. `start_remedy` replaces the remedy for servers that do not accept
    connections. May raise PropertyRefused.
    """
    import confluent_kafka as ck

    obstacle = diagnose(kafka, STEP_S)
    if obstacle is None:
        text = error.args[0].str() if isinstance(error, ck.KafkaException) else str(error)
        return refused(f"the cluster at {derive_servers(kafka)} is reachable, but this request failed: {text}")
    remedy = (obstacle.property == "bootstrap.servers" and start_remedy) or obstacle.remedy
    kind = LoginRefused if obstacle.final else BrokerUnavailable
    return kind(f"no broker is reachable: {obstacle.text}; {remedy}")
