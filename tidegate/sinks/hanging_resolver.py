"""Finds hanging transactions in the outputs and writes the missing markers. `hanging_transactions.py` decides.

The order of the requests makes the answer reliable: first the coordinator, then the partition again. A transaction that
was complete in the first answer and open in the second will not be ended, unless one of the brokers that answered is
about to be replaced. Therefore two checks some seconds apart must find it, without a change of leader in between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, Protocol

from tidegate.clock import Clock
from tidegate.ids import TopicPartition, TransactionalId
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused, MarkerOvertaken
from tidegate.kafka.facts import (
    TRANSACTION_LOG,
    Leader,
    OpenBrokerTransaction,
    TransactionDescription,
    TransactionListing,
)
from tidegate.sinks.hanging_transactions import (
    HangingTransaction,
    HangingTransactionTracker,
    HangingVerdict,
    ResolveReport,
    UnresolvedTransaction,
    decide_verdict,
    derive_listed,
    derive_watch,
    find_suspects,
)

TIMEOUT_S: Final = 10.0
NOT_TRIED: Final = "nothing was tried"
UNRIPE: Final = "leaders or coordinators of the cluster keep changing"


class ResolverClient(Protocol):
    """The part of TransactionClient used here."""

    @property
    def interruptions(self) -> int:
        """Requests without a final answer so far."""

    def leaders(self, topics: Iterable[str], timeout_s: float) -> dict[TopicPartition, Leader]:
        """Returns the leaders of the topics' partitions and of the transaction log."""

    def known_coordinator(self, transactional_id: TransactionalId) -> int | None:
        """Returns the broker that described it."""

    def open_transactions(self, partitions: Iterable[TopicPartition], timeout_s: float) -> list[OpenBrokerTransaction]:
        """Asks the leaders."""

    def list_transactions(self, prefix: str, timeout_s: float) -> list[TransactionListing]:
        """Returns all ids with the prefix."""

    def describe(self, transactional_id: TransactionalId, timeout_s: float) -> TransactionDescription | None:
        """Asks the coordinator."""

    def write_marker(self, opened: OpenBrokerTransaction, epoch: int, commit: bool, timeout_s: float) -> None:
        """Ends the transaction in its partition."""


class HangingTransactionResolver:
    """The resolver of one pipeline; remembers what earlier checks found. Used by one thread at a time."""

    def __init__(self, client: ResolverClient, pipeline: str, clock: Clock) -> None:
        self._client = client
        self._pipeline = pipeline
        self._clock = clock
        self._opened: frozenset[OpenBrokerTransaction] = frozenset()
        self._watch: HangingTransactionTracker | None = None

    def resolve(self, topics: Collection[str]) -> ResolveReport:
        """Checks every partition of the topics and writes the missing markers. Raises BrokerUnavailable,
        KafkaRefused.
        """
        leaders = self._client.leaders(topics, timeout_s=TIMEOUT_S)
        partitions = sorted(partition for partition in leaders if partition.topic != TRANSACTION_LOG)
        opened = self._client.open_transactions(partitions, timeout_s=TIMEOUT_S)
        found = self.judge(opened)
        if found:  # after the last answer, so that a broker replaced since it answered is noticed
            leaders = self._client.leaders(topics, timeout_s=TIMEOUT_S)
        now = self._clock.monotonic()
        self._watch = derive_watch(self._watch, leaders, self._client.interruptions, found, now)
        self._opened = frozenset(opened)
        resolved: list[HangingTransaction] = []
        left: list[UnresolvedTransaction] = []
        waiting: list[UnresolvedTransaction] = []
        for one in found:
            if not self._watch.is_ripe(one, now):
                waiting.append(UnresolvedTransaction(one, UNRIPE))
            elif not one.decided:
                left.append(UnresolvedTransaction(one, NOT_TRIED))
            else:
                try:
                    self._write(one)
                except MarkerOvertaken as overtaken:
                    self._watch = self._watch.without(one)
                    waiting.append(UnresolvedTransaction(one, overtaken.message))
                except (KafkaRefused, BrokerUnavailable) as error:
                    left.append(UnresolvedTransaction(one, error.message, forbidden=isinstance(error, KafkaRefused)))
                else:
                    resolved.append(one)
        return ResolveReport(self._opened, tuple(resolved), tuple(left), tuple(waiting))

    def judge(self, opened: Sequence[OpenBrokerTransaction]) -> Sequence[HangingTransaction]:
        """Returns the open transactions that are abnormal at this check. Writes nothing. Raises as `resolve`."""
        if not opened:
            return []
        listed = derive_listed(self._client.list_transactions("", timeout_s=TIMEOUT_S))
        suspects = find_suspects(opened, listed, self._opened)
        ids = {
            one.producer.id: listed[one.producer.id].transactional_id for one in suspects if one.producer.id in listed
        }
        descriptions = {
            producer_id: self._client.describe(known, timeout_s=TIMEOUT_S) for producer_id, known in ids.items()
        }
        if not suspects:
            return []
        still = self._client.open_transactions(sorted({one.partition for one in suspects}), timeout_s=TIMEOUT_S)
        found = []
        for one in (each for each in still if each in suspects):
            known, description = ids.get(one.producer.id), descriptions.get(one.producer.id)
            verdict = decide_verdict(one, known, description, self._pipeline)
            if verdict is not HangingVerdict.LIVE:
                epoch = one.producer.epoch if description is None else description.producer.epoch
                coordinator = None if known is None else self._client.known_coordinator(known)
                found.append(HangingTransaction(one, verdict, known, epoch, coordinator))
        return found

    def _write(self, one: HangingTransaction) -> None:
        """Writes the marker and checks that the transaction is no longer open."""
        self._client.write_marker(one.opened, one.epoch, one.verdict is HangingVerdict.COMMIT, timeout_s=TIMEOUT_S)
        if one.opened in self._client.open_transactions([one.opened.partition], timeout_s=TIMEOUT_S):
            raise BrokerUnavailable("the broker accepted the marker, but the transaction is still open")
