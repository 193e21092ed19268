"""What a producer of the model has not seen acknowledged, partition by partition, in the order of sequences. Pure.

A batch that the broker calls out of order although everything before it is acknowledged counts as delivered when its
sequence is an old one, as in librdkafka: that is the trap of ADR 3, which the proof must find.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Final

import msgspec

from tidegate.ids import TopicPartition
from tidegate.simulation.model_broker.codes import COORDINATOR_RETRY, FENCED, LEADER_RETRY, Code
from tidegate.simulation.model_broker.log import Record

BATCH_RECORDS: Final = 16
"""Few, so that a small output makes many requests."""
NEVER_S: Final = float("inf")


class AppendVerdict(Enum):
    """What an answer means for its batch."""

    DONE = "done"
    RETRY = "retry"
    FENCED = "fenced"
    REFUSED = "refused"


class ProducerLimits(msgspec.Struct, frozen=True):
    """Settings of a producer."""

    batch_bytes: int
    linger_s: float
    timeout_s: float
    in_flight: int
    retry_s: float


class SequencedBatch(msgspec.Struct, eq=False):
    """Records of one partition that travel together."""

    partition: TopicPartition
    first_sequence: int
    born_s: float
    records: list[Record] = msgspec.field(default_factory=list)
    size_bytes: int = 0
    closed: bool = False
    """It has been sent once, or is full: it takes no more records."""
    sent: bool = False
    """On its way, or its answer is."""

    @property
    def last_sequence(self) -> int:
        """Of its last record."""
        return self.first_sequence + len(self.records) - 1


class Lane:
    """One partition."""

    def __init__(self, partition: TopicPartition, limits: ProducerLimits) -> None:
        self.partition = partition
        self.batches: deque[SequencedBatch] = deque()
        self._limits = limits
        self._next_sequence = 0
        self._acknowledged = -1
        """Last sequence of which the client believes that everything up to it is in the log."""
        self._held_until_s = 0.0

    def add(self, record: Record, now_s: float) -> None:
        """Into the last batch, or into a new one."""
        last = self.batches[-1] if self.batches else None
        if last is None or last.closed or last.size_bytes + record.size_bytes > self._limits.batch_bytes:
            if last is not None:
                last.closed = True
            last = SequencedBatch(self.partition, self._next_sequence, now_s)
            self.batches.append(last)
        last.records.append(record)
        last.size_bytes += record.size_bytes
        last.closed = len(last.records) >= BATCH_RECORDS
        self._next_sequence += 1

    def take(self, now_s: float, *, hurried: bool) -> Iterator[SequencedBatch]:
        """Batches that leave now. Without hurry a batch that is not full waits for more records."""
        if now_s < self._held_until_s:
            return
        room = self._limits.in_flight - sum(batch.sent for batch in self.batches)
        for batch in list(self.batches):
            if batch.sent:
                continue
            if room <= 0 or not (batch.closed or hurried or now_s >= batch.born_s + self._limits.linger_s):
                return
            room -= 1
            batch.sent = batch.closed = True
            yield batch

    def next_s(self, now_s: float) -> float:
        """When something is to be done without any answer: time for a batch to leave, or to expire."""
        if not self.batches:
            return NEVER_S
        expires_s = self.batches[0].born_s + self._limits.timeout_s
        waiting = next((batch for batch in self.batches if not batch.sent), None)
        if waiting is None:
            return expires_s
        leaves_s = self._held_until_s if waiting.closed else waiting.born_s + self._limits.linger_s
        return min(expires_s, max(leaves_s, self._held_until_s)) if leaves_s > now_s else expires_s

    def expired(self, now_s: float) -> list[SequencedBatch]:
        """Batches whose time is over; they are taken out."""
        found = [batch for batch in self.batches if batch.born_s + self._limits.timeout_s <= now_s]
        self.batches = deque(batch for batch in self.batches if batch not in found)
        return found

    def lose(self, batch: SequencedBatch, now_s: float) -> None:
        """There was no answer: it is sent again."""
        batch.sent = False
        self._held_until_s = now_s + self._limits.retry_s

    def judge(self, batch: SequencedBatch, code: Code, now_s: float) -> AppendVerdict:
        """Its answer has come. What is done or refused is taken out."""
        batch.sent = False
        if code in COORDINATOR_RETRY | LEADER_RETRY:
            self.lose(batch, now_s)
            return AppendVerdict.RETRY
        if code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.first_sequence > self._acknowledged + 1:
            self.lose(batch, now_s)  # the one before it is missing there: it goes first
            return AppendVerdict.RETRY
        self.batches.remove(batch)
        repeated = code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.last_sequence <= self._acknowledged
        if code in (Code.NONE, Code.DUPLICATE_SEQUENCE_NUMBER) or repeated:
            self._acknowledged = max(self._acknowledged, batch.last_sequence)
            return AppendVerdict.DONE
        return AppendVerdict.FENCED if code in FENCED else AppendVerdict.REFUSED
