"""The unacknowledged batches of a model producer, per partition, in sequence order. Pure.

If the broker reports a batch as out of order although everything before it is acknowledged, the batch counts as
delivered if its sequence is an old one, as in librdkafka. This is the trap of ADR 3, which the proof must detect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from tidegate.ids import TopicPartition
from tidegate.simulation.model_broker.codes import COORDINATOR_RETRY, FENCED, LEADER_RETRY, Code
from tidegate.simulation.model_broker.log import Record

BATCH_RECORDS: Final = 16
"""Few, so that a small output makes many requests."""
NEVER_S: Final = float("inf")


class AppendVerdict(Enum):
    """The meaning of an answer for its batch."""

    DONE = "done"
    RETRY = "retry"
    FENCED = "fenced"
    REFUSED = "refused"


class ProducerSettings(msgspec.Struct, frozen=True):
    """Settings of a producer, with librdkafka's defaults."""

    batch_bytes: int
    linger_s: float
    message_timeout_s: float
    in_flight: int
    retry_s: float
    queue_max: int
    record_bytes_max: int
    socket_timeout_s: float
    transaction_timeout_ms: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> ProducerSettings:
        """Reads the client's properties."""
        return cls(
            batch_bytes=int(config.get("batch.size", "1000000")),
            linger_s=float(config.get("linger.ms", "5")) / 1000,
            message_timeout_s=int(config["message.timeout.ms"]) / 1000,
            in_flight=int(config.get("max.in.flight", "5")),
            retry_s=int(config.get("retry.backoff.ms", "100")) / 1000,
            queue_max=int(config["queue.buffering.max.messages"]),
            record_bytes_max=int(config.get("message.max.bytes", "1000000")),
            socket_timeout_s=int(config.get("socket.timeout.ms", "60000")) / 1000,
            transaction_timeout_ms=int(config.get("transaction.timeout.ms", "60000")),
        )


class SequencedBatch(msgspec.Struct, eq=False):
    """Records of one partition that are sent together."""

    partition: TopicPartition
    first_sequence: int
    born_s: float
    records: list[Record] = msgspec.field(default_factory=list)
    size_bytes: int = 0
    closed: bool = False
    """Sent once, or full: it accepts no more records."""
    sent: bool = False
    """The request or its answer is in flight."""

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record."""
        return self.first_sequence + len(self.records) - 1


class Lane:
    """The unacknowledged batches of one partition."""

    def __init__(self, partition: TopicPartition, settings: ProducerSettings) -> None:
        self.partition = partition
        self.batches: deque[SequencedBatch] = deque()
        self._settings = settings
        self._next_sequence = 0
        self._acknowledged = -1
        """The sequence up to which the client believes everything to be in the log."""
        self._held_until_s = 0.0

    def add(self, record: Record, now_s: float) -> None:
        """Adds a record to the last batch, or to a new one."""
        last = self.batches[-1] if self.batches else None
        if last is None or last.closed or last.size_bytes + record.size_bytes > self._settings.batch_bytes:
            if last is not None:
                last.closed = True
            last = SequencedBatch(self.partition, self._next_sequence, now_s)
            self.batches.append(last)
        last.records.append(record)
        last.size_bytes += record.size_bytes
        last.closed = len(last.records) >= BATCH_RECORDS
        self._next_sequence += 1

    def take(self, now_s: float, *, hurried: bool) -> Iterator[SequencedBatch]:
        """Yields the batches to send now. Unless `hurried`, a batch that is not full waits for more records."""
        if now_s < self._held_until_s:
            return
        room = self._settings.in_flight - sum(batch.sent for batch in self.batches)
        for batch in list(self.batches):
            if batch.sent:
                continue
            if room <= 0 or not (batch.closed or hurried or now_s >= batch.born_s + self._settings.linger_s):
                return
            room -= 1
            batch.sent = batch.closed = True
            yield batch

    def next_s(self, now_s: float) -> float:
        """Returns when time alone requires action: a batch is due, or expires."""
        if not self.batches:
            return NEVER_S
        expires_s = self.batches[0].born_s + self._settings.message_timeout_s
        waiting = next((batch for batch in self.batches if not batch.sent), None)
        if waiting is None:
            return expires_s
        leaves_s = self._held_until_s if waiting.closed else waiting.born_s + self._settings.linger_s
        return min(expires_s, max(leaves_s, self._held_until_s)) if leaves_s > now_s else expires_s

    def expired(self, now_s: float) -> list[SequencedBatch]:
        """Removes and returns the batches whose timeout is over."""
        found = [batch for batch in self.batches if batch.born_s + self._settings.message_timeout_s <= now_s]
        self.batches = deque(batch for batch in self.batches if batch not in found)
        return found

    def lose(self, batch: SequencedBatch, now_s: float) -> None:
        """Marks a batch without an answer for another attempt."""
        batch.sent = False
        self._held_until_s = now_s + self._settings.retry_s

    def judge(self, batch: SequencedBatch, code: Code, now_s: float) -> AppendVerdict:
        """Evaluates the answer for a batch. Batches that are done or refused are removed."""
        batch.sent = False
        if code in COORDINATOR_RETRY | LEADER_RETRY:
            self.lose(batch, now_s)
            return AppendVerdict.RETRY
        if code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.first_sequence > self._acknowledged + 1:
            self.lose(batch, now_s)  # the previous batch is missing there and must be sent first
            return AppendVerdict.RETRY
        self.batches.remove(batch)
        repeated = code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.last_sequence <= self._acknowledged
        if code in (Code.NONE, Code.DUPLICATE_SEQUENCE_NUMBER) or repeated:
            self._acknowledged = max(self._acknowledged, batch.last_sequence)
            return AppendVerdict.DONE
        return AppendVerdict.FENCED if code in FENCED else AppendVerdict.REFUSED
