"""Replays dead letters: writes their rows to the retry topic, or their whole records again.

Each is written once: one transaction contains the records and, in the dead-letter topic, the marks of their dead
letters. The transactional id belongs to the pipeline, so a second replay ends the first one before it reads the marks.
If a replay is killed, exactly the marked records have been written, and another replay continues. A record with several
dead letters is written for one of them; the others only get their marks.

The pipeline reads the retry topic itself, and processes a row there at the step that failed. This does not cover the
effects of a whole record: every reader of its topic processes it as a new one. Such a replay therefore first examines
all chosen dead letters. It is refused if a sink or state of the pipeline already has one of their records.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec

from tidegate.clock import SYSTEM_CLOCK
from tidegate.config.fields.counts import render_count
from tidegate.config.models import PipelineSettings
from tidegate.config.properties import derive_client_properties
from tidegate.formats.contract import Headers
from tidegate.formats.dead_letters import MARKER, REPLAYED_FROM
from tidegate.formats.dead_letters.letter import DeadLetter, derive_retry_headers, make_mark
from tidegate.formats.record_limits import RecordLimits, describe_limit, fits
from tidegate.ids import ClusterName, TransactionalId
from tidegate.kafka.facts import TopicLimits
from tidegate.kafka.properties import limit_times
from tidegate.kafka.transactions import TransactionClient
from tidegate.plan.replays import Route
from tidegate.sinks.limits import derive_record_limits
from tidegate.sinks.naming import replay_id
from tidegate.sources.dead_letter_topic import WAIT_S, DeadLettersRefused, DeadLetterTopic, Marks, find_place
from tidegate.sources.topic_reader import ANSWER_S, CLIENT_LOG, explain

if TYPE_CHECKING:  # the library is imported where it runs
    import confluent_kafka as ck

DEAD_LETTERS_MAX: Final = 500
BYTES_MAX: Final = 8 << 20
"""Size of one transaction: at least one dead letter, and not much more than this."""
TRANSACTION_S: Final = 60.0
PLACES_SHOWN: Final = 5
OWN: Final[Mapping[str, str]] = {
    "enable.idempotence": "true",
    "allow.auto.create.topics": "false",  # producers default to true
    "partitioner": "murmur2_random",
    "transaction.timeout.ms": str(int(TRANSACTION_S * 1000)),
    "linger.ms": "5",
    "batch.size": "1",  # a topic limits batches: what fits alone must not fail together with others
    "message.max.bytes": "1000000000",  # what was read was small enough for a topic
    "queue.buffering.max.kbytes": str(1 << 20),  # a record that is larger than the queue would wait forever
}
"""Fixed properties of the producer."""


def derive_replay_properties(kafka: Mapping[str, str], transactional_id: TransactionalId) -> dict[str, str]:
    """Derives the producer's properties from any properties that `validate` accepts."""
    taken = {name: kafka[name] for name in derive_client_properties(kafka, "producer")}
    return limit_times({**taken, **OWN, "transactional.id": transactional_id}, int(TRANSACTION_S * 1000))


class Replayed(msgspec.Struct):
    """The result of a replay or of a dry run."""

    written: int = 0
    """Whole records, to topics that sources read."""
    resumed: int = 0
    """Rows, to the retry topic."""
    kept: int = 0
    """Chosen dead letters without the bytes of their record, so that nothing can be written for them."""
    marked: int = 0
    """Chosen dead letters that have been replayed before."""
    joined: int = 0
    """Chosen dead letters whose record is, or was, written for another of its dead letters."""
    refused: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """Locations of chosen dead letters whose records the topic would reject, by reason."""
    repeating: dict[tuple[str, str], list[str]] = msgspec.field(default_factory=dict)
    """Locations of chosen dead letters that are not replayed because their records would repeat, by failed step and
    holder.
    """


