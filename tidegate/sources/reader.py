"""The helper thread that owns a Kafka consumer: polls, collects messages within limits, notifies the loop.

The consumer binding has no descriptor that a loop could wait on, so reading has its own thread; `consume` releases the
interpreter lock while it waits. Messages collect in one pending list. At a low rate the loop takes them at once; under
a backlog the list fills up to its limits while the loop processes the previous one.
"""

from __future__ import annotations

import logging
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate

import confluent_kafka as ck
import msgspec

from tidegate.coordinator.discovery import FIRST_OFFSET
from tidegate.coordinator.types import SourcePositions
from tidegate.ids import TopicPartition
from tidegate.kafka.errors import SourceFailed, SourceUnavailable
from tidegate.kafka.tls import RENEWAL_S, names_tls_files, stamp_tls_files
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.sources.consumer_errors import CHECK_SECONDS, ConsumerErrors, Outage
from tidegate.sources.fetching import Fetcher
from tidegate.sources.messages import NO_RECORDS, Records
from tidegate.sources.positions import CaughtUp, Due, Positions, derive_restored
from tidegate.sources.tools import (
    AT_ONCE,
    LINGER_S,
    REQUEST_SECONDS,
    SOURCE_TOOLS,
    Consumer,
    GatherTimes,
    SourceTools,
    derive_consumer_properties,
    read_bounds,
    read_ends,
)
from tidegate.task.elements import BYTES_MAX

_LOG = logging.getLogger("tidegate.sources")

MAX_RECORDS = 5_000
"""Records in one batch: more gains nothing, fewer cost CPU per record under a backlog."""
MAX_PENDING_BYTES = 8 * 2**20
"""Value bytes collected for the loop; one more record may follow, whatever its size."""
FEW_PER_SECOND = 25_600
"""A round of fewer records for its time counts as a low rate, unless their values are large."""
FEW_BYTES_PER_SECOND = 5 * 2**20
GATHERED_RECORDS = 1_000
"""The loop is woken for this many at once: a barrier must not wait for more."""
GATHERED_BYTES = 2**18
RELEASE_S_MAX = 0.01
"""How long a barrier waits at most for the records that the client has: a hundred times as long as it takes."""
_IDLE_SECONDS = 0.1
_PATIENT_SECONDS = 0.5
"""The same where ends of partitions do not matter, and the thread can be woken."""
_RETRY_SECONDS = 0.5
_STABLE_SECONDS = 1.0
"""For the request whether a partition is still caught up, which is repeated."""

_ENGINE_OWNED: Mapping[str, str | bool] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # an offset that is gone must be noticed, never skipped
}


def _has_open_transaction(consumer: Consumer, part: TopicPartition, stable: int) -> bool:
    """Returns whether records follow the last stable offset, by the high watermark of the last fetch: a few ms old."""
    _, high = consumer.get_watermark_offsets(ck.TopicPartition(part.topic, part.partition), cached=True)
    return high > stable


class Pending(msgspec.Struct):
    """What was collected since the loop last took it: records in arrival order, then reports about partitions."""

    records: Records = NO_RECORDS
    ends: dict[TopicPartition, int] = {}
    size_bytes: int = 0
    caught_up: dict[TopicPartition, Due] = {}
    """Partitions whose last stable offset has not changed since it was reached, confirmed after some time or on
    request: see `ConsumerThread.watch` and `ConsumerThread.ask`.
    """

    def __bool__(self) -> bool:
        return bool(self.records or self.ends or self.caught_up)

    def split(self, rows: int, bytes_max: int = BYTES_MAX) -> tuple[Pending, Pending]:
        """Splits off at most `rows` records and `bytes_max` bytes; the second part also has everything that is not a
        record.

        A record larger than `bytes_max` is taken alone.
        """
        if rows and self.size_bytes > bytes_max:
            rows = max(1, min(rows, bisect_right(list(accumulate(self.records.sizes)), bytes_max)))
        count = len(self.records)
        if count <= rows:
            return self, Pending()
        first = self.records.part(0, rows)
        size_bytes = first.size_bytes
        rest = Pending(self.records.part(rows, count), self.ends, self.size_bytes - size_bytes, self.caught_up)
        return Pending(first, {}, size_bytes), rest


