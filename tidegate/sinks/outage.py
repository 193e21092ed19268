"""Brokers that do not answer a sink: they are waited for. A client that is stuck although they answer is not.

Records wait in the client as long as their transaction may last, so that an outage costs no attempt. But after a broker
has hung, a client now and then delivers nothing more (librdkafka 2.16, cause unknown): then another attempt helps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from tidegate.clock import Clock
from tidegate.kafka.errors import BrokerUnavailable, SinkFailed
from tidegate.kafka.tools import KafkaTools

if TYPE_CHECKING:
    from tidegate.kafka.transactions import TransactionClient
    from tidegate.kafka.writer import TransactionWriter
    from tidegate.operators.builtin.kafka_sink import SinkOperator

T = TypeVar("T")

ANSWER_S: Final = 3.0
STALL_S: Final = 120.0
LOOK_S: Final = 10.0
"""Between two questions whether a broker answers."""


class SinkStallWatch:
    """For one thread that waits for deliveries. `answers` asks a broker, and blocks for some seconds at most."""

    def __init__(self, answers: Callable[[], bool], clock: Clock) -> None:
        self._answers = answers
        self._clock = clock
        self._client: object = None
        self._queued = 0
        self._looked = 0.0
        self._stalled_s = 0.0

    def is_stalled(self, client: object, queued: int) -> bool:
        """To be called again and again while `queued` records wait in a client; True when waiting does not help."""
        now = self._clock.monotonic()
        if client is not self._client or queued < self._queued:
            self._looked, self._stalled_s = now, 0.0
        self._client, self._queued = client, queued
        if now - self._looked < LOOK_S:
            return False
        # A process that was stopped meanwhile has waited for no broker.
        passed_s = min(now - self._looked, 2 * LOOK_S)
        self._stalled_s = self._stalled_s + passed_s if self._answers() else 0.0
        self._looked = self._clock.monotonic()
        return self._stalled_s >= STALL_S


class SinkOutage:
    """For the helper threads of one sink; `stopping` says that nobody needs their results any more."""

    def __init__(self, operator: SinkOperator, tools: KafkaTools, stopping: Callable[[], bool]) -> None:
        self._operator = operator
        self._tools = tools
        self._stopping = stopping
        self._client: TransactionClient | None = None
        self._made: list[TransactionClient] = []
        self._draining = SinkStallWatch(self.is_over, tools.clock)

    def is_over(self) -> bool:
        """Whether a broker answers now."""
        try:
            self._connected().cluster_id(ANSWER_S)
        except BrokerUnavailable:
            return False
        return True

    def _connected(self) -> TransactionClient:
        """Several threads may ask for the first time at the same moment, and each makes one."""
        client = self._client
        if client is None:
            client = self._client = self._tools.connect_again(self._operator.kafka, ANSWER_S)
            self._made.append(client)
        return client

    def wait_out(self, call: Callable[[], T]) -> T:
        """What `call` returns. It is repeated after a failure in an outage, and once more after that."""
        away = False
        while True:
            try:
                return call()
            except (BrokerUnavailable, SinkFailed):
                before, away = away, not self.is_over()
                if self._stopping() or not (away or before):
                    raise

    def flush(self, writer: TransactionWriter) -> int:
        """As `TransactionWriter.flush`: its records have the time limit of the client. Raises SinkFailed for a stuck
        client.
        """
        watch = SinkStallWatch(self.is_over, self._tools.clock)
        while True:
            left = writer.flush(LOOK_S, self._stopping)
            if not left or self._stopping():
                return left
            self._refuse_stalled(watch, writer)

    def check_draining(self, writer: TransactionWriter) -> None:
        """To be called now and then while the client's queue is full. Raises SinkFailed for a stuck client."""
        self._refuse_stalled(self._draining, writer)

    def close(self) -> None:
        """No helper thread needs it any more."""
        for client in self._made:
            client.close()

    def _refuse_stalled(self, watch: SinkStallWatch, writer: TransactionWriter) -> None:
        if watch.is_stalled(writer, writer.queued):
            raise SinkFailed(
                f"sink {self._operator.name}: the client has delivered none of its {writer.queued} records for "
                f"{STALL_S:g} s, although brokers answer; another attempt writes them with another client",
                sink=self._operator.name,
            )
