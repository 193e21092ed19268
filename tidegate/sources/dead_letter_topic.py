"""Reads the dead-letter topic from beginning to end without storing offsets."""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from tidegate.config.clusters import properties_of
from tidegate.config.fields.secrets import reveal
from tidegate.config.models import PipelineSettings
from tidegate.config.properties import derive_client_properties
from tidegate.errors import TidegateError
from tidegate.formats.contract import Headers
from tidegate.formats.dead_letters.letter import DeadLetter, read_dead_letter, read_mark
from tidegate.ids import ClusterName
from tidegate.kafka.diagnosis import diagnose
from tidegate.kafka.errors import BrokerUnavailable, LoginRefused

if TYPE_CHECKING:  # the library is imported where it runs
    import confluent_kafka as ck

ANSWER_S: Final = 10.0
STEP_S: Final = 2.0
STALL_S: Final = 30.0
"""Reading is abandoned if no record and no end of a partition arrives for this long."""
OPEN_S: Final = 60.0
"""Timeout for open transactions in the topic: a running pipeline ends one with every checkpoint."""
BATCH: Final = 500
WAIT_S: Final = 0.2
POLL_S: Final = 0.02
CLIENT_LOG: Final = logging.getLogger("tidegate.daemon.letters.librdkafka")
CLIENT_LOG.setLevel(logging.CRITICAL + 1)  # the error that ends the command contains what matters


class DeadLettersRefused(TidegateError):
    """The file, the cluster or the topic does not permit the command."""

    code = "dead-letters-refused"
    exit_code = 1
    retriable = False


class DeadLetterPlace(msgspec.Struct, frozen=True):
    """Where the dead letters of a pipeline are. It holds passwords."""

    pipeline: str
    topic: str
    cluster: ClusterName
    kafka: dict[str, str]
    """The properties of the cluster."""


def find_place(settings: PipelineSettings) -> DeadLetterPlace:
    """Returns where the dead letters of the pipeline are. Raises DeadLettersRefused if it writes none."""
    own = settings.dead_letters
    if own is None:
        raise DeadLettersRefused(
            f"pipeline {settings.name} has no `dead_letters`: nothing is written and nothing to read"
        )
    return DeadLetterPlace(settings.name, own.topic, own.cluster, reveal(properties_of(settings, own.cluster)))


def explain(kafka: Mapping[str, str], error: object) -> TidegateError:
    """Diagnoses step by step why the cluster did not answer, and returns the error."""
    import confluent_kafka as ck

    obstacle = diagnose(kafka, STEP_S)
    if obstacle is None:
        text = error.args[0].str() if isinstance(error, ck.KafkaException) else str(error)
        return DeadLettersRefused(f"the cluster answers, but this request failed: {text}")
    kind = LoginRefused if obstacle.final else BrokerUnavailable
    return kind(f"no broker can be reached: {obstacle.text}; {obstacle.remedy}")


