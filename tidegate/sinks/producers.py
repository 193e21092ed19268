"""Producers of one sink subtask, opened ahead of need on a thread, each for one transaction; and the helper threads.

A transactional id is initialised again only after its last transaction has a marker in every partition, since its
coordinator may have skipped some (`hanging_transactions.py`). In such a partition, the next transaction of the id would
merge with it, and take its committed records away when aborted.

Work that would block the slot loop runs on helper threads: opening producers, preparing transactions, dropping
producers, and waiting until a full client has room again. Results are posted to the objects that submitted the jobs;
errors are kept until the loop asks for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from tidegate.committable import Committable
from tidegate.errors import TidegateError
from tidegate.ids import CheckpointId, OperatorName, TopicPartition, TransactionalId
from tidegate.kafka.errors import SinkFailed
from tidegate.kafka.properties import derive_producer_properties
from tidegate.kafka.tools import KafkaTools
from tidegate.kafka.writer import OPEN_TIMEOUT_S
from tidegate.sinks.hanging_transactions import BlockedPartition, derive_blocked, find_unended
from tidegate.sinks.limits import SinkTopics
from tidegate.sinks.outage import SinkOutage
from tidegate.sinks.pool import IdPool
from tidegate.threads import HelperThread

if TYPE_CHECKING:
    from tidegate.kafka.transactions import TransactionClient
    from tidegate.kafka.writer import TransactionWriter
    from tidegate.operators.builtin.kafka_sink import SinkOperator


class SinkThreads:
    """One thread for each kind of work.

    `is_stopping` is true from `begin_close` on, `closed` when results are no longer taken.
    """

    def __init__(self, sink: OperatorName, subtask: int, tools: KafkaTools, wake: Callable[[], None]) -> None:
        self._sink = sink
        self._clock = tools.clock
        self.wake = wake
        self._failures: deque[BaseException] = deque(maxlen=8)
        self._discarded: deque[TransactionWriter] = deque()
        self._stopping = self.closed = False
        self._close_by_s = 0.0
        self.open, self.prepare, self.drop, self.drain = (
            tools.helper(f"sink-{role}-{sink}-{subtask}", self._fail) for role in ("open", "prepare", "drop", "drain")
        )

    def _fail(self, error: BaseException) -> None:
        self._failures.append(error)
        self.wake()

    def raise_failure(self) -> None:
        """Raises the first error of a thread, if any: a TidegateError unchanged, others as SinkFailed."""
        if not self._failures:
            return
        failure = self._failures[0]
        if isinstance(failure, TidegateError):
            raise failure
        raise SinkFailed(f"sink {self._sink}: {failure!r}", sink=self._sink) from failure

    def is_stopping(self) -> bool:
        """Returns whether the results of the threads are no longer needed."""
        return self._stopping

    def begin_close(self, timeout_s: float) -> None:
        """Lets all threads except the dropping one end. A second call has no effect."""
        if not self._stopping:
            self._stopping = True
            self._close_by_s = self._clock.monotonic() + timeout_s
            for helper in (self.open, self.prepare, self.drain):
                helper.stop()

    def join_workers(self) -> bool:
        """Waits for the threads that `begin_close` has stopped. Returns whether all ended in time."""
        ended = [self._join(helper) for helper in (self.open, self.prepare, self.drain)]
        return all(ended)

    def join_dropping(self) -> bool:
        """Stops the dropping thread after its last job and waits for it. Returns whether it ended in time."""
        self.drop.stop()
        return self._join(self.drop)

    def _join(self, helper: HelperThread) -> bool:
        return helper.join(max(0.0, self._close_by_s - self._clock.monotonic()))

    def discard(self, writer: TransactionWriter) -> None:
        """Destroys a producer. This takes 10 to 100 ms, so it is left to a thread while there is one."""
        self._discarded.append(writer)
        if not self.closed:
            self.drop.submit(self._discard_next)
        if self.closed:  # the thread may have taken its last job before this one was submitted
            self.discard_late(self._discarded)

    def _discard_next(self) -> None:
        with suppress(IndexError):
            self._discarded.popleft().discard()

    def discard_late(self, posted: deque[TransactionWriter]) -> None:
        """Destroys producers posted after `close` stopped waiting, since nothing takes them any more."""
        if self.closed:
            for writer in taken(posted):
                writer.discard()

    @contextmanager
    def discarding_on_failure(self, writer: TransactionWriter) -> Iterator[None]:
        """Destroys the producer if the block raises; otherwise it would stay connected until the process ends."""
        try:
            yield
        except BaseException:
            self.discard(writer)
            raise


def taken(posted: deque[TransactionWriter]) -> Iterator[TransactionWriter]:
    """Removes and yields writers from a queue; safe for several threads at once."""
    with suppress(IndexError):
        while True:
            yield posted.popleft()


ASK_TIMEOUT_S: Final = 120.0
REOPEN_S: Final = 3600.0
"""Idle seconds after which a warm producer is reopened.