class RoundPace:
    """The size and the timing of rounds, from those of the last one. Pure.

    `linger_s` is the shortest interval between rounds at a low rate, since each costs about a millisecond whatever its
    size.
    """

    def __init__(self, linger_s: float = LINGER_S) -> None:
        self._linger_s = linger_s
        self._mean_bytes = 256.0
        self._last_at = -linger_s
        self._plenty = False

    def note(self, records: int, size_bytes: int, now: float) -> None:
        """Records what a round has handed over to the loop."""
        self._last_at = now
        self._plenty = records >= FEW_PER_SECOND * self._linger_s or size_bytes >= FEW_BYTES_PER_SECOND * self._linger_s
        if records:
            self._mean_bytes = max(16.0, size_bytes / records)

    def room(self, pending: Pending) -> int:
        """Returns how many more records may be fetched."""
        if pending.size_bytes >= MAX_PENDING_BYTES:
            return 0
        by_bytes = int((MAX_PENDING_BYTES - pending.size_bytes) / self._mean_bytes) + 1
        return min(MAX_RECORDS - len(pending.records), by_bytes)

    def linger_seconds(self, now: float) -> float:
        """Returns how long to wait for more after a first record; the first one after a pause is not held back.

        Where records gather at the broker, most rounds begin when nearly enough time has passed: a wait for the rest
        would only be one more wake-up.
        """
        pause = self._last_at + self._linger_s - now
        return 0.0 if self._plenty or pause < self._linger_s / 4 else pause


class Gathering:
    """When the loop takes what is pending: at once, or when records have gathered for some time. Pure."""

    def __init__(self, times: GatherTimes) -> None:
        self._times = times
        self._due_at = 0.0
        self._is_first = True
        """Whether the next batch is the first one behind a barrier."""
        self.woken = False
        """Whether the loop was woken for what is pending."""

    def begin(self, now: float) -> None:
        """Begins with the first record of a batch."""
        self._due_at = now + (self._times.first_s if self._is_first else self._times.later_s)
        self._is_first = self.woken = False

    def end(self) -> None:
        """Lets the loop take what has gathered."""
        self._due_at = 0.0

    def end_at_barrier(self) -> None:
        """Lets the loop take what has gathered. What is read from now on is behind the barrier."""
        self.end()
        self._is_first = True

    def left_s(self, now: float) -> float:
        """Returns how long records gather yet; 0 or less if they need not."""
        return self._due_at - now


class Waits:
    """What the waits of the reading thread depend on, and how they are ended. Guarded by its condition."""

    def __init__(self, *, patient: bool) -> None:
        self.patient = patient
        """Whether it is woken for all else than records, so that it may wait for them longer."""
        self.stopping = False
        self.lingering = False
        """Whether it lets records wait in the client for others."""
        self.rounds = 0
        """Rounds that were handed over."""
        self.fetcher: Fetcher | None = None
        """While the thread reads."""


