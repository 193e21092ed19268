"""Topics of any cluster for the commands: create, list, write and read. Errors of brokers become Tidegate's own.

Nothing here belongs to a pipeline: records are written without a transaction, and reading leaves no trace (no group, no
positions).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tidegate.config.fields.counts import render_count
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.properties import Side, derive_client_properties
from tidegate.dev.broker.server import create_topics
from tidegate.dev.topics.cluster import DEFAULT_BOOTSTRAP
from tidegate.dev.topics.records import SeenRecord
from tidegate.errors import TidegateError
from tidegate.kafka.properties import derive_servers
from tidegate.sources.topic_reader import ANSWER_S, CLIENT_LOG, STALL_S, TopicReader, explain

if TYPE_CHECKING:  # the library is imported where it is used
    import confluent_kafka as ck

FLUSH_S: Final = 60.0
WAIT_S: Final = 0.2
WIDER: Final = 4
"""Factor by which the range grows if the newest offsets hold markers and aborted records instead of records."""


class TopicRefused(TidegateError):
    """The cluster or its contents do not allow the request."""

    code = "topic-refused"
    exit_code = 1
    retriable = False


def read_topics(kafka: Mapping[str, str]) -> dict[str, int]:
    """Returns the number of partitions by topic, including Kafka's own.

    Raises BrokerUnavailable, LoginRefused, TopicRefused.
    """
    import confluent_kafka as ck
    from confluent_kafka.admin import AdminClient

    try:
        admin = AdminClient(_derive_client(kafka, "producer"), logger=CLIENT_LOG)
        found = admin.list_topics(timeout=ANSWER_S).topics
    except (ck.KafkaException, TypeError, ValueError) as error:
        raise _explain(kafka, error) from error
    return {name: len(topic.partitions) for name, topic in sorted(found.items())}


def find_topic(kafka: Mapping[str, str], name: str) -> int:
    """Returns the number of partitions. Raises TopicRefused with the nearest name if the topic does not exist."""
    topics = read_topics(kafka)
    if name in topics:
        return topics[name]
    near = derive_suggestion(name, (each for each in topics if not each.startswith("__")), "the topic")
    create = f"`tidegate topic create {name}` creates it"
    remedy = f"{near} or {create}" if near.startswith("did you mean") else create
    raise TopicRefused(f"there is no topic {name} at {derive_servers(kafka)}; {remedy}", topic=name)


def create_topic(kafka: Mapping[str, str], name: str, partitions: int, config: Mapping[str, str]) -> None:
    """Creates a topic and waits for its leaders.

    Raises TopicRefused if it exists, BrokerFailed with the broker's reason.
    """
    there = read_topics(kafka).get(name)
    if there is not None:
        raise TopicRefused(
            f"topic {name} already exists at {derive_servers(kafka)}, with {render_count(there, 'partition')}; use it, "
            "or choose another name",
            topic=name,
        )
    create_topics(derive_servers(kafka), {name: partitions}, config, properties=_derive_client(kafka, "producer"))


class TopicWriter:
    """Writes records to one topic. Keys get the same partition as from Java clients and from Tidegate's sinks."""

    def __init__(self, kafka: Mapping[str, str], topic: str) -> None:
        import confluent_kafka as ck

        own = {
            "enable.idempotence": "true",
            "allow.auto.create.topics": "false",  # true by default for producers
            "partitioner": "murmur2_random",
            "linger.ms": "20",
            "message.timeout.ms": str(int(STALL_S * 1000)),
        }
        self._topic = topic
        self._kafka = kafka
        self._failed: ck.KafkaError | None = None
        self.written = 0
        """Records that the cluster has acknowledged."""
        try:
            self._producer = ck.Producer({**_derive_client(kafka, "producer"), **own}, logger=CLIENT_LOG)
        except (ck.KafkaException, TypeError, ValueError) as error:
            raise _explain(kafka, error) from error

    def write(self, key: bytes | None, value: bytes) -> None:
        """Queues one record. Raises TopicRefused if this record or an earlier one cannot be written."""
        import confluent_kafka as ck

        while True:
            self._check()
            try:
                self._producer.produce(self._topic, value=value, key=key, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(WAIT_S)
            except ck.KafkaException as error:
                raise TopicRefused(f"a record was not written to {self._topic}: {error.args[0].str()}") from error
            else:
                self._producer.poll(0)
                return

    def flush(self) -> int:
        """Waits for the acknowledgements and returns their number. Raises TopicRefused."""
        left = self._producer.flush(FLUSH_S)
        self._check()
        if left:
            raise TopicRefused(f"{render_count(left, 'record')} were not acknowledged by {derive_servers(self._kafka)}")
        return self.written

    def _delivered(self, error: ck.KafkaError | None, _message: ck.Message) -> None:
        if error is None:
            self.written += 1
        else:
            self._failed = self._failed or error

    def _check(self) -> None:
        if self._failed is not None:
            written = render_count(self.written, "record")
            raise TopicRefused(
                f"a record was not written to {self._topic}: {self._failed.str()}; {written} before it succeeded"
            )


class TopicRecords(TopicReader):
    """Reads one topic as records to show. Without `committed`, also those of open and aborted transactions."""

    def __init__(self, kafka: Mapping[str, str], topic: str, *, committed: bool) -> None:
        super().__init__(kafka, topic, committed=committed, refused=TopicRefused)

    def records(self, starts: Mapping[int, int], ends: Mapping[int, int] | None) -> Iterator[SeenRecord]:
        """Yields records like `read`."""
        return map(_seen, self.read(starts, ends))

    def newest(self, count: int) -> list[SeenRecord]:
        """Returns the last records of the topic, by time and then by partition and offset."""
        bounds = self.bounds()
        ends = {number: end for number, (_, end) in bounds.items()}
        window = count
        while True:
            starts = {number: max(first, end - window) for number, (first, end) in bounds.items()}
            found = sorted(self.records(starts, ends), key=_age)
            counts = Counter(record.partition for record in found)  # markers and aborted records are not among them
            if all(starts[number] == first or counts[number] >= count for number, (first, _) in bounds.items()):
                return found[-count:]
            window *= WIDER


def _age(record: SeenRecord) -> tuple[int, int, int]:
    return record.timestamp_ms or 0, record.partition, record.offset


def _seen(message: ck.Message) -> SeenRecord:
    from tidegate.sources.messages import KafkaMessages, stamp_of

    key: Any = message.key()
    value: Any = message.value()
    headers = KafkaMessages([message]).headers[0] or ()
    place = (str(message.topic()), message.partition() or 0, message.offset() or 0)
    return SeenRecord(*place, stamp_of(message), key, value, headers)


def _derive_client(kafka: Mapping[str, str], side: Side) -> dict[str, Any]:
    return dict(derive_client_properties(kafka, side))


def _explain(kafka: Mapping[str, str], error: object) -> TidegateError:
    start = "start one with `tidegate broker`, or name your own with --bootstrap"
    return explain(kafka, error, TopicRefused, start if derive_servers(kafka) == DEFAULT_BOOTSTRAP else "")
