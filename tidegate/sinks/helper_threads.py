"""The helper threads of one sink subtask, and how they end.

Work that would block the slot loop runs here: opening producers, preparing transactions, dropping producers, and
waiting until a full client has room again. Results are posted to the objects that submitted the jobs; errors are kept
until the loop asks for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tidegate.errors import TidegateError
from tidegate.ids import OperatorName
from tidegate.kafka.errors import SinkFailed
from tidegate.kafka.tools import KafkaTools
from tidegate.threads import HelperThread

if TYPE_CHECKING:
    from tidegate.kafka.writer import TransactionWriter


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