class ReplayRecord(NamedTuple):
    """A record to write for a dead letter."""

    topic: str
    partition: int | None
    """None if the client chooses."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int = 0
    """0 stands for the time of writing."""


Holding = Callable[[DeadLetter, str], object]
"""Returns who has the record of a dead letter and would receive it again from a topic: falsy if nothing does, else
printable.
"""


def _route_nowhere(_: DeadLetter) -> Route:
    return Route()


class ReplayOrder(NamedTuple):
    """The dead letters to replay, and how."""

    chosen: Callable[[DeadLetter], bool]
    to: str | None = None
    """Writes all records to this topic. None: each record to its own, unless `route` returns a retry topic."""
    holding: Holding | None = None
    """None: records are written even if sinks and states already have them."""
    dry_run: bool = False
    route: Callable[[DeadLetter], Route] = _route_nowhere


def replay(settings: PipelineSettings, order: ReplayOrder) -> Replayed:
    """Replays the records of the chosen dead letters. Raises DeadLettersRefused, BrokerUnavailable."""
    with DeadLetterTopic(find_place(settings)) as topic, _Fitting(topic) as fitting:
        if order.dry_run or order.holding is not None:
            before = _Choice(order, topic, fitting, settled=False)
            deque(before.letters(), maxlen=0)
            if order.dry_run:
                return before.done
            if before.done.repeating:
                raise DeadLettersRefused(_explain_repeating(before.done, settings))
        writer = _Writer(settings, topic)
        choice = _Choice(order, topic, fitting, settled=True)
        waiting: list[_Chosen] = []
        for one in choice.letters():
            waiting.append(one)
            if _full(waiting):
                writer.write(waiting)
                waiting.clear()
        if waiting:
            writer.write(waiting)
        return choice.done


def _explain_repeating(done: Replayed, settings: PipelineSettings) -> str:
    letters = sum(map(len, done.repeating.values()))
    subject = "the record of 1 letter" if letters == 1 else f"records of {letters:,} letters"
    lines = [f"nothing was written: {subject} may be in other sinks or states already, and would be there twice"]
    lines += [f"  {render_repeating(*one, places)}" for one, places in done.repeating.items()]
    if done.written or done.resumed:
        others = render_count(done.written + done.resumed, "other record")
        lines.append(
            f"{others} can be written without repetition: select them with --step, --kind, or --partition and --offset"
        )
    lines.append("--whole-record writes all of them, and they are processed again")
    if settings.dead_letters is not None and settings.dead_letters.retry_topic is None:
        lines.append("with `retry_topic` in `dead_letters`, a replay continues at the step that failed")
    return "\n".join(lines)


def render_repeating(step: str, holders: str, places: Sequence[str]) -> str:
    """Renders one line: who has the records of dead letters that failed in a step."""
    return f"failed in {step}, and may be in {holders} (letters {render_places(places)})"


def render_places(places: Sequence[str]) -> str:
    """Renders the first few locations."""
    return ", ".join(places[:PLACES_SHOWN]) + (", and others" if len(places) > PLACES_SHOWN else "")


class _Choice:
    """One pass over the chosen dead letters: selects those to mark and counts the others."""

    def __init__(self, order: ReplayOrder, topic: DeadLetterTopic, fitting: _Fitting, *, settled: bool) -> None:
        self._order = order
        self._topic = topic
        self._fitting = fitting
        self._bounds = topic.bounds(settled=settled)
        self._marks = Marks()
        for message in topic.read(self._bounds):
            self._marks.note(message)
        self._seen = _written_before(topic, self._bounds, self._marks)
        self.done = Replayed()

    def letters(self) -> Iterator[_Chosen]:
        """Yields the dead letters to mark, in the order of each partition. Can be called once."""
        done, seen = self.done, self._seen
        for letter in filter(self._order.chosen, self._topic.letters(self._bounds)):
            if self._marks.of(letter) is not None:
                done.marked += 1
                continue
            route = self._order.route(letter)
            if route.obstacle:
                self._refuse(letter, route.obstacle)
                continue
            whole = not route.retry_topic
            if whole and letter.cluster != self._topic.cluster and letter.topic and not self._order.to:
                self._refuse(letter, _explain_other_cluster(letter, self._topic.cluster))
                continue
            if whole and not (letter.whole and (self._order.to or letter.topic)):
                done.kept += 1
                continue
            record = _record_of(letter, (self._order.to if whole else None) or letter.topic)
            target = _derive_record(letter, self._topic.topic, self._order.to, route)
            known = record is not None and record in seen
            if known:
                done.joined += 1
            elif not self._is_selected(letter, target, whole=whole):
                continue
            elif whole:
                done.written += 1
                if record is not None:
                    seen.add(record)
            else:
                done.resumed += 1
            yield _Chosen(letter, target, known)

    def _is_selected(self, letter: DeadLetter, record: ReplayRecord, *, whole: bool) -> bool:
        holders = self._order.holding(letter, record.topic) if whole and self._order.holding is not None else None
        if holders:
            place = place_of(letter, self._topic.topic)
            self.done.repeating.setdefault((letter.step, str(holders)), []).append(place)
            return False
        reason = self._fitting.refuses(record)
        if reason:
            self._refuse(letter, reason)
        return not reason

    def _refuse(self, letter: DeadLetter, reason: str) -> None:
        self.done.refused.setdefault(reason, []).append(place_of(letter, self._topic.topic))


def _explain_other_cluster(letter: DeadLetter, cluster: ClusterName) -> str:
    return (
        f"{letter.topic} is in cluster {letter.cluster}, the dead letters are in {cluster}, and no transaction spans "
        f"both: choose a topic in cluster {cluster} with --to"
    )


class _Chosen(NamedTuple):
    """A dead letter that will be marked."""

    letter: DeadLetter
    record: ReplayRecord
    marks_only: bool
    """Its record is written for another dead letter."""


def _written_before(topic: DeadLetterTopic, bounds: Mapping[int, tuple[int, int]], marks: Marks) -> set[bytes]:
    """Returns the records of marked dead letters, at about a hundred bytes of memory each."""
    if marks.empty:
        return set()
    found = ((letter, marks.of(letter)) for letter in topic.letters(bounds))
    records = {_record_of(letter, target) for letter, target in found if target is not None}
    return {record for record in records if record is not None}


def _record_of(letter: DeadLetter, target: str) -> bytes | None:
    """Returns a digest that all dead letters of one record share for a target topic, or None if its location is
    unknown.

    Besides the location, it covers the record's time and bytes, because a recreated topic has other records at the same
    offsets.
    """
    if not letter.topic or letter.source_partition is None or letter.source_offset is None:
        return None
    place = (target, letter.source_topic, letter.source_partition, letter.source_offset, letter.timestamp_ms)
    return blake2b(msgspec.msgpack.encode((place, letter.key, letter.value)), digest_size=16).digest()


def _full(waiting: Sequence[_Chosen]) -> bool:
    size = sum(len(one.letter.value or b"") + len(one.letter.row or "") for one in waiting)
    return len(waiting) >= DEAD_LETTERS_MAX or size >= BYTES_MAX


def place_of(letter: DeadLetter, topic: str) -> str:
    """Returns the location of the dead letter itself."""
    return f"{topic}[{letter.partition}]@{letter.offset}"


def _derive_record(letter: DeadLetter, topic: str, to: str | None, route: Route) -> ReplayRecord:
    """Returns the record to write. A row keeps the partition of its letter, so that letters stay in order; a whole
    record its own, if it returns to its own topic.
    """
    place = place_of(letter, topic)
    if route.retry_topic:
        headers = derive_retry_headers(letter, place)
        return ReplayRecord(route.retry_topic, letter.partition, letter.key, letter.value, headers)
    headers = (*letter.headers, (REPLAYED_FROM, place.encode()))
    partition = letter.source_partition if to is None else None
    at_ms = max(0, letter.timestamp_ms or 0)
    return ReplayRecord(to or letter.topic, partition, letter.key, letter.value, headers, at_ms)


class _Fitting:
    """Checks what topics accept. A context manager that closes its connection."""

    def __init__(self, topic: DeadLetterTopic) -> None:
        self._topic = topic
        self._client = TransactionClient(topic.kafka)
        self._properties = {**topic.kafka, **OWN}
        self._facts: dict[str, TopicLimits] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._client.close()

    def refuses(self, record: ReplayRecord) -> str:
        """Returns why the topic would reject the record with its additional header, or an empty string.

        Kafka rejects the whole transaction because of one record. If the topic's settings are hidden, the broker
        decides. Raises DeadLettersRefused for a topic that does not exist.
        """
        target = record.topic
        if target not in self._facts:
            if target not in self._client.topics([target], ANSWER_S):
                raise DeadLettersRefused(f"topic {target} does not exist; choose another with --to", topic=target)
            self._facts[target] = self._client.topic_limits(target, ANSWER_S)
        limits = derive_record_limits(target, self._properties, self._facts[target], SYSTEM_CLOCK.now_ms())
        return _find_obstacle(record, limits)


def _find_obstacle(record: ReplayRecord, limits: RecordLimits) -> str:
    """Returns the reason without numbers, because dead letters are grouped by it."""
    at_ms = record.timestamp_ms
    other = "raise the limit, or write to another topic with --to"
    if not fits(record.key, record.value, record.headers, limits):
        return f"too large for the topic (max.message.bytes) with the additional header: {other}"
    if limits.needs_key and record.key is None:
        return "without a key, and the topic is compacted: write to another topic with --to"
    if at_ms and limits.earliest_ms is not None and at_ms < limits.earliest_ms:
        return f"too old for the topic ({describe_limit('before')}): {other}"
    if at_ms and limits.latest_ms is not None and at_ms > limits.latest_ms:
        return f"too new for the topic ({describe_limit('after')}): {other}"
    return ""


class _Writer:
    """A producer that writes one transaction for each `write`."""

    def __init__(self, settings: PipelineSettings, topic: DeadLetterTopic) -> None:
        import confluent_kafka as ck

        self._topic = topic
        self._pipeline = settings.name
        self._fenced = {ck.KafkaError._FENCED, ck.KafkaError.PRODUCER_FENCED, ck.KafkaError.INVALID_PRODUCER_EPOCH}  # noqa: SLF001  # the client's own codes begin so, and are public
        properties = derive_replay_properties(topic.kafka, replay_id(settings.name))
        self._failed: list[tuple[int, str]] = []
        try:
            self._producer = ck.Producer(dict(properties), logger=CLIENT_LOG)
            self._producer.init_transactions(TRANSACTION_S)
        except ck.KafkaException as error:
            self._refuse_if_fenced(error)
            raise explain(topic.kafka, error, DeadLettersRefused) from error
        except (TypeError, ValueError) as error:
            raise explain(topic.kafka, error, DeadLettersRefused) from error
        self._partitions: dict[str, int] = {}

    def write(self, letters: Sequence[_Chosen]) -> None:
        """Writes all records and marks, or none. Raises DeadLettersRefused."""
        import confluent_kafka as ck

        self._failed.clear()
        for target in {one.record.topic for one in letters}:
            self._count(target)  # before a transaction begins that would stay open
        try:
            self._producer.begin_transaction()
            self._fill(letters)
            while self._producer.flush(WAIT_S) and not self._failed:  # after a failure the client sends nothing more
                pass
            if self._failed:
                self._producer.abort_transaction(TRANSACTION_S)
                raise DeadLettersRefused(f"this part was not written: {self._failed[0][1]}")
            self._commit()
        except ck.KafkaException as error:
            self._refuse_if_fenced(error)
            reason = self._failed[0][1] if self._failed else error.args[0].str()
            raise DeadLettersRefused(f"the letters were not written: {reason}") from error

    def _refuse_if_fenced(self, error: ck.KafkaException) -> None:
        """Raises DeadLettersRefused if a replay that started later owns the transactional id."""
        if self._fenced.isdisjoint({error.args[0].code(), *(code for code, _ in self._failed)}):
            return
        raise DeadLettersRefused(
            f"another replay for {self._pipeline} is running and has ended this one. Letters that this one had "
            "written are marked: wait for the other replay, then repeat the command for the rest"
        ) from error

    def _fill(self, letters: Sequence[_Chosen]) -> None:
        offsets: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        for letter, record, marks_only in letters:
            if not marks_only:
                self._produce(record)
            offsets[letter.partition, record.topic].append(letter.offset)
        for (partition, target), found in offsets.items():
            self._send(
                topic=self._topic.topic,
                partition=partition,
                value=make_mark(found, target),
                headers=[(MARKER, str(len(found)).encode())],
            )

    def _commit(self) -> None:
        import confluent_kafka as ck

        while True:
            try:
                self._producer.commit_transaction(TRANSACTION_S)
            except ck.KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return

    def _produce(self, record: ReplayRecord) -> None:
        number, count = record.partition, self._count(record.topic)
        self._send(
            topic=record.topic,
            partition=number if number is not None and 0 <= number < count else -1,
            key=record.key,
            value=record.value,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
        )

    def _send(self, **record: Any) -> None:
        while True:
            try:
                self._producer.produce(**record, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def _delivered(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            self._failed.append((error.code(), f"{message.topic()}: {error.str()}"))

    def _count(self, topic: str) -> int:
        import confluent_kafka as ck

        if topic not in self._partitions:
            try:
                found = self._producer.list_topics(topic, timeout=ANSWER_S).topics[topic]
            except ck.KafkaException as error:
                raise explain(self._topic.kafka, error, DeadLettersRefused) from error
            if found.error is not None:
                raise DeadLettersRefused(f"topic {topic}: {found.error.str()}; choose another with --to", topic=topic)
            self._partitions[topic] = len(found.partitions)
        return self._partitions[topic]
