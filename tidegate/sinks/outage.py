"""Waits for brokers that do not answer a sink, but not for a client that is stuck although they answer.

Records wait in the client as long as their transaction may last, so that an outage costs no attempt. But after a broker
has hung, a client occasionally stops delivering (librdkafka 2.16, cause unknown). Then another attempt helps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from tidegate.clock import Clock
from tidegate.kafka.errors import BrokerUnavailable, LoginRefusedLater, SinkFailed
from tidegate.kafka.tools import KafkaTools

if TYPE_CHECKING:
    from tidegate.kafka.transactions import TransactionClient
    from tidegate.kafka.writer import TransactionWriter
    from tidegate.operators.builtin.kafka_sink import SinkOperator

T = TypeVar("T")

ANSWER_S: Final = 3.0
STALL_S: Final = 120.0
CHECK_S: Final = 10.0
"""Seconds between two checks whether a broker answers."""


class SinkStallWatch:
    """A detector of stalled clients for one thread that waits for deliveries.

    `answers` asks a broker and may block for some seconds.
    """

    def __init__(self, answers: Callable[[], bool], clock: Clock) -> None:
        self._answers = answers
        self._clock = clock
        self._client: object = None
        self._queued = 0
        self._checked = 0.0
        self._stalled_s = 0.0

    def is_stalled(self, client: object, queued: int) -> bool:
        """Returns True if waiting does not help. Call it repeatedly while `queued` records wait in a client."""
        now = self._clock.monotonic()
        if client is not self._client or queued < self._queued:
            self._checked, self._stalled_s = now, 0.0
        self._client, self._queued = client, queued
        if now - self._checked < CHECK_S:
            return False
        # A process that was suspended meanwhile has not waited for a broker.
        passed_s = min(now - self._checked, 2 * CHECK_S)
        self._stalled_s = self._stalled_s + passed_s if self._answers() else 0.0
        self._checked = self._clock.monotonic()
        return self._stalled_s >= STALL_S


class SinkOutage:
    """Outage handling for the helper threads of one sink. `stopping` returns whether their results are no longer
    needed.
    """

    def __init__(self, operator: SinkOperator, tools: KafkaTools, stopping: Callable[[], bool]) -> None:
        self._operator = operator
        self._tools = tools
        self._stopping = stopping
        self._client: TransactionClient | None = None
        self._made: list[TransactionClient] = []
        self._draining = SinkStallWatch(self.is_over, tools.clock)

    def is_over(self) -> bool:
        """Returns whether a broker answers now."""
        try:
            return self._answers()
        except LoginRefusedLater:
            return False

    def _answers(self) -> bool:
        """Returns whether a broker answers now. Raises LoginRefusedLater."""
        try:
            self._connected().cluster_id(ANSWER_S)
        except LoginRefusedLater:
            raise
        except BrokerUnavailable:
            return False
        return True

    def _connected(self) -> TransactionClient:
        """Returns the client. Threads that call it first at the same time each create one."""
        client = self._client
        if client is None:
            client = self._client = self._tools.connect_again(self._operator.kafka, ANSWER_S)
            self._made.append(client)
        return client

    def wait_out(self, call: Callable[[], T]) -> T:
        """Returns the result of `call`. Repeats it after failures during an outage, and once more after that.

        A refused login is no outage: nothing would ever end the wait for another password. Raises LoginRefusedLater.
        """
        outage = False
        while True:
            try:
                return call()
            except LoginRefusedLater:
                raise
            except (BrokerUnavailable, SinkFailed):
                before, outage = outage, not self._answers()
                if self._stopping() or not (outage or before):
                    raise

    def flush(self, writer: TransactionWriter) -> int:
        """Flushes like `TransactionWriter.flush`, with the client's time limit for records. Raises SinkFailed for a
        stuck client.
        """
        watch = SinkStallWatch(self.is_over, self._tools.clock)
        while True:
            left = writer.flush(CHECK_S, self._stopping)
            if not left or self._stopping():
                return left
            self._refuse_stalled(watch, writer)

    def check_draining(self, writer: TransactionWriter) -> None:
        """Raises SinkFailed for a stuck client. Call it now and then while the client's queue is full."""
        self._refuse_stalled(self._draining, writer)

    def close(self) -> None:
        """Closes the clients, when no helper thread needs them any more."""
        for client in self._made:
            client.close()

    def _refuse_stalled(self, watch: SinkStallWatch, writer: TransactionWriter) -> None:
        if watch.is_stalled(writer, writer.queued):
            raise SinkFailed(
                f"sink {self._operator.name}: the client has delivered none of its {writer.queued} records for "
                f"{STALL_S:g} s, although brokers answer; the next attempt writes them with a new client",
                sink=self._operator.name,
            )