class ConsumerThread:
    """The reading thread of one source. Start it once; the loop calls the public methods."""

    def __init__(
        self,
        operator: SourceOperator,
        partitions: Sequence[TopicPartition],
        restored: SourcePositions,
        group_id: str,
        wake: Callable[[], None],
        tools: SourceTools = SOURCE_TOOLS,
    ) -> None:
        self._operator = operator
        self._partitions = list(partitions)
        self._restored = restored
        self._wake = wake
        self._tools = tools
        endless = operator.until == "never"
        linger_s = tools.linger_s if endless else min(tools.linger_s, LINGER_S)
        # Otherwise ends of partitions matter, and questions about them would wait for a fetch that waits at the broker.
        gathers = endless and not operator.carries_time and not operator.planned.catches_up
        waits_s = linger_s if gathers else 0.0
        self._config = {**derive_consumer_properties(operator.kafka, waits_s), **_ENGINE_OWNED, "group.id": group_id}
        self._gathering = Gathering(tools.gather_times if gathers else AT_ONCE)
        self._changed = tools.condition()
        self._pending = Pending()
        self._waits = Waits(patient=gathers)
        self._failure: SourceFailed | SourceUnavailable | None = None
        self._initial: Positions | None = None
        self._flow: dict[TopicPartition, bool] = {}
        """Partitions to start (True) or stop (False) fetching."""
        self._added: list[TopicPartition] = []
        self._added_retry_at = 0.0
        self._pace = RoundPace(linger_s)
        self._outage = Outage(operator.name, tools.clock, partial(stamp_tls_files, operator.kafka))
        self._errors = ConsumerErrors(operator, self._outage, tools.clock)
        self._caught_up = CaughtUp()
        self._thread = tools.helper(f"source-{operator.name}", self._on_bug)

    def start(self) -> None:
        """Starts connecting and reading."""
        self._thread.submit(self._run)

    def initial(self) -> Positions | None:
        """Returns the initial positions, once they are known. Raises the error that ended the reader."""
        with self._changed:
            self._raise_failure()
            return self._initial

    def wait_initial(self, seconds: float) -> Positions:
        """Waits for `initial`. Raises SourceUnavailable when the brokers do not answer in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._initial is not None or self._failure is not None, seconds)
            self._raise_failure()
            if self._initial is None:
                raise SourceUnavailable(
                    f"source {self._operator.name}: no answer from {self._config.get('bootstrap.servers')} in "
                    f"{seconds:g} s ({self._outage.last}); check the address, the network and the credentials",
                    source=self._operator.name,
                )
            return self._initial

    def take(self, rows_max: int, bytes_max: int = BYTES_MAX) -> Pending | None:
        """Takes pending records within the limits; None if nothing is pending, or records gather. With 0, only what
        precedes the next record.

        Raises the error that ended the reader, after the records before it.
        """
        with self._changed:
            if not self._pending:
                self._raise_failure()
                return None
            if self._failure is None and self._gathering.left_s(self._tools.clock.monotonic()) > 0:
                return None
            taken, self._pending = self._pending.split(rows_max, bytes_max)
            self._changed.notify_all()
            return taken

    def release(self) -> bool:
        """Lets the next `take` return what gathers, here or in the client. Returns whether it otherwise would not."""
        with self._changed:
            if self._waits.lingering:
                self._waits.lingering, rounds = False, self._waits.rounds
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waits.rounds > rounds or self._failure is not None, RELEASE_S_MAX)
            gathering = bool(self._pending) and self._gathering.left_s(self._tools.clock.monotonic()) > 0
            self._gathering.end_at_barrier()
            return gathering

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Stops fetching these: a bounded read has finished them, or they wait."""
        with self._changed:
            self._flow.update(dict.fromkeys(partitions, False))

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        """Fetches these again, from where they were paused."""
        with self._changed:
            self._flow.update(dict.fromkeys(partitions, True))

    def add(self, partitions: Sequence[TopicPartition]) -> None:
        """Also reads these, from their first offset, as soon as the brokers know them."""
        with self._changed:
            self._added.extend(partitions)

    def _wake_reader(self) -> None:
        self._changed.notify_all()
        if self._waits.fetcher is not None:
            self._waits.fetcher.wake()

    def watch(self, ends: Mapping[TopicPartition, int]) -> None:
        """Watches ends before which everything has been emitted. Reports each once it is known to stay there.

        This is known when, after some time, the broker confirms that its last stable offset is still the same. A slow
        slot, or a broker that does not answer, never makes a partition caught up.
        """
        if ends:
            with self._changed:
                self._caught_up.watch(ends, self._tools.clock.monotonic())

    def ask(self, questions: Mapping[TopicPartition, Due]) -> None:
        """Asks the broker whether partitions still end at these offsets, before which everything has been emitted.

        Answers are reported as for `watch`, with the number of the question.
        """
        with self._changed:
            self._caught_up.ask(questions, self._tools.clock.monotonic())
            self._wake_reader()

    def close(self, seconds: float) -> None:
        """Ends the thread; pending records are dropped (their positions were never reported)."""
        with self._changed:
            self._waits.stopping = True
            self._wake_reader()
        self._thread.stop()
        if not self._thread.join(seconds):
            text = "source %s: its reader did not end within %g s, and is abandoned"
            _LOG.warning(text, self._operator.name, seconds)

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            consumer = self._open()
        except SourceFailed as failure:
            self._fail(failure)
            return
        fetcher = self._tools.fetcher(consumer, self._outage.on_error)
        with self._changed:
            self._waits.fetcher = fetcher
        try:
            self._read_all(consumer, fetcher)
        finally:
            with self._changed:
                self._waits.fetcher = None
            fetcher.close()
            consumer.close()

    def _read_all(self, consumer: Consumer, fetcher: Fetcher) -> None:
        """Reads until asked to stop. Waits for that even after a failure: the client owns the pending records."""
        try:
            self._prepare(consumer, fetcher)
            while not self._waits.stopping:
                self._read(consumer, fetcher)
        except (SourceFailed, SourceUnavailable) as failure:
            self._fail(failure)
        except Exception as bug:  # noqa: BLE001  # whatever it is, the loop may be reading what is pending
            self._on_bug(bug)
        with self._changed:
            self._changed.wait_for(lambda: self._waits.stopping)

    def _on_bug(self, error: BaseException) -> None:
        """Reports any exception: a thread that ended silently would freeze the source."""
        name = self._operator.name
        self._fail(SourceUnavailable(f"source {name}: {type(error).__name__}: {error}", source=name))

    def _open(self) -> Consumer:
        """Opens the consumer; waits while certificate files are being replaced."""
        name, kafka = self._operator.name, self._operator.kafka
        patient_until = self._tools.clock.monotonic() + (RENEWAL_S if names_tls_files(kafka) else 0.0)
        while True:
            try:
                return self._tools.consumer(self._config, self._outage.on_error)
            except (ck.KafkaException, ValueError, TypeError) as error:
                if self._waits.stopping or self._tools.clock.monotonic() >= patient_until:
                    text = f"source {name}: the Kafka client rejects its settings: {error}"
                    raise SourceFailed(text, source=name) from error
            with self._changed:
                self._changed.wait_for(lambda: self._waits.stopping, _RETRY_SECONDS)

    def _prepare(self, consumer: Consumer, fetcher: Fetcher) -> None:
        """Determines the positions and assigns them; retries during a broker outage, until asked to stop."""
        started = self._tools.clock.monotonic()
        while not self._waits.stopping:
            try:
                positions = self._read_positions(consumer)
            except ck.KafkaException as error:
                self._errors.check_request(error.args[0], self._tools.clock.monotonic() - started)
                with self._changed:
                    self._changed.wait_for(lambda: self._waits.stopping, _RETRY_SECONDS)
                continue
            fetcher.expect(positions.next_offsets)
            consumer.assign([ck.TopicPartition(p.topic, p.partition, o) for p, o in positions.next_offsets.items()])
            with self._changed:
                self._initial = positions
                self._changed.notify_all()
            self._wake()
            return

    def _read_positions(self, consumer: Consumer) -> Positions:
        """Returns the restored positions; requests only the beginning of unknown partitions."""
        nexts, ends, unknown = derive_restored(self._partitions, self._restored)
        nexts.update({part: read_bounds(consumer, part)[0] for part in unknown})
        if self._operator.until == "never":
            return Positions(self._operator.name, nexts, initial_ends=self._read_initial_ends(consumer))
        return Positions(self._operator.name, nexts, {**ends, **{part: nexts[part] for part in unknown}})

    def _read_initial_ends(self, consumer: Consumer) -> dict[TopicPartition, int]:
        """Returns the last stable offsets, if they are needed. Raises KafkaException if one is not known."""
        if not self._operator.planned.catches_up or not self._partitions:
            return {}
        answers = read_ends(consumer, self._partitions, REQUEST_SECONDS)
        for one in answers:
            if one.error is not None:
                raise ck.KafkaException(one.error)
        return {TopicPartition(one.topic, one.partition): one.offset for one in answers}

    def _read(self, consumer: Consumer, fetcher: Fetcher) -> None:
        """Runs one round: waits for room, takes what the client has, hands it over."""
        self._outage.check()
        if self._added:
            self._assign_added(consumer, fetcher)
        room = self._wait_for_room(consumer)
        self._find_caught_up(consumer)
        if room == 0:
            return
        idle_s = _PATIENT_SECONDS if self._waits.patient and fetcher.wakes else _IDLE_SECONDS
        if not fetcher.wait(min(idle_s, self._wake_if_due())):
            self._check_brokers(consumer)
            return
        self._linger()
        fetched = fetcher.take(room)
        self._outage.end()
        try:
            ends = self._errors.take_events(consumer, fetched.events)
        except (SourceFailed, SourceUnavailable):
            self._hand_over(fetched.before_events(), {})
            raise
        self._hand_over(fetched.records, ends)

    def _find_caught_up(self, consumer: Consumer) -> None:
        """Checks due partitions with one request per broker, whatever their number, since records wait meanwhile."""
        with self._changed:
            due = self._caught_up.due(self._tools.clock.monotonic())
        if not due:
            return
        stable: dict[TopicPartition, int] = {}
        try:
            answers = read_ends(consumer, due, _STABLE_SECONDS)
            stable = {TopicPartition(one.topic, one.partition): one.offset for one in answers if one.error is None}
            self._outage.heard()
        except ck.KafkaException as error:
            self._outage.on_error(error.args[0])
        with self._changed:
            now = self._tools.clock.monotonic()
            for part, asked in due.items():
                offset = stable.get(part)
                is_open = offset is not None and _has_open_transaction(consumer, part, offset)
                if self._caught_up.answer(part, asked, offset, now, is_open=is_open):
                    self._pending.caught_up[part] = asked
            found = bool(self._pending.caught_up)
        if found:
            self._wake()

    def _check_brokers(self, consumer: Consumer) -> None:
        """Checks by a request whether the brokers are back, since after an error without records nothing else shows it.

        Raises SourceUnavailable if they are and refuse the login.
        """
        if not self._outage.due():
            return
        try:
            consumer.list_topics(self._any_topic, timeout=CHECK_SECONDS)
        except ck.KafkaException as error:
            self._outage.inspect(lambda: self._tools.find_obstacle(self._operator.kafka))
            self._outage.on_error(error.args[0])
        else:
            self._outage.end()

    @property
    def _any_topic(self) -> str | None:
        """A topic of the source; None stands for all topics."""
        return next(iter((*self._operator.topics, *(part.topic for part in self._partitions))), None)

    def _linger(self) -> None:
        """Lets records gather at a low rate, unless there is a question to ask."""
        now = self._tools.clock.monotonic()
        pause = self._pace.linger_seconds(now)
        if pause > 0:
            with self._changed:
                self._waits.lingering = True
                self._changed.wait_for(
                    lambda: self._waits.stopping or self._caught_up.due(now) or not self._waits.lingering, pause
                )
                self._waits.lingering = False

    def _assign_added(self, consumer: Consumer, fetcher: Fetcher) -> None:
        """Assigns the added partitions that this client's broker already knows: assigning any other is an error."""
        if self._tools.clock.monotonic() < self._added_retry_at:
            return
        self._added_retry_at = self._tools.clock.monotonic() + _RETRY_SECONDS
        with self._changed:
            wanted = list(self._added)
        try:
            names = sorted({part.topic for part in wanted})
            found = {name: consumer.list_topics(name, timeout=REQUEST_SECONDS).topics[name] for name in names}
        except ck.KafkaException as error:
            self._errors.check_request(error.args[0], 0.0)
            return
        for name, topic in found.items():
            if topic.error is not None:
                self._errors.check_request(topic.error, 0.0, name)
        known = [part for part in wanted if part.partition in found[part.topic].partitions]
        fetcher.expect(known)
        consumer.incremental_assign([ck.TopicPartition(p.topic, p.partition, FIRST_OFFSET) for p in known])
        with self._changed:
            self._added = [part for part in self._added if part not in known]

    def _wait_for_room(self, consumer: Consumer) -> int:
        with self._changed:
            self._changed.wait_for(lambda: self._waits.stopping or self._pace.room(self._pending) > 0, 1.0)
            flow, self._flow = self._flow, {}
            room = 0 if self._waits.stopping else self._pace.room(self._pending)
        for fetched, change in ((False, consumer.pause), (True, consumer.resume)):
            parts = [ck.TopicPartition(part.topic, part.partition) for part in flow if flow[part] is fetched]
            if parts:
                change(parts)
        return room

    def _hand_over(self, records: Records, ends: dict[TopicPartition, int]) -> None:
        size_bytes, now = records.size_bytes, self._tools.clock.monotonic()
        self._pace.note(len(records), size_bytes, now)
        with self._changed:
            self._waits.rounds += 1
            pending = self._pending
            if not pending:
                self._gathering.begin(now)
            pending.records = pending.records.joined(records)
            pending.ends.update(ends)
            pending.size_bytes += size_bytes
            if len(pending.records) >= GATHERED_RECORDS or pending.size_bytes >= GATHERED_BYTES:
                self._gathering.end()
            self._changed.notify_all()
        self._wake_if_due()

    def _wake_if_due(self) -> float:
        """Wakes the loop once it may take what is pending. Returns how long to wait for more until then."""
        with self._changed:
            if not self._pending or self._gathering.woken:
                return math.inf
            left_s = self._gathering.left_s(self._tools.clock.monotonic())
            if left_s > 0:
                return left_s
            self._gathering.woken = True
        self._wake()
        return math.inf

    def _fail(self, failure: SourceFailed | SourceUnavailable) -> None:
        with self._changed:
            self._failure = failure
            self._changed.notify_all()
        self._wake()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
