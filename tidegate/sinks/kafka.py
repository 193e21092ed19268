"""A sink subtask: writes rows into the transaction of the current checkpoint interval and prepares it at the barrier.

Driven by the slot loop: no method but `close` blocks, except for one question where rows name partitions that are new
(`partition_counts.py`). What else would block runs on four helper threads, which post their
results and call `wake`: opening producers ahead of need, preparing (flush, then the proof of `proof.py`), dropping
producers, and watching a full queue drain. Rows after a barrier go to the next transaction only when the flush of
the one before has ended: otherwise records of one key could overtake each other between two producers.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

import msgspec

from tidegate.coordinator.types import Committable
from tidegate.errors import TidegateError
from tidegate.formats.record_limits import RecordLimits
from tidegate.formats.records import OutputRecords
from tidegate.ids import Attempt, CheckpointId, SlotIndex, TopicPartition, TransactionalId
from tidegate.kafka.errors import SinkFailed
from tidegate.kafka.facts import TopicLimits
from tidegate.kafka.producer_properties import derive_producer_properties
from tidegate.kafka.tools import KAFKA_TOOLS, KafkaTools
from tidegate.kafka.transactions import TransactionClient
from tidegate.kafka.writer import OPEN_TIMEOUT_S, Writer
from tidegate.operators.kinds.dead_letters import DeadLetterOperator
from tidegate.operators.kinds.kafka_sink import SinkOperator
from tidegate.sinks.backlog import Backlog, QueuedBarrier
from tidegate.sinks.hanging import Blocked, derive_blocked, find_unended
from tidegate.sinks.limits import derive_record_limits, refuse_keyless
from tidegate.sinks.naming import TransactionalName
from tidegate.sinks.outage import SinkOutage
from tidegate.sinks.partition_counts import PartitionCounts
from tidegate.sinks.pool import POOL_SIZE_MAX, IdPool, derive_pool_size
from tidegate.sinks.proof import Flushed, decide_committable, decide_first_sequences, decide_flushed
from tidegate.task.ports import Prepared
from tidegate.task.stop_limits import derive_close_limit_s
from tidegate.threads import HelperThread

logger = logging.getLogger(__name__)

WARM_AHEAD: Final = 2
PREPARE_TIMEOUT_S: Final = 120.0
DRAIN_POLL_S: Final = 0.002
DRAIN_S_MAX: Final = 1.0
PROOF_AGE_S_MAX: Final = 600.0
"""A first sequence is proven again after so long: brokers forget idle producers (by default after a day)."""
REOPEN_S: Final = 3600.0
"""A warm producer that is not used for so long is reopened, or for a quarter of the time after which its coordinator
forgets its id (7 days by default), where that is shorter."""
ENDED_TIMEOUT_S: Final = 30.0
"""For a committed transaction to be ended in its partitions, before its id is used again; more than the daemon's
longest time between two looks for missing markers (`daemon/housekeeping.py`)."""
ENDED_PAUSE_S: Final = 0.05


class KafkaSink:
    """One sink subtask of one attempt. Made, then `open`, then driven by one thread; `close` at the end.

    The checkpoint interval and `max_concurrent` checkpoints set the number of transactional ids; the token of the
    `journal` makes them this checkpoint directory's own. With `exactly_once` False there is one plain idempotent
    producer, and prepare means that everything is delivered.
    """

    def __init__(
        self,
        operator: SinkOperator,
        pipeline: str,
        subtask: SlotIndex,
        attempt: Attempt,
        transaction_timeout_ms: int,
        wake: Callable[[], None],
        *,
        journal: str = "",
        exactly_once: bool = True,
        interval_ms: int = 1000,
        max_concurrent: int = 1,
        tools: KafkaTools = KAFKA_TOOLS,
    ) -> None:
        self._tools = tools
        self._clock = tools.clock
        self._operator = operator
        self._subtask = subtask
        self._attempt = attempt
        self._timeout_ms = transaction_timeout_ms
        self._wake = wake
        self._exactly_once = exactly_once
        names = [
            TransactionalName(pipeline, operator.name, subtask, attempt, index, journal)
            for index in range(POOL_SIZE_MAX)
        ]
        ids = [name.transactional_id for name in names] if exactly_once else []
        size = derive_pool_size(interval_ms, max_concurrent)
        self._pool = IdPool(ids[:size], spare=ids[size:])
        self._client: TransactionClient | None = None
        self._properties = derive_producer_properties(operator.kafka, None, transaction_timeout_ms)
        self._limits: dict[str, TopicLimits] = {}  # of all topics, or of none as long as they are not known
        self._names_partitions = operator.partition is not None or isinstance(operator, DeadLetterOperator)
        self._partitions = PartitionCounts(self._clock)
        self._outage = SinkOutage(operator, tools, self._stopping)
        self._looker: TransactionClient | None = None
        """Whom to ask about partitions that rows name, and nobody knows of yet."""
        self._backlog = Backlog(int(self._properties["queue.buffering.max.messages"]))
        self._writer: Writer | None = None
        self._warm: deque[Writer] = deque()
        self._warm_since: dict[TransactionalId, float] = {}
        self._reopen_s, self._opening = REOPEN_S, 0
        self._flushing = self._draining = False
        self._ending = False  # no rows follow, so no transaction is opened for them
        self._closing, self._closed, self._close_by = False, False, 0.0
        self._opened_in_s = 0.0
        self._opened: deque[Writer] = deque()
        self._flushed: deque[Writer] = deque()
        self._results: deque[Prepared] = deque()
        self._failures: deque[BaseException] = deque(maxlen=8)
        self._unconfirmed: dict[CheckpointId, tuple[Committable, ...]] = {}
        self._open_since: dict[CheckpointId, float] = {}
        """First record of the transaction that is prepared, or being prepared, for a checkpoint; monotonic seconds."""
        self._proven: dict[tuple[int, TopicPartition], float] = {}
        self._last: dict[TransactionalId, Committable] = {}
        title = f"{operator.name}-{subtask}"
        self._openers, self._preparers, self._droppers, self._drainers = (
            tools.helper(f"sink-{role}-{title}", self._fail) for role in ("open", "prepare", "drop", "drain")
        )

    # -- driven by the slot loop ---------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start opening producers in the background."""
        self._open_ahead()

    @property
    def room(self) -> int:
        """Rows that may be written now; 0 while the client is nearly full, or the topics' limits are not known."""
        if not self._limits or (self._names_partitions and not self._partitions):
            return 0
        return self._backlog.room(None if self._flushing or self._writer is None else self._writer.room)

    def record_limits(self, topic: str) -> RecordLimits:
        """What a record may be like that is written to one of the topics now; only when there is room."""
        limits = derive_record_limits(topic, self._properties, self._limits[topic], self._clock.now_ms())
        if not self._names_partitions:
            return limits
        return msgspec.structs.replace(limits, partitions=self._partitions[topic])

    def has_grown(self, topic: str) -> bool:
        """Whether a topic has partitions that were not known. The only question that is asked by the slot loop itself:
        a row that waits for its answer in here would be overtaken by barriers. Raises BrokerUnavailable, KafkaRefused.
        """
        return self._looker is not None and self._partitions.look_again(topic, self._looker)

    def write(self, rows: OutputRecords) -> None:
        """Queue rows; never blocks. Call `turn` afterwards."""
        self._backlog.add(rows)

    def turn(self) -> bool:
        """Hand queued rows to the client and look for errors; True when something moved. Raises SinkFailed."""
        self._raise_failure()
        progressed = self._take_results()
        self._reopen_idle()
        if self._writer is not None:
            self._writer.poll()
        while (head := self._backlog.head) is not None and not self._flushing:
            if isinstance(head, QueuedBarrier):
                self._backlog.pass_barrier()
                self._begin_prepare(head)
                progressed = True
                continue
            writer = self._current_writer()
            if writer is None:
                break
            place = self._backlog.place
            done = writer.write(head, place)
            progressed |= done > place
            if not self._backlog.advance(done):
                writer.poll()
                break
        if self._writer is not None and not self._flushing and not self.room:
            self._watch_drain(self._writer)
        return progressed

    def prepare(self, checkpoint: CheckpointId, *, final: bool = False) -> None:
        """The barrier: rows written so far belong to `checkpoint`; flushed and counted in the background."""
        self._ending |= final
        self._backlog.add_barrier(QueuedBarrier(checkpoint, self._clock.monotonic()))

    def poll_prepared(self) -> Sequence[Prepared]:
        """The next finished prepare, one at a time: `unconfirmed` then never runs ahead of the checkpoint it goes with.

        Raises SinkFailed, SinkRefused when one failed.
        """
        self._raise_failure()
        if not self._results:
            return ()
        prepared = self._results.popleft()
        if prepared.committables:
            self._unconfirmed[prepared.checkpoint] = prepared.committables
        for committable in prepared.committables:
            self._pool.proven(committable.transactional_id)
        return (prepared,)

    def unconfirmed(self) -> Sequence[Committable]:
        """Committables up to the newest polled checkpoint that no `completed` has confirmed; every ack repeats them."""
        return [committable for group in self._unconfirmed.values() for committable in group]

    def completed(self, checkpoint: CheckpointId, released: frozenset[TransactionalId]) -> None:
        """The checkpoint is in the journal, with all that was unconfirmed; `released` ids may be used again."""
        for older in [known for known in self._unconfirmed if known <= checkpoint]:
            del self._unconfirmed[older]
            self._open_since.pop(older, None)
        freed = [self._pool.released(transactional_id, checkpoint) for transactional_id in released]
        if any(freed) and not self._ending:
            self._open_ahead()

    def aborted(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was given up. What was prepared for it stays prepared and unconfirmed for a later one."""

    @property
    def oldest_age_ms(self) -> int | None:
        """Since the oldest transaction that may still be open took its first record; None without one.

        By this machine's monotonic clock alone. Safe from any thread: `tuple` copies a dictionary's values in one step.
        """
        starts = list(self._open_since.values()) if self._exactly_once else []
        writer = self._writer
        if writer is not None and writer.first_record_at is not None and self._exactly_once:
            starts.append(writer.first_record_at)
        return int((self._clock.monotonic() - min(starts)) * 1000) if starts else None

    def begin_close(self, timeout_s: float | None = None) -> None:
        """Let the threads end, which several sinks can wait for together. A second call changes nothing."""
        if not self._closing:
            self._closing = True
            limit_s = derive_close_limit_s(self._opened_in_s) if timeout_s is None else timeout_s
            self._close_by = self._clock.monotonic() + limit_s
            for helper in (self._openers, self._preparers, self._drainers):
                helper.stop()

    def close(self, timeout_s: float | None = None) -> None:
        """Drop the producers, join the threads. Prepared transactions stay prepared, open ones are left to fencing."""
        self.begin_close(timeout_s)
        ended = [self._joined(helper) for helper in (self._openers, self._preparers, self._drainers)]
        self._closed = True  # from now on a thread that is late drops what it has itself
        for each in (self._warm, self._opened, self._flushed):
            for writer in _taken(each):
                self._droppers.submit(writer.discard)
        if self._writer is not None:
            self._droppers.submit(self._writer.discard)
            self._writer = None
        self._droppers.stop()
        ended.append(self._joined(self._droppers))
        for client in {self._client, self._looker}:
            if client is not None:
                client.close()
        self._outage.close()
        if not all(ended):
            logger.warning("sink %s: helper threads still run after their time limit", self._operator.name)

    def _joined(self, helper: HelperThread) -> bool:
        return helper.join(max(0.0, self._close_by - self._clock.monotonic()))

    # -- inside the loop thread ------------------------------------------------------------------------------------

    def _raise_failure(self) -> None:
        if not self._failures:
            return
        failure = self._failures[0]
        if isinstance(failure, TidegateError):
            raise failure
        raise SinkFailed(f"sink {self._operator.name}: {failure!r}", sink=self._operator.name) from failure

    def _take_results(self) -> bool:
        """What the helper threads have posted."""
        progressed = False
        while self._opened:
            writer = self._opened.popleft()
            self._opening -= 1
            if self._exactly_once:
                self._pool.opened(writer.transactional_id)
                self._warm_since[writer.transactional_id] = self._clock.monotonic()
            self._warm.append(writer)
            progressed = True
        while self._flushed:
            writer = self._flushed.popleft()
            self._flushing = False
            if not self._exactly_once:
                self._writer = writer
            progressed = True
        return progressed

    def _current_writer(self) -> Writer | None:
        if self._writer is None:
            if self._warm:
                self._writer = self._warm.popleft()
                if self._exactly_once:
                    self._pool.begun(self._writer.transactional_id)
            self._open_ahead()
        return self._writer

    def _open_ahead(self) -> None:
        """Open producers until enough are warm or no id is free."""
        wanted = WARM_AHEAD if self._exactly_once and not self._ending else int(self._writer is None)
        while self._opening + len(self._warm) < wanted and not self._closing:
            transactional_id = self._pool.take() if self._exactly_once else None
            if self._exactly_once and transactional_id is None:
                return
            self._opening += 1
            self._submit_opening(transactional_id)

    def _reopen_idle(self) -> None:
        """On an idle pipeline, before a coordinator forgets the ids: that would cost the attempt at the next record."""
        if not (self._exactly_once and self._warm):
            return
        oldest = self._warm[0]
        if self._clock.monotonic() - self._warm_since[oldest.transactional_id] < self._reopen_s:
            return
        self._warm.popleft()
        self._pool.reopened(oldest.transactional_id)
        self._opening += 1
        self._drop(oldest)
        self._submit_opening(oldest.transactional_id)

    def _begin_prepare(self, barrier: QueuedBarrier) -> None:
        writer = self._writer
        if writer is None or not writer.produced:
            # On the preparing thread, too: an answer that overtook the proof of the transaction before it would be
            # acknowledged without that transaction.
            self._preparers.submit(partial(self._answer, barrier, ()))
            return
        if self._exactly_once:
            self._pool.barrier(writer.transactional_id, barrier.checkpoint)
            assert writer.first_record_at is not None
            self._open_since[barrier.checkpoint] = writer.first_record_at
        self._writer = None
        self._flushing = True
        self._preparers.submit(partial(self._prepare, writer, barrier))

    def _watch_drain(self, writer: Writer) -> None:
        if not self._draining:
            self._draining = True
            self._drainers.submit(partial(self._drain, writer, writer.queued, hurried=self._backlog.has_barrier))

    def _drop(self, writer: Writer) -> None:
        """Destroying a producer takes 10 to 100 ms, so it happens on a thread of its own, as long as there is one."""
        if self._closed:
            writer.discard()
        else:
            self._droppers.submit(writer.discard)

    def _drop_late(self, posted: deque[Writer]) -> None:
        """What was posted after `close`, which waits for its time only: nobody takes it any more."""
        if self._closed:
            for writer in _taken(posted):
                writer.discard()

    # -- on the helper threads -------------------------------------------------------------------------------------

    @contextmanager
    def _dropped_on_failure(self, writer: Writer) -> Iterator[None]:
        """Else its producer would live, and ask for its broker, until the process ends."""
        try:
            yield
        except BaseException:
            self._drop(writer)
            raise

    def _fail(self, error: BaseException) -> None:
        self._failures.append(error)
        self._wake()

    def _stopping(self) -> bool:
        return self._closing

    def _submit_opening(self, transactional_id: TransactionalId | None, blocked: Blocked | None = None) -> None:
        opening = partial(self._open_writer, transactional_id, blocked)
        self._openers.submit(partial(self._outage.wait_out, opening))

    def _open_writer(self, transactional_id: TransactionalId | None, blocked: Blocked | None) -> None:
        """`blocked`: it was tried to use the id again before."""
        if self._closing:
            return
        if self._exactly_once and self._client is None:
            self._client = self._tools.connect_again(self._operator.kafka, OPEN_TIMEOUT_S)
            if self._closed:
                self._client.close()
                return
            lifetime_ms = self._client.id_lifetime_ms(OPEN_TIMEOUT_S)
            self._reopen_s = REOPEN_S if lifetime_ms is None else min(REOPEN_S, lifetime_ms / 4000)
        last = None if transactional_id is None else self._last.get(transactional_id)
        if last is not None and self._client is not None:
            opened = self._client.open_transactions([part.partition for part in last.written], PREPARE_TIMEOUT_S)
            unended = find_unended(last, opened)
            if unended:
                self._open_later(
                    last, unended, derive_blocked(blocked, self._clock.monotonic(), self._client.interruptions)
                )
                return
        if not self._limits:
            limits = self._read_limits()
            for topic, one in limits.items():
                refuse_keyless(self._operator, topic, one)
            self._limits = limits
        if self._looker is None and self._operator.partition is not None:
            self._looker = self._client or self._tools.connect_again(self._operator.kafka, OPEN_TIMEOUT_S)
        properties = derive_producer_properties(self._operator.kafka, transactional_id, self._timeout_ms)
        writer = self._tools.writer(self._operator.name, self._limits, properties)
        began = self._clock.monotonic()
        with self._dropped_on_failure(writer):
            writer.open(self._client, self._stopping)
        self._opened_in_s = self._clock.monotonic() - began
        self._partitions.learn(writer.partitions)
        self._opened.append(writer)
        self._drop_late(self._opened)
        self._wake()

    def _read_limits(self) -> dict[str, TopicLimits]:
        """Once: a topic that is changed while records flow refuses them itself, and the next attempt reads again."""
        client = self._client or self._tools.connect_again(self._operator.kafka, OPEN_TIMEOUT_S)
        try:
            return {topic: client.topic_limits(topic, OPEN_TIMEOUT_S) for topic in self._operator.topics}
        finally:
            if client is not self._client:
                client.close()

    def _open_later(self, last: Committable, unended: Sequence[TopicPartition], blocked: Blocked) -> None:
        """After other openings: the last transaction of the id has no marker in some partitions. Raises SinkFailed.

        Its coordinator may have left them out (`hanging.py`). The next transaction of the id would become one with it
        there, and take its committed records away when it is aborted.
        """
        if self._clock.monotonic() - blocked.since > ENDED_TIMEOUT_S:
            raise SinkFailed(
                f"sink {self._operator.name}: {last.transactional_id} was committed in checkpoint {last.checkpoint}, "
                f"but {', '.join(map(str, unended))} had no marker of it {ENDED_TIMEOUT_S:g} s later; its id cannot be "
                f"used again, so another attempt continues with new ones",
                sink=self._operator.name,
                transactional_id=last.transactional_id,
            )
        self._clock.sleep(ENDED_PAUSE_S)
        self._submit_opening(last.transactional_id, blocked)

    def _prepare(self, writer: Writer, barrier: QueuedBarrier) -> None:
        with self._dropped_on_failure(writer):
            flushed = self._flush(writer, barrier)
        self._flushed.append(writer)
        self._drop_late(self._flushed)
        self._wake()
        client = self._client
        committables = () if client is None else (self._outage.wait_out(partial(self._prove, flushed, client)),)
        self._last.update({one.transactional_id: one for one in committables})
        self._answer(barrier, committables)
        if self._exactly_once:
            self._drop(writer)

    def _flush(self, writer: Writer, barrier: QueuedBarrier) -> Flushed:
        """What became of all records. Raises SinkFailed, SinkRefused."""
        undelivered = self._outage.flush(writer)
        flushed = Flushed(
            sink=self._operator.name,
            subtask=self._subtask,
            attempt=self._attempt,
            checkpoint=barrier.checkpoint,
            transactional_id=writer.transactional_id,
            producer=writer.producer,
            produced=writer.produced,
            undelivered=undelivered,
            delivery_errors=writer.delivery_errors,
            first_error=writer.first_error,
            refused=writer.refused,
        )
        decide_flushed(flushed)
        return flushed

    def _answer(self, barrier: QueuedBarrier, committables: tuple[Committable, ...]) -> None:
        """Answers leave in the order of their barriers: this thread does one after the other."""
        self._results.append(
            Prepared(barrier.checkpoint, committables, (self._clock.monotonic() - barrier.at_s) * 1000)
        )
        self._wake()

    def _prove(self, flushed: Flushed, client: TransactionClient) -> Committable:
        """Ask the broker whether the transaction is whole. Raises SinkFailed."""
        view = client.prepared_view(flushed.transactional_id, flushed.producer, PREPARE_TIMEOUT_S)
        committable = decide_committable(flushed, view)
        now = self._clock.monotonic()
        new = [
            part
            for part in committable.written
            if now - self._proven.get((flushed.producer.id, part.partition), -PROOF_AGE_S_MAX) >= PROOF_AGE_S_MAX
        ]
        sequences = {
            part.partition: client.first_sequence(
                part.partition, part.start_offset, flushed.producer, PREPARE_TIMEOUT_S
            )
            for part in new
        }
        decide_first_sequences(flushed, sequences)
        self._proven.update({(flushed.producer.id, partition): now for partition in sequences})
        return committable

    def _drain(self, writer: Writer, full: int, *, hurried: bool) -> None:
        """Wake the loop when a quarter of what is queued has gone (or an error may be waiting for its poll).

        When a barrier waits for the rest of a batch the client sends at once, without gathering (`linger.ms`).
        """
        if hurried:
            writer.flush(DRAIN_S_MAX, self._stopping)
        deadline = self._clock.monotonic() + DRAIN_S_MAX
        while writer.queued > full * 3 // 4 and not self._closing and self._clock.monotonic() < deadline:
            self._clock.sleep(DRAIN_POLL_S)
        self._draining = False
        self._outage.check_draining(writer)
        self._wake()


def _taken(posted: deque[Writer]) -> Iterator[Writer]:
    """Each to one of the threads that take at the same time."""
    with suppress(IndexError):
        while True:
            yield posted.popleft()
