"""One producer with one transaction: open, write, flush. It is never closed: `close()` would abort a prepared
transaction.

This module hides pitfalls of the client. A fatal error leaves `poll` and `flush` as KafkaException, or as SystemError
if callbacks are pending. `flush() == 0` hides failed records. `produce_batch` continues after a rejected record.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from confluent_kafka import KafkaError, KafkaException, Message

from tidegate.ids import NO_PRODUCER, TransactionalId
from tidegate.kafka.errors import BrokerUnavailable, LoginRefusedLater, SinkFailed, SinkRefused, refused_record
from tidegate.kafka.producing import BY_KEY, ClientProducing, Producing, RecordNotTaken, open_producing
from tidegate.kafka.properties import fit_batches, largest_record
from tidegate.kafka.tls import RENEWAL_S, names_tls_files
from tidegate.kafka.tools import KAFKA_TOOLS, KafkaProducer, KafkaTools

if TYPE_CHECKING:
    from tidegate.formats.records import OutputRecords
    from tidegate.kafka.facts import TopicLimits
    from tidegate.kafka.transactions import TransactionClient

T = TypeVar("T")

OPEN_TIMEOUT_S: Final = 120.0
CALL_TIMEOUT_S: Final = 10.0
FLUSH_SLICE_S: Final = 0.5
FLUSH_SLICE_S_MIN: Final = 0.001
FLUSH_SLICES: Final = 8
"""A wait goes on for at most this part of its length after the last record was delivered."""
INSPECT_S: Final = 5.0
"""Seconds without success after which the way to the brokers is inspected, and between two inspections."""
RETRY_PAUSE_S: Final = 0.1
UNKNOWN_TOPIC_S: Final = 5.0
"""A newly started broker knows no topics, and one that lags behind knows no new ones. Sources wait for the same time.
"""
REASON_TIMEOUT_S: Final = 1.0
REASON_SLICE_S: Final = 0.05
ROOM_TIMEOUT_S: Final = 120.0

_CLIENT_LOG = logging.getLogger("tidegate.sinks.librdkafka")
_CLIENT_LOG.setLevel(logging.ERROR)  # its warnings log each retry; its errors report the consequences
_CLIENT_LOG.addFilter(lambda record: not _is_told_elsewhere(record.getMessage()))

# ruff: noqa: SLF001 - the client's own error codes begin with an underscore but are public

_REFUSED: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError._INVALID_ARG,
        KafkaError._INVALID_DIFFERENT_RECORD,
    }
)
"""Errors that another attempt would meet again."""

_OF_TIMESTAMPS: Final = frozenset({KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD})
"""Broker errors for a batch with out-of-range timestamps; the second one if several timestamps are."""

_BECAUSE_OF_ANOTHER: Final = frozenset(
    {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._INVALID_DIFFERENT_RECORD}
)
"""Errors of records that fail because of another one: purged by the client, or in one batch with a rejected record."""

_REMEDIES: Final[Mapping[int, str]] = {
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "; lower checkpoints.transaction_timeout, or raise the broker's "
    "transaction.max.timeout.ms",
    KafkaError.INVALID_RECORD: (
        "; the usual reason is a record without a key in a compacted topic. Filter out such "
        "records with `where`, or grant DESCRIBE_CONFIGS on the topic: then they become bad "
        "records"
    ),
    KafkaError.INVALID_TIMESTAMP: (
        "; a record's timestamp differs from the broker's time by more than the topic's "
        "message.timestamp.before.max.ms and message.timestamp.after.max.ms (before "
        "Kafka 4.0: message.timestamp.difference.max.ms) allow. Filter out such records "
        "with `where`, change the topic, or grant DESCRIBE_CONFIGS on it: then they "
        "become bad records. The clocks of executors and brokers should agree"
    ),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "; grant WRITE on the transactional ids that begin with the "
    "pipeline's name and a dot",
    KafkaError._MSG_TIMED_OUT: (
        "; it waited in the client for `checkpoints.transaction_timeout`. If its leader has "
        "answered all that time, the brokers accept less than the client sends (a quota of "
        "this user?): lower queue.buffering.max.kbytes in the sink's `kafka:`, or raise the "
        "quota"
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "; grant WRITE and READ on the topic to this user",
}


def _is_told_elsewhere(line: str) -> bool:
    """Returns whether a librdkafka log line is reported elsewhere.

    A rejected batch fails the transaction and also the delivery of its records, which we report with a remedy. The
    daemon reports failed connections once; the client logs hundreds of lines about them, all at once, afterwards.
    """
    return line.startswith(("FAIL ", "ERROR ")) or (line.startswith("TXNERR ") and ": ProduceRequest for " in line)


class TransactionWriter:
    """A producer with at most one transaction. `open` and `flush` block and run in helper threads; the rest does not
    block.
    """

    def __init__(
        self,
        sink: str,
        topics: Mapping[str, TopicLimits],
        properties: Mapping[str, str],
        tools: KafkaTools = KAFKA_TOOLS,
    ) -> None:
        """Creates a writer; `topics` are all topics that it may write, with their limits."""
        self.transactional_id = TransactionalId(properties.get("transactional.id", ""))
        self.producer = NO_PRODUCER
        self.produced = 0
        self.first_record_at: float | None = None
        """Monotonic seconds."""
        self.delivery_errors = 0
        self.first_error = ""
        self.refused = False
        self.stamps_refused = False
        """The first error is a broker's error for timestamps beyond the topic's limits."""
        self._lacks_reason = False
        self.partitions: dict[str, int] = {}
        """Number of partitions of each topic, known once the writer is open."""
        self._sink = sink
        self._topics = topics
        self._topic = next(iter(topics))
        self._at_edge = False
        self._properties = properties
        self._tools = tools
        self._clock = tools.clock
        self._producing: Producing | None = None
        """The way into the producer, which the first record decides: rows and repeated messages have different ones."""
        self._queue_max = int(properties["queue.buffering.max.messages"])

    def open(self, client: TransactionClient | None, stopping: Callable[[], bool]) -> None:
        """Learns the topics, initialises the transactional id and begins the transaction. Raises SinkFailed,
        SinkRefused.
        """
        deadline = self._clock.monotonic() + OPEN_TIMEOUT_S
        if client is None:
            self._set_producer(stopping)
            self._learn_topics(deadline, stopping)
        else:
            self._initialise(client, deadline, stopping)
            left = max(CALL_TIMEOUT_S, deadline - self._clock.monotonic())
            description = client.describe(self.transactional_id, left)
            if description is None:
                raise SinkFailed(
                    f"sink {self._sink}: {self.transactional_id} is unknown right after its initialisation"
                )
            self.producer = description.producer
            self._guard(self._producer.begin_transaction)

    def _initialise(self, client: TransactionClient, deadline: float, stopping: Callable[[], bool]) -> None:
        """Initialises the transactional id, with a new producer after half of the time.

        A producer whose broker was killed may wait in vain for the whole time. The error includes what the coordinator
        knows about the id, because the producer reports only a timeout.
        """
        half = deadline - OPEN_TIMEOUT_S / 2
        try:
            self._initialise_once(half, stopping)
        except SinkFailed:
            if stopping() or self._clock.monotonic() <= half:
                raise
            self.discard()
        else:
            return
        try:
            self._initialise_once(deadline, stopping)
        except SinkFailed as error:
            if stopping():
                raise
            raise SinkFailed(f"{error.message}; {self._describe(client)}", **error.fields) from error

    def _initialise_once(self, deadline: float, stopping: Callable[[], bool]) -> None:
        """Initialises the transactional id of a new producer.

        The topics are learned first, and the first one twice. A client closes its connection to the address that it was
        given as soon as it knows the brokers; the second request waits until it is connected to one of them. Without
        it, every third initialisation finds no connection and waits for a timer of 500 ms.
        """
        self._set_producer(stopping)
        self._learn_topics(deadline, stopping)
        self._learn(self._topic, deadline, stopping)
        self._patiently(lambda: self._producer.init_transactions(CALL_TIMEOUT_S), deadline, stopping)

    def _describe(self, client: TransactionClient) -> str:
        try:
            found = client.describe(self.transactional_id, CALL_TIMEOUT_S)
        except BrokerUnavailable as error:
            return error.message
        state = "nothing" if found is None else f"{found.state.value}, with epoch {found.producer.epoch}"
        return f"{self.transactional_id} was not initialised; its coordinator reports: {state}"

    def _learn_topics(self, deadline: float, stopping: Callable[[], bool]) -> None:
        """Learns all topics, so that records never wait for metadata, which would put their order at risk."""
        for topic in self._topics:
            self.partitions[topic] = self._learn(topic, deadline, stopping)

    def _learn(self, topic: str, deadline: float, stopping: Callable[[], bool]) -> int:
        """Returns the number of partitions of a topic and makes the client learn them."""
        unknown_by = self._clock.monotonic() + UNKNOWN_TOPIC_S
        while True:
            found = self._patiently(
                lambda: self._producer.list_topics(topic, timeout=CALL_TIMEOUT_S), deadline, stopping
            ).topics[topic]
            if found.error is None:
                return len(found.partitions)
            passing = found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            if not passing or stopping() or self._clock.monotonic() > unknown_by:
                raise SinkRefused(
                    f"sink {self._sink}: topic {topic}: {found.error.str()}; create it, or grant the permission",
                    sink=self._sink,
                    topic=topic,
                )
            self._clock.sleep(RETRY_PAUSE_S)

    def _learn_new(self, topic: str, most: int) -> None:
        """Learns partitions that were added to a topic after this producer was opened, and blocks meanwhile.

        A row that names a new partition, of which `most` is the highest, proves that it exists, but the client would
        not notice it for minutes.
        """
        patient_until = self._clock.monotonic() + UNKNOWN_TOPIC_S
        while most >= self.partitions[topic]:
            deadline = self._clock.monotonic() + CALL_TIMEOUT_S
            self.partitions[topic] = self._learn(topic, deadline, lambda: False)
            if most < self.partitions[topic] or self._clock.monotonic() > patient_until:
                return
            self._clock.sleep(RETRY_PAUSE_S)

    def _set_producer(self, stopping: Callable[[], bool]) -> None:
        self._producer = self._make_producer(stopping)
        self._producing = None

    def _make_producer(self, stopping: Callable[[], bool]) -> KafkaProducer:
        # An explicit value costs nothing per record; `delivery.report.only.error` needs a real bool.
        config: dict[str, Any] = {
            **fit_batches(self._properties, [one.batch_bytes for one in self._topics.values()]),
            "delivery.report.only.error": True,
            "on_delivery": self._on_delivery,
        }
        patient_until = self._clock.monotonic() + (RENEWAL_S if names_tls_files(self._properties) else 0.0)
        while True:
            try:
                return self._tools.producer(config)
            except (KafkaException, TypeError, ValueError) as error:
                if stopping() or self._clock.monotonic() >= patient_until:
                    raise SinkRefused(
                        f"sink {self._sink}: the Kafka client rejects its settings: {error}", sink=self._sink
                    ) from error
            self._clock.sleep(RETRY_PAUSE_S)

    @property
    def _names(self) -> str:
        """Returns the topic names for messages."""
        return ", ".join(self._topics)

    @property
    def queued(self) -> int:
        """Records that the client has not delivered yet; 0 once discarded. Thread-safe."""
        producer = getattr(self, "_producer", None)
        return 0 if producer is None else len(producer)

    @property
    def room(self) -> int:
        """Records that the client would accept now. Thread-safe."""
        return self._queue_max - self.queued

    def discard(self) -> None:
        """Destroys the producer, which takes 10 to 100 ms. Its transaction remains unchanged at the broker.

        Must be called explicitly, because the delivery callback creates a reference cycle: otherwise the producer and
        its threads would live until the garbage collector runs, in an arbitrary thread. Records still queued are
        discarded.
        """
        if self.queued:
            self._producer.purge(blocking=False)
        if hasattr(self, "_producer"):  # `open` may have failed before it created the producer
            del self._producer
            if self._producing is not None:
                self._producing.close()

    def write(self, rows: OutputRecords, start: int) -> int:
        """Hands over rows from place `start` on and returns the first place that did not fit. Raises SinkFailed.

        Places count in an order that keeps the rows of each partition in theirs.
        """
        end = min(len(rows), start + self.room)
        if end <= start:
            return start
        if self.first_record_at is None:
            self.first_record_at = self._clock.monotonic()
        self._at_edge |= rows.at_edge
        if rows.partitions is not None:
            most = cast("int | None", rows.partitions.max())
            self._learn_new(rows.topic or self._topic, BY_KEY if most is None else most)
        done = self._produce(rows, start, end)
        self.produced += done - start
        return done

    def repeat(self, message: Message) -> None:
        """Produces a consumed message again, unchanged and into the same partition. Waits while the queue is full.

        A writer that repeats messages writes no rows. Raises SinkFailed, SinkRefused.
        """
        if self._producing is None:
            self._producing = ClientProducing(self._producer)
        assert isinstance(self._producing, ClientProducing)
        room_by = self._clock.monotonic() + ROOM_TIMEOUT_S
        while not self._hand_over(self._topic, partial(self._producing.repeat, self._topic, message)):
            if self._clock.monotonic() > room_by:
                raise self._failure("the client's queue stays full")
            self._guard(lambda: self._producer.poll(RETRY_PAUSE_S))
        self.produced += 1

    def poll(self) -> None:
        """Serves delivery reports. Raises SinkFailed or SinkRefused for the first failed record."""
        self._guard(lambda: self._producer.poll(0))
        self._take_undelivered()
        if self.delivery_errors:
            self._await_reason()
            if self.refused:
                raise refused_record(self._sink, self.first_error)
            raise SinkFailed(f"sink {self._sink}: a record was not delivered: {self.first_error}", sink=self._sink)

    def flush(self, timeout_s: float, stopping: Callable[[], bool]) -> int:
        """Waits until all records are delivered or have failed, and returns the number that are still pending.

        Deliveries are not reported, so nothing wakes the client's `flush` after the last one: it checks every 10 ms,
        and when its time is over. Short calls at first keep a barrier from waiting for the next check.
        """
        begun = self._clock.monotonic()
        waited_s = 0.0
        while True:
            slice_s = min(FLUSH_SLICE_S, max(FLUSH_SLICE_S_MIN, waited_s / FLUSH_SLICES))
            left: int = self._guard(lambda seconds=slice_s: self._producer.flush(seconds))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
            self._take_undelivered()
            waited_s = self._clock.monotonic() - begun
            if not left or stopping() or waited_s > timeout_s:
                self._ask_transaction()
                return left

    def _produce(self, rows: OutputRecords, start: int, end: int) -> int:
        """Hands rows to the client and returns the first place that found no room. Raises SinkFailed, SinkRefused."""
        if self._producing is None:
            self._producing = open_producing(self._producer)
        topic = rows.topic or self._topic
        # A producer without transactions may live for days, and only the client learns how many there are by then.
        partitions = self.partitions[topic] if self.transactional_id else 0
        return self._hand_over(topic, partial(self._producing.produce, topic, rows, start, end, partitions))

    def _hand_over(self, topic: str, hand_over: Callable[[], T]) -> T:
        try:
            return hand_over()
        except RecordNotTaken as refused:
            remedy = self._size_remedy(refused.reason, topic, refused.size_bytes)
            raise self._failure(refused.reason, remedy) from refused

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            size = len(message.key() or b"") + len(message.value() or b"")
            self._note_reason(error, message.topic(), message.partition(), size)
            self.delivery_errors += 1

    def _take_undelivered(self) -> None:
        if self._producing is None:
            return
        count, found = self._producing.take_undelivered()
        for one in found:
            self._note_reason(*one)
        self.delivery_errors += count

    def _note_reason(self, error: KafkaError, topic: str, partition: int, size: int) -> None:
        if not self.first_error or (self._lacks_reason and error.code() not in _BECAUSE_OF_ANOTHER):
            self._lacks_reason = error.code() in _BECAUSE_OF_ANOTHER
            remedy = self._size_remedy(error, topic, size) or _REMEDIES.get(error.code(), "")
            self.first_error = f"{topic}[{partition}]: {error.str()} ({error.name()}){remedy}"
            self._note_refusal(error)

    def _note_refusal(self, error: KafkaError) -> None:
        self.refused = self._is_refused(error)
        self.stamps_refused = error.code() in _OF_TIMESTAMPS

    def _is_refused(self, error: KafkaError) -> bool:
        """Returns whether another attempt would meet the same error.

        A rejected timestamp that was close to a limit is an exception: by the next attempt it is within the limits, or
        the record is left out when it is encoded.
        """
        return error.code() in _REFUSED and not (self._at_edge and error.code() in _OF_TIMESTAMPS)

    def _await_reason(self) -> None:
        """Serves delivery reports until one gives the reason.

        Records discarded because of it may be reported earlier.
        """
        deadline = self._clock.monotonic() + REASON_TIMEOUT_S
        with contextlib.suppress(KafkaException, SystemError):
            while (not self.first_error or self._lacks_reason) and self._clock.monotonic() < deadline:
                self._producer.poll(REASON_SLICE_S)
                self._take_undelivered()
        self._take_undelivered()
        self._ask_transaction()

    def _ask_transaction(self) -> None:
        """Finds out why all records were discarded if the reason is the transaction, for instance because it cannot add
        a partition.

        A second `begin_transaction` always fails; for such a transaction it fails with the reason.
        """
        if not (self._lacks_reason and self.transactional_id):
            return
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            reason = error.args[0]
            if reason.txn_requires_abort() or reason.fatal():
                self._lacks_reason = False
                remedy = _REMEDIES.get(reason.code(), "")
                self.first_error = f"{self._names}: {reason.str()} ({reason.name()}){remedy}"
                self._note_refusal(reason)

    def _guard(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except (KafkaException, SystemError) as error:
            raise self._failure(error.args[0] if error.args else error) from error

    def _patiently(self, call: Callable[[], T], deadline: float, stopping: Callable[[], bool]) -> T:
        """Retries what fails during a broker restart. Stops sending requests once the sink is closed.

        Raises LoginRefusedLater if a broker refuses the login: the client would try the same one until the deadline.
        """
        reason: object = "the sink is closed"
        inspect_at = self._clock.monotonic() + INSPECT_S
        while not stopping():
            try:
                return call()
            except KafkaException as error:
                found: KafkaError = error.args[0]
                reason = found
                passing = found.retriable() or found.code() in (
                    KafkaError._TRANSPORT,
                    KafkaError._TIMED_OUT,
                    KafkaError._ALL_BROKERS_DOWN,
                    KafkaError._RESOLVE,
                )
                if not passing or stopping() or self._clock.monotonic() > deadline:
                    raise self._failure(reason) from error
                if self._clock.monotonic() >= inspect_at:
                    self._refuse_login()
                    inspect_at = self._clock.monotonic() + INSPECT_S
                self._clock.sleep(RETRY_PAUSE_S)
        raise self._failure(reason)

    def _refuse_login(self) -> None:
        obstacle = self._tools.find_obstacle(self._properties)
        if obstacle is not None and obstacle.final:
            raise LoginRefusedLater(f"sink {self._sink}: {obstacle.text}; {obstacle.remedy}", sink=self._sink)

    def _size_remedy(self, reason: object, topic: str, size: int) -> str:
        """Returns the record's size and all limits if it is too large for one of them."""
        if not isinstance(reason, KafkaError) or reason.code() != KafkaError.MSG_SIZE_TOO_LARGE:
            return ""
        limit = self._topics[topic].batch_bytes
        seen = "not visible to this user" if limit is None else limit
        return (
            f": key and value have {size} bytes; max.message.bytes of topic "
            f"{topic} is {seen}, message.max.bytes of the producer (`kafka` of the sink) is "
            f"{largest_record(self._properties)}; raise both above it, or make the record smaller"
        )

    def _failure(self, reason: object, remedy: str = "") -> SinkFailed | SinkRefused:
        """Returns this sink's error for what the client raised.

        Once the broker has rejected a record, the client rejects all later ones because of its own state; the first
        delivery report has the reason.
        """
        self._take_undelivered()
        if isinstance(reason, KafkaError) and reason.code() == KafkaError._STATE:
            self._await_reason()
        if self.refused:
            return refused_record(self._sink, self.first_error)
        text = f"{reason.str()} ({reason.name()})" if isinstance(reason, KafkaError) else repr(reason)
        if self.first_error:
            text += f"; first delivery error: {self.first_error}"
        kind = SinkRefused if isinstance(reason, KafkaError) and self._is_refused(reason) else SinkFailed
        if isinstance(reason, KafkaError):
            remedy = remedy or _REMEDIES.get(reason.code(), "")
        return kind(f"sink {self._sink}, topic {self._names}: {text}{remedy}", sink=self._sink, topic=self._names)
