"""A sink subtask: writes rows into the transaction of the current checkpoint interval and prepares it at the barrier.

The slot loop drives it. No method except `close` blocks, apart from one request when rows name unknown partitions
(`limits.py`). Blocking work runs on helper threads (`producers.py`): producers are opened ahead of need
(`producers.py`), and transactions are prepared (`preparation.py`). Rows after a barrier go to the next transaction only
after the previous one has been flushed; otherwise records of one key could overtake each other between two producers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from tidegate.committable import Committable
from tidegate.formats.record_limits import RecordLimits
from tidegate.formats.records import OutputRecords
from tidegate.ids import Attempt, CheckpointId, SlotIndex, TransactionalId
from tidegate.kafka.properties import derive_producer_properties
from tidegate.kafka.tools import KAFKA_TOOLS, KafkaTools
from tidegate.kafka.writer import TransactionWriter
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.sinks.backlog import Backlog, QueuedBarrier
from tidegate.sinks.limits import SinkTopics
from tidegate.sinks.naming import TransactionalName
from tidegate.sinks.outage import SinkOutage
from tidegate.sinks.pool import POOL_SIZE_MAX, IdPool, derive_pool_size, derive_warm
from tidegate.sinks.preparation import Preparation
from tidegate.sinks.producers import SinkProducers, SinkThreads
from tidegate.task.ports import Prepared
from tidegate.task.stop_limits import derive_close_limit_s

logger = logging.getLogger(__name__)

DRAIN_POLL_S: Final = 0.002
DRAIN_S_MAX: Final = 1.0


class SinkPlacement(msgspec.Struct, frozen=True):
    """The subtask and attempt of a sink, and how its transactions are made.

    The checkpoint interval and `max_concurrent` checkpoints determine the number of transactional ids; the token of the
    `journal` makes them unique to this checkpoint directory. With `exactly_once` False there is one plain idempotent
    producer, and prepare means that everything is delivered.
    """

    pipeline: str
    subtask: SlotIndex
    attempt: Attempt
    transaction_timeout_ms: int
    journal: str
    exactly_once: bool = True
    interval_ms: int = 1000
    max_concurrent: int = 1

    def make_pool(self, operator: SinkOperator) -> IdPool | None:
        """Returns the pool of transactional ids of the subtask; None without transactions."""
        if not self.exactly_once:
            return None
        names = [
            TransactionalName(self.pipeline, operator.name, self.subtask, self.attempt, self.journal, index)
            for index in range(POOL_SIZE_MAX)
        ]
        ids = [name.transactional_id for name in names]
        size = derive_pool_size(self.interval_ms, self.max_concurrent)
        return IdPool(ids[:size], spare=ids[size:], warm=derive_warm(self.interval_ms))


class KafkaSink:
    """One sink subtask of one attempt. Call `open` first; a single thread drives it; call `close` at the end."""

    def __init__(
        self,
        operator: SinkOperator,
        placement: SinkPlacement,
        wake: Callable[[], None],
        *,
        tools: KafkaTools = KAFKA_TOOLS,
    ) -> None:
        self._operator = operator
        self._clock = tools.clock
        self._pool = placement.make_pool(operator)
        properties = derive_producer_properties(operator.kafka, None, placement.transaction_timeout_ms)
        self._topics = SinkTopics(operator, properties, tools)
        self._threads = SinkThreads(operator.name, placement.subtask, tools, wake)
        self._outage = SinkOutage(operator, tools, self._threads.is_stopping)
        self._producers = SinkProducers(
            operator,
            placement.transaction_timeout_ms,
            self._pool,
            self._topics,
            self._outage,
            self._threads,
            tools,
        )
        self._preparation = Preparation(
            operator,
            placement.subtask,
            placement.attempt,
            self._producers,
            self._outage,
            self._threads,
            tools.clock,
        )
        self._backlog = Backlog(int(properties["queue.buffering.max.messages"]))
        self._writer: TransactionWriter | None = None
        self._flushing = self._draining = False
        self._unconfirmed: dict[CheckpointId, tuple[Committable, ...]] = {}
        self._open_since: dict[CheckpointId, float] = {}
        """When the first record of a checkpoint's transaction was written; monotonic seconds. The transaction is
        prepared, or being prepared.
        """

    def open(self) -> None:
        """Starts opening producers in the background."""
        self._producers.open_ahead(writing=False)

    @property
    def room(self) -> int:
        """Rows that may be written now; 0 while the client is nearly full, or the topics' limits are unknown."""
        if not self._topics.known:
            return 0
        return self._backlog.room(None if self._flushing or self._writer is None else self._writer.room)

    def record_limits(self, topic: str) -> RecordLimits:
        """Returns the current limits for a record of one of the topics. Call it only when there is room."""
        return self._topics.record_limits(topic)

    def has_grown(self, topic: str) -> bool:
        """Returns whether a topic has partitions that were not known. Raises BrokerUnavailable, KafkaRefused.

        This is the only request that the slot loop makes itself: barriers would overtake a row that waited here for the
        answer.
        """
        return self._topics.has_grown(topic)

    def write(self, rows: OutputRecords) -> None:
        """Queues rows; never blocks. Call `turn` afterwards."""
        self._backlog.add(rows)

    def turn(self) -> bool:
        """Passes queued rows to the client and checks for errors. Returns True if anything moved. Raises SinkFailed."""
        self._threads.raise_failure()
        progressed = self._take_results()
        self._producers.reopen_idle()
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
        """Handles the barrier: assigns all rows so far to `checkpoint`, and flushes and counts them in the
        background.
        """
        self._producers.ending |= final
        self._backlog.add_barrier(QueuedBarrier(checkpoint, self._clock.monotonic()))

    def poll_prepared(self) -> Sequence[Prepared]:
        """Returns the next finished prepare.

        It returns one at a time, so that `unconfirmed` never gets ahead of the checkpoint it belongs to. Raises
        SinkFailed, SinkRefused if a prepare failed.
        """
        self._threads.raise_failure()
        prepared = self._preparation.take_prepared()
        if prepared is None:
            return ()
        if prepared.committables:
            self._unconfirmed[prepared.checkpoint] = prepared.committables
        if self._pool is not None:
            for committable in prepared.committables:
                self._pool.proven(committable.transactional_id)
        return (prepared,)

    def unconfirmed(self) -> Sequence[Committable]:
        """Returns committables up to the newest polled checkpoint that no `completed` has confirmed; every ack repeats
        them.
        """
        return [committable for group in self._unconfirmed.values() for committable in group]

    def completed(self, checkpoint: CheckpointId, released: frozenset[TransactionalId]) -> None:
        """Handles a checkpoint that is in the journal with all unconfirmed committables; `released` ids may
        be reused.
        """
        for older in [known for known in self._unconfirmed if known <= checkpoint]:
            del self._unconfirmed[older]
            self._open_since.pop(older, None)
        if self._producers.release(released, checkpoint) and not self._producers.ending:
            self._open_ahead()

    def aborted(self, checkpoint: CheckpointId) -> None:
        """Ignores the abort: transactions prepared for the checkpoint stay prepared, unconfirmed, for a later one."""

    @property
    def oldest_age_ms(self) -> int | None:
        """Time since the oldest possibly open transaction received its first record; None without such a transaction.

        Uses only this machine's monotonic clock. Safe from any thread: `list` copies a dictionary's values in one step.
        """
        if self._pool is None:
            return None
        starts = list(self._open_since.values())
        writer = self._writer
        if writer is not None and writer.first_record_at is not None:
            starts.append(writer.first_record_at)
        return int((self._clock.monotonic() - min(starts)) * 1000) if starts else None

    def begin_close(self, timeout_s: float | None = None) -> None:
        """Lets the threads end, so that several sinks can be awaited together. A second call has no effect."""
        limit_s = derive_close_limit_s(self._producers.opened_in_s) if timeout_s is None else timeout_s
        self._threads.begin_close(limit_s)

    def close(self, timeout_s: float | None = None) -> None:
        """Drops the producers and joins the threads. Prepared transactions stay prepared; open ones are left to
        fencing.
        """
        self.begin_close(timeout_s)
        ended = self._threads.join_workers()
        self._producers.discard()
        self._preparation.discard()
        if self._writer is not None:
            self._threads.discard(self._writer)
            self._writer = None
        self._threads.closed = True  # from now on a late thread drops its own producer
        self._producers.discard()
        self._preparation.discard()
        ended &= self._threads.join_dropping()
        self._producers.close()
        self._outage.close()
        if not ended:
            logger.warning("sink %s: helper threads are still running after their time limit", self._operator.name)

    def _take_results(self) -> bool:
        """Takes over the results of the helper threads. Returns whether there were any."""
        progressed = self._producers.take_opened()
        while self._preparation.take_flushed():
            self._flushing = False
            progressed = True
        returned = self._preparation.take_returned()
        if returned is not None:
            self._writer = returned
        return progressed

    def _current_writer(self) -> TransactionWriter | None:
        if self._writer is None:
            self._writer = self._producers.take()
            self._open_ahead()
        return self._writer

    def _open_ahead(self) -> None:
        self._producers.open_ahead(writing=self._writer is not None)

    def _begin_prepare(self, barrier: QueuedBarrier) -> None:
        writer = self._writer
        if writer is None or not writer.produced:
            self._preparation.submit(None, barrier)
            return
        if self._pool is not None:
            self._pool.barrier(writer.transactional_id, barrier.checkpoint)
            assert writer.first_record_at is not None
            self._open_since[barrier.checkpoint] = writer.first_record_at
        self._writer = None
        self._flushing = True
        self._preparation.submit(writer, barrier)

    def _watch_drain(self, writer: TransactionWriter) -> None:
        if not self._draining:
            self._draining = True
            self._threads.drain.submit(partial(self._drain, writer, writer.queued, hurried=self._backlog.has_barrier))

    def _drain(self, writer: TransactionWriter, full: int, *, hurried: bool) -> None:
        """Wakes the loop when a quarter of the queued records is sent, or after DRAIN_S_MAX, since an error may be
        waiting.

        Runs on the draining thread. If a barrier waits for the rest of a batch, the client sends at once, without
        gathering (`linger.ms`).
        """
        stopping = self._threads.is_stopping
        if hurried:
            writer.flush(DRAIN_S_MAX, stopping)
        deadline = self._clock.monotonic() + DRAIN_S_MAX
        while writer.queued > full * 3 // 4 and not stopping() and self._clock.monotonic() < deadline:
            self._clock.sleep(DRAIN_POLL_S)
        self._draining = False
        self._outage.check_draining(writer)
        self._threads.wake()