class DeadLetterTopic:
    """The topic as read-committed readers see it. A context manager that closes its clients."""

    def __init__(self, place: DeadLetterPlace) -> None:
        import confluent_kafka as ck

        self.topic = place.topic
        self._pipeline = place.pipeline
        self.cluster = place.cluster
        self.kafka = place.kafka
        own = {
            "group.id": "tidegate-dead-letters",  # required by the client; nothing is ever stored under it
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "fetch.wait.max.ms": "20",  # the default of 500 is waited for at every end and before every question
            "auto.offset.reset": "earliest",
        }
        config: dict[str, Any] = {**derive_client_properties(self.kafka, "consumer"), **own}
        try:
            self._consumer = ck.Consumer({**config, "isolation.level": "read_committed"}, logger=CLIENT_LOG)
            self._written = ck.Consumer({**config, "isolation.level": "read_uncommitted"}, logger=CLIENT_LOG)
        except (ck.KafkaException, TypeError, ValueError) as error:
            raise explain(self.kafka, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._consumer.close()
        self._written.close()

    def bounds(self, *, settled: bool = False) -> dict[int, tuple[int, int]]:
        """Returns the first offset and the end of each partition. By default the end is the last stable offset.

        `settled`: the end of all written records, once no transaction is open before it, so that everything committed
        until now is included. Raises DeadLettersRefused, BrokerUnavailable.
        """
        import confluent_kafka as ck

        try:
            found = self._consumer.list_topics(self.topic, timeout=ANSWER_S).topics[self.topic]
            if found.error is not None:
                raise DeadLettersRefused(f"the dead-letter topic {self.topic}: {found.error.str()}", topic=self.topic)
            parts = {number: ck.TopicPartition(self.topic, number) for number in sorted(found.partitions)}
            if not settled:
                return {number: self._consumer.get_watermark_offsets(one, ANSWER_S) for number, one in parts.items()}
            bounds = {number: self._written.get_watermark_offsets(one, ANSWER_S) for number, one in parts.items()}
            for number, (_, end) in bounds.items():
                self._wait_settled(parts[number], end)
        except ck.KafkaException as error:
            raise explain(self.kafka, error) from error
        return bounds

    def _wait_settled(self, part: ck.TopicPartition, end: int) -> None:
        deadline = time.monotonic() + OPEN_S
        while self._consumer.get_watermark_offsets(part, ANSWER_S)[1] < end:
            if time.monotonic() > deadline:
                raise DeadLettersRefused(
                    f"a transaction has been open in {part.topic}[{part.partition}] for {OPEN_S:g} s, and the "
                    f"records after it cannot be read: try again when the pipeline has completed a checkpoint or "
                    f"has been started again",
                    partition=part.partition,
                )
            time.sleep(WAIT_S)

    def read(self, bounds: Mapping[int, tuple[int, int]]) -> Iterator[ck.Message]:
        """Yields records within the bounds, in the order of each partition.

        Raises DeadLettersRefused, BrokerUnavailable.
        """
        import confluent_kafka as ck

        left = {number for number, (first, end) in bounds.items() if first < end}
        self._consumer.assign([ck.TopicPartition(self.topic, number, bounds[number][0]) for number in sorted(left)])
        heard_s = time.monotonic()
        while left:
            for message in self._consumer.consume(BATCH, POLL_S):
                number: Any = message.partition()
                offset: Any = message.offset()
                if message.error() is not None:
                    self._check(message)
                elif offset < bounds[number][1]:
                    yield message
                if offset is not None and number in left:  # the others are complete, but may receive new records
                    heard_s = time.monotonic()
                    if offset >= bounds[number][1] - (message.error() is None):
                        left.discard(number)
            if left and time.monotonic() - heard_s > STALL_S:
                raise explain(self.kafka, f"no record arrived for {STALL_S:g} s")

    def letters(self, bounds: Mapping[int, tuple[int, int]]) -> Iterator[DeadLetter]:
        """Yields the dead letters of this pipeline, because others may write to the topic as well.

        Raises the same errors as `read`.
        """
        for letter in filter(None, map(dead_letter_of, self.read(bounds))):
            if letter.pipeline == self._pipeline:
                yield letter

    def _check(self, event: ck.Message) -> None:
        import confluent_kafka as ck

        error: Any = event.error()
        if error.code() in (ck.KafkaError.UNKNOWN_TOPIC_OR_PART, ck.KafkaError.TOPIC_AUTHORIZATION_FAILED):
            raise DeadLettersRefused(f"topic {self.topic} cannot be read: {error.str()}", topic=self.topic)


class Marks:
    """Records which dead letters were replayed, and to which topic."""

    def __init__(self) -> None:
        self._ranges: defaultdict[int, list[tuple[int, int, str]]] = defaultdict(list)
        """First offset, last offset and topic by partition.

        Ranges, because one mark can cover any number of offsets.
        """
        self._sorted = True

    @property
    def empty(self) -> bool:
        """True if no mark was noted."""
        return not self._ranges

    def note(self, message: ck.Message) -> bool:
        """Notes a mark; returns whether the message is one."""
        value: Any = message.value()
        mark = read_mark(value, _headers(message))
        if mark is None:
            return False
        number: Any = message.partition()
        self._ranges[number] += [(first, last, mark.to) for first, last in mark.offsets]
        self._sorted = False
        return True

    def of(self, letter: DeadLetter) -> str | None:
        """Returns the topic that the record was written to, or None if the dead letter is still open."""
        if not self._sorted:
            self._sorted = True
            self._ranges.update({number: _disjoint(ranges) for number, ranges in self._ranges.items()})
        found = self._ranges.get(letter.partition, [])
        place = bisect_right(found, letter.offset, key=itemgetter(0)) - 1
        return found[place][2] if place >= 0 and letter.offset <= found[place][1] else None


def _disjoint(ranges: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Sorts ranges and removes overlaps, which occur if two replays ran concurrently."""
    found: list[tuple[int, int, str]] = []
    for first, last, to in sorted(ranges):
        begin = max(first, found[-1][1] + 1) if found else first
        if begin <= last:
            found.append((begin, last, to))
    return found


def dead_letter_of(message: ck.Message) -> DeadLetter | None:
    """Parses a dead letter. Returns None for a record that is not one."""
    from tidegate.sources.messages import stamp_of

    return read_dead_letter(
        message.partition() or 0,
        message.offset() or 0,
        stamp_of(message),
        message.key(),
        message.value(),
        _headers(message),
    )


def _headers(message: ck.Message) -> Headers:
    """Returns the headers; empty for a foreign record with header names that are not UTF-8."""
    from tidegate.sources.messages import KafkaMessages

    return KafkaMessages([message]).headers[0] or ()
