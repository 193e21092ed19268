"""The transaction coordinator: one state machine per transactional id, like Kafka's for requests of version 4. Pure.

The broker carries out what it returns: the markers to write and their partitions. States are Kafka's; an id that is
being ended (Prepare...) answers CONCURRENT_TRANSACTIONS to every request that may succeed later. The table of answers
was measured with real brokers of transaction versions 1 and 2, which do not differ for these requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tidegate.ids import ProducerId, TopicPartition, TransactionalId
from tidegate.kafka.facts import CoordinatorState, TransactionDescription
from tidegate.simulation.model_broker.codes import Code, RequestRefused

EPOCH_MAX: Final = 32_766
"""The initialisation after this epoch assigns a new producer id."""
TIMEOUT_MS_MAX: Final = 900_000

_PREPARING: Final = frozenset({CoordinatorState.PREPARE_COMMIT, CoordinatorState.PREPARE_ABORT})
_PREPARE: Final = {True: CoordinatorState.PREPARE_COMMIT, False: CoordinatorState.PREPARE_ABORT}
_COMPLETE: Final = {True: CoordinatorState.COMPLETE_COMMIT, False: CoordinatorState.COMPLETE_ABORT}


class TransactionEntry(msgspec.Struct):
    """The coordinator's state of one transactional id."""

    producer_id: int
    epoch: int
    timeout_ms: int
    changed_at_ms: int
    state: CoordinatorState = CoordinatorState.EMPTY
    opened_at_ms: int = -1
    partitions: set[TopicPartition] = msgspec.field(default_factory=set)
    """While the transaction is being ended: the partitions whose marker is missing."""

    @property
    def preparing(self) -> bool:
        """True if its end is decided but markers are missing."""
        return self.state in _PREPARING

    @property
    def commits(self) -> bool:
        """True if its end is a commit."""
        return self.state in (CoordinatorState.PREPARE_COMMIT, CoordinatorState.COMPLETE_COMMIT)


class TransactionCoordinator:
    """All transactional ids. Every method raises RequestRefused with Kafka's code."""

    def __init__(self) -> None:
        self.entries: dict[TransactionalId, TransactionEntry] = {}
        self._last_producer_id = 0

    def next_producer_id(self) -> int:
        """Returns an unused producer id."""
        self._last_producer_id += 1
        return self._last_producer_id

    def init(self, transactional_id: TransactionalId, timeout_ms: int, now_ms: int) -> TransactionEntry:
        """Starts a new epoch of the id.

        An open transaction is aborted first: the caller must retry until it is no longer `preparing`.
        """
        if not 0 < timeout_ms <= TIMEOUT_MS_MAX:
            raise RequestRefused(Code.INVALID_TRANSACTION_TIMEOUT)
        entry = self.entries.get(transactional_id)
        if entry is None:
            entry = TransactionEntry(self.next_producer_id(), -1, timeout_ms, now_ms)
            self.entries[transactional_id] = entry
        elif entry.state is CoordinatorState.ONGOING:
            self.abort_fenced(entry, now_ms)
            return entry
        elif entry.preparing:
            raise RequestRefused(Code.CONCURRENT_TRANSACTIONS)
        if entry.epoch >= EPOCH_MAX:
            entry.producer_id, entry.epoch = self.next_producer_id(), -1
        entry.epoch += 1
        entry.timeout_ms, entry.changed_at_ms = timeout_ms, now_ms
        entry.state, entry.opened_at_ms = CoordinatorState.EMPTY, -1
        return entry

    def add_partitions(
        self,
        transactional_id: TransactionalId,
        producer_id: int,
        epoch: int,
        partitions: Iterable[TopicPartition],
        now_ms: int,
    ) -> None:
        """Adds partitions to the transaction, which begins with the first ones."""
        entry = self._owned(transactional_id, producer_id, epoch)
        if entry.preparing:
            raise RequestRefused(Code.CONCURRENT_TRANSACTIONS)
        if entry.state is not CoordinatorState.ONGOING:
            entry.state, entry.opened_at_ms, entry.changed_at_ms = CoordinatorState.ONGOING, now_ms, now_ms
            entry.partitions = set()
        entry.partitions.update(partitions)

    def end(
        self, transactional_id: TransactionalId, producer_id: int, epoch: int, commit: bool, now_ms: int
    ) -> TransactionEntry | None:
        """Decides the end.

        Returns the entry whose markers must be written, or None if it had already ended this way.
        """
        entry = self._owned(transactional_id, producer_id, epoch)
        if entry.state is CoordinatorState.ONGOING:
            entry.state, entry.changed_at_ms = _PREPARE[commit], now_ms
            return entry
        if entry.state is _COMPLETE[commit]:
            return None
        raise RequestRefused(
            Code.CONCURRENT_TRANSACTIONS if entry.state is _PREPARE[commit] else Code.INVALID_TXN_STATE
        )

    def abort_fenced(self, entry: TransactionEntry, now_ms: int) -> None:
        """Aborts the open transaction and fences its producer, after a timeout or another initialisation of the id."""
        entry.epoch += 1
        entry.state, entry.changed_at_ms = CoordinatorState.PREPARE_ABORT, now_ms

    def marker_written(self, entry: TransactionEntry, partition: TopicPartition, now_ms: int) -> None:
        """Notes that a marker has been written. After the last one the transaction is complete."""
        entry.partitions.discard(partition)
        if not entry.partitions:
            entry.state, entry.changed_at_ms = _COMPLETE[entry.commits], now_ms

    def describe(self, transactional_id: TransactionalId) -> TransactionDescription:
        """Describes one id."""
        entry = self.entries.get(transactional_id)
        if entry is None:
            raise RequestRefused(Code.TRANSACTIONAL_ID_NOT_FOUND)
        return TransactionDescription(
            entry.state,
            ProducerId(entry.producer_id, entry.epoch),
            entry.timeout_ms,
            entry.opened_at_ms,
            frozenset(entry.partitions),
        )

    def expire(self, before_ms: int) -> None:
        """Forgets ids that have not been used since `before_ms`."""
        idle = [
            known
            for known, entry in self.entries.items()
            if entry.changed_at_ms < before_ms and not entry.preparing and entry.state is not CoordinatorState.ONGOING
        ]
        for transactional_id in idle:
            del self.entries[transactional_id]

    def check_writing(
        self, transactional_id: TransactionalId, producer_id: int, epoch: int, partition: TopicPartition
    ) -> None:
        """Answers a leader's question before the first batch of a transaction (KIP-890, part 1)."""
        entry = self._owned(transactional_id, producer_id, epoch)
        if entry.preparing:
            raise RequestRefused(Code.CONCURRENT_TRANSACTIONS)
        if entry.state is not CoordinatorState.ONGOING or partition not in entry.partitions:
            raise RequestRefused(Code.INVALID_TXN_STATE)

    def _owned(self, transactional_id: TransactionalId, producer_id: int, epoch: int) -> TransactionEntry:
        entry = self.entries.get(transactional_id)
        if entry is None or entry.producer_id != producer_id:
            raise RequestRefused(Code.INVALID_PRODUCER_ID_MAPPING)
        if entry.epoch != epoch:
            raise RequestRefused(Code.PRODUCER_FENCED)
        return entry
