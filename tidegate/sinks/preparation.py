"""Prepares the transactions of one sink subtask on a thread: flushes them and proves them complete (`proof.py`)."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from tidegate.committable import Committable
from tidegate.ids import Attempt, CheckpointId, SlotIndex, TopicPartition
from tidegate.sinks.backlog import QueuedBarrier
from tidegate.sinks.outage import SinkOutage
from tidegate.sinks.producers import SinkProducers, SinkThreads, taken
from tidegate.sinks.proof import Flushed, decide_committable, decide_first_sequences, decide_flushed
from tidegate.task.ports import Prepared

if TYPE_CHECKING:
    from tidegate.clock import Clock
    from tidegate.kafka.transactions import TransactionClient
    from tidegate.kafka.writer import TransactionWriter
    from tidegate.operators.builtin.kafka_sink import SinkOperator

PREPARE_TIMEOUT_S: Final = 120.0
PROOF_AGE_S_MAX: Final = 600.0
"""Seconds after which a first sequence is proven again: brokers forget idle producers (by default after a day)."""


class Preparation:
    """The preparation of one sink subtask. The loop submits barriers and takes the results.

    The thread processes them one after another, so answers leave in the order of their barriers.
    """

    def __init__(
        self,
        operator: SinkOperator,
        subtask: SlotIndex,
        attempt: Attempt,
        producers: SinkProducers,
        outage: SinkOutage,
        threads: SinkThreads,
        clock: Clock,
    ) -> None:
        self._operator = operator
        self._subtask = subtask
        self._attempt = attempt
        self._producers = producers
        self._outage = outage
        self._threads = threads
        self._clock = clock
        self._flushed: deque[CheckpointId] = deque()
        self._returned: deque[TransactionWriter] = deque()
        """Without transactions: the producer, after its records were delivered."""
        self._results: deque[Prepared] = deque()
        self._proven: dict[tuple[int, TopicPartition], float] = {}

    def submit(self, writer: TransactionWriter | None, barrier: QueuedBarrier) -> None:
        """Prepares what a writer has produced for the barrier. `writer` is None if nothing was produced.

        An empty barrier also waits its turn: an answer that overtook the proof of the previous transaction would be
        acknowledged without that transaction.
        """
        job = partial(self._answer, barrier, ()) if writer is None else partial(self._prepare, writer, barrier)
        self._threads.prepare.submit(job)

    def take_flushed(self) -> bool:
        """Returns whether a flush has ended since the last call."""
        if not self._flushed:
            return False
        self._flushed.popleft()
        return True

    def take_returned(self) -> TransactionWriter | None:
        """Returns the producer to write on with, if it was handed back."""
        return self._returned.popleft() if self._returned else None

    def take_prepared(self) -> Prepared | None:
        """Returns the next answer, if there is one."""
        return self._results.popleft() if self._results else None

    def discard(self) -> None:
        """Passes producers that have not been taken to the dropping thread."""
        for writer in taken(self._returned):
            self._threads.discard(writer)

    # -- on the preparing thread ---------------------------------------------------------------------------------------

    def _prepare(self, writer: TransactionWriter, barrier: QueuedBarrier) -> None:
        if self._producers.pool is None:
            self._deliver(writer, barrier)
            return
        with self._threads.discarding_on_failure(writer):
            flushed = self._flush(writer, barrier.checkpoint)
            self._flushed.append(barrier.checkpoint)
            self._threads.wake()
            client = self._producers.client
            assert client is not None
            committable = self._outage.wait_out(partial(self._prove, flushed, client))
        self._producers.remember((committable,))
        self._answer(barrier, (committable,))
        self._threads.discard(writer)

    def _deliver(self, writer: TransactionWriter, barrier: QueuedBarrier) -> None:
        """Without transactions: delivers all records and hands the producer back to the loop."""
        with self._threads.discarding_on_failure(writer):
            self._flush(writer, barrier.checkpoint)
        self._returned.append(writer)
        self._flushed.append(barrier.checkpoint)
        self._threads.discard_late(self._returned)
        self._answer(barrier, ())

    def _flush(self, writer: TransactionWriter, checkpoint: CheckpointId) -> Flushed:
        """Delivers all records. Raises SinkFailed, SinkRefused."""
        undelivered = self._outage.flush(writer)
        flushed = Flushed(
            sink=self._operator.name,
            cluster=self._operator.cluster,
            subtask=self._subtask,
            attempt=self._attempt,
            checkpoint=checkpoint,
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
        prepare_ms = (self._clock.monotonic() - barrier.at_s) * 1000
        self._results.append(Prepared(barrier.checkpoint, committables, prepare_ms))
        self._threads.wake()

    def _prove(self, flushed: Flushed, client: TransactionClient) -> Committable:
        """Asks the broker whether the transaction is complete. Raises SinkFailed."""
        expected = self._producers.written_last
        view = client.prepared_view(flushed.transactional_id, flushed.producer, expected, PREPARE_TIMEOUT_S)
        committable = decide_committable(flushed, view)
        now = self._clock.monotonic()
        new = {
            part.partition: part.start_offset
            for part in committable.written
            if now - self._proven.get((flushed.producer.id, part.partition), -PROOF_AGE_S_MAX) >= PROOF_AGE_S_MAX
        }
        sequences = client.first_sequences(new, flushed.producer, PREPARE_TIMEOUT_S) if new else {}
        decide_first_sequences(flushed, sequences)
        self._proven.update({(flushed.producer.id, partition): now for partition in sequences})
        return committable