If shorter, a quarter of the time after which its coordinator forgets its id applies (7 days by default).
"""
ENDED_TIMEOUT_S: Final = 30.0
"""Seconds for a committed transaction to end in its partitions before its id is reused; longer than the daemon's
longest interval between two checks for missing markers (`daemon/housekeeping.py`).
"""
ENDED_PAUSE_S: Final = 0.05


class SinkProducers:
    """The producers of one sink subtask. Without transactions `pool` is None, and one plain producer is opened.

    The loop's thread calls everything except the methods below "on the opening thread".
    """

    def __init__(
        self,
        operator: SinkOperator,
        timeout_ms: int,
        pool: IdPool | None,
        topics: SinkTopics,
        outage: SinkOutage,
        threads: SinkThreads,
        tools: KafkaTools,
    ) -> None:
        self._operator = operator
        self._timeout_ms = timeout_ms
        self.pool = pool
        self._topics = topics
        self._outage = outage
        self._threads = threads
        self._tools = tools
        self._clock = tools.clock
        self.client: TransactionClient | None = None
        """The client for requests about transactions; None before the first producer is open, and without
        transactions.
        """
        self._warm: deque[TransactionWriter] = deque()
        self._warm_since: dict[TransactionalId, float] = {}
        self._reopen_s = REOPEN_S
        self._opening = 0
        self._opened: deque[TransactionWriter] = deque()
        self.opened_in_s = 0.0
        """How long it took to open the last producer."""
        self._last: dict[TransactionalId, Committable] = {}
        self.ending = False
        """No rows follow, so no transaction is opened ahead for them."""

    def take_opened(self) -> bool:
        """Takes over the producers that the thread has opened. Returns whether there were any."""
        progressed = False
        while self._opened:
            writer = self._opened.popleft()
            self._opening -= 1
            if self.pool is not None:
                self.pool.opened(writer.transactional_id)
                self._warm_since[writer.transactional_id] = self._clock.monotonic()
            self._warm.append(writer)
            progressed = True
        return progressed

    def take(self) -> TransactionWriter | None:
        """Returns a warm producer for the next records; None if none is open."""
        if not self._warm:
            return None
        writer = self._warm.popleft()
        if self.pool is not None:
            self.pool.begun(writer.transactional_id)
        return writer

    def open_ahead(self, *, writing: bool) -> None:
        """Opens producers until enough are warm or no id is free. `writing` tells whether one is in use."""
        wanted = self.pool.warm if self.pool is not None and not self.ending else int(not writing)
        while self._opening + len(self._warm) < wanted and not self._threads.is_stopping():
            transactional_id = None if self.pool is None else self.pool.take()
            if self.pool is not None and transactional_id is None:
                return
            self._opening += 1
            self._submit(transactional_id)

    def reopen_idle(self) -> None:
        """Reopens the oldest producer of an idle pipeline before its coordinator forgets the id.

        A forgotten id would end the attempt at the next record.
        """
        if self.pool is None or not self._warm:
            return
        oldest = self._warm[0]
        if self._clock.monotonic() - self._warm_since[oldest.transactional_id] < self._reopen_s:
            return
        self._warm.popleft()
        self.pool.reopened(oldest.transactional_id)
        self._opening += 1
        self._threads.discard(oldest)
        self._submit(oldest.transactional_id)

    def release(self, ids: Iterable[TransactionalId], checkpoint: CheckpointId) -> bool:
        """Releases ids whose transactions a completed checkpoint no longer lists. Returns whether one became free."""
        freed = [] if self.pool is None else [self.pool.released(one, checkpoint) for one in ids]
        return any(freed)

    def remember(self, committables: Iterable[Committable]) -> None:
        """Keeps the last transaction of each id. Called by the preparing thread."""
        self._last.update({one.transactional_id: one for one in committables})

    @property
    def written_last(self) -> frozenset[TopicPartition]:
        """The partitions of the last transaction of each id: most likely those of the next one."""
        return frozenset(part.partition for one in self._last.values() for part in one.written)

    def discard(self) -> None:
        """Passes all producers to the dropping thread."""
        for posted in (self._warm, self._opened):
            for writer in taken(posted):
                self._threads.discard(writer)

    def close(self) -> None:
        """Closes the connections, when no thread needs them any more."""
        if self.client is not None:
            self.client.close()
        self._topics.close(self.client)

    # -- on the opening thread -----------------------------------------------------------------------------------------

    def _submit(self, transactional_id: TransactionalId | None, blocked: BlockedPartition | None = None) -> None:
        opening = partial(self._open, transactional_id, blocked)
        self._threads.open.submit(partial(self._outage.wait_out, opening))

    def _open(self, transactional_id: TransactionalId | None, blocked: BlockedPartition | None) -> None:
        """Opens a producer. `blocked` is set if the id could not be reused at an earlier try."""
        if self._threads.is_stopping() or not self._connect():
            return
        last = None if transactional_id is None else self._last.get(transactional_id)
        if last is not None and self.client is not None:
            opened = self.client.open_transactions([part.partition for part in last.written], ASK_TIMEOUT_S)
            unended = find_unended(last, opened)
            if unended:
                self._open_later(
                    last, unended, derive_blocked(blocked, self._clock.monotonic(), self.client.interruptions)
                )
                return
        self._topics.read(self.client)
        properties = derive_producer_properties(self._operator.kafka, transactional_id, self._timeout_ms)
        writer = self._tools.writer(self._operator.name, self._topics.limits, properties)
        began = self._clock.monotonic()
        with self._threads.discarding_on_failure(writer):
            writer.open(self.client, self._threads.is_stopping)
        self.opened_in_s = self._clock.monotonic() - began
        self._topics.learn(writer.partitions)
        self._opened.append(writer)
        self._threads.discard_late(self._opened)
        self._threads.wake()

    def _connect(self) -> bool:
        """Creates the client for transactions once. Returns False if the sink was closed meanwhile."""
        if self.pool is None or self.client is not None:
            return True
        self.client = self._tools.connect_again(self._operator.kafka, OPEN_TIMEOUT_S)
        if self._threads.closed:
            self.client.close()
            return False
        lifetime_ms = self.client.id_lifetime_ms(OPEN_TIMEOUT_S)
        self._reopen_s = REOPEN_S if lifetime_ms is None else min(REOPEN_S, lifetime_ms / 4000)
        return True

    def _open_later(self, last: Committable, unended: Sequence[TopicPartition], blocked: BlockedPartition) -> None:
        """Tries the id again after other producers have been opened. Raises SinkFailed after ENDED_TIMEOUT_S."""
        if self._clock.monotonic() - blocked.since > ENDED_TIMEOUT_S:
            raise SinkFailed(
                f"sink {self._operator.name}: {last.transactional_id} was committed in checkpoint "
                f"{last.checkpoint}, but {', '.join(map(str, unended))} had no marker of it after "
                f"{ENDED_TIMEOUT_S:g} s; its id cannot be used again, so the next attempt uses new ones",
                sink=self._operator.name,
                transactional_id=last.transactional_id,
            )
        self._clock.sleep(ENDED_PAUSE_S)
        self._submit(last.transactional_id, blocked)
