"""Looks for hanging transactions in the outputs and writes the markers that are missing. Decided in `hanging.py`.

The order of the questions makes the answer sure: first the coordinator, then the partition once more. What was complete
at the first and is open at the second will never be ended by anybody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, Protocol

from tidegate.ids import TopicPartition, TransactionalId
from tidegate.sinks.errors import BrokerUnavailable, SinkRefused
from tidegate.sinks.facts import OpenTransaction, TopicFacts, TransactionDescription, TransactionListing
from tidegate.sinks.hanging import Hanging, MendReport, Verdict, decide_verdict, derive_listed, find_suspects

TIMEOUT_S: Final = 10.0
NOT_TRIED: Final = "nothing was tried"


class Client(Protocol):
    """What is used of TransactionClient."""

    def topics(self, names: Iterable[str], timeout_s: float) -> dict[str, TopicFacts]:
        """Partition counts."""

    def open_transactions(self, partitions: Iterable[TopicPartition], timeout_s: float) -> list[OpenTransaction]:
        """Ask the leaders."""

    def list_transactions(self, prefix: str, timeout_s: float) -> list[TransactionListing]:
        """All ids with the prefix."""

    def describe(self, transactional_id: TransactionalId, timeout_s: float) -> TransactionDescription | None:
        """Ask the coordinator."""

    def write_marker(self, opened: OpenTransaction, epoch: int, commit: bool, timeout_s: float) -> None:
        """End it in its partition."""


class Mender:
    """For one pipeline; keeps nothing between calls. Raises BrokerUnavailable, SinkRefused when it cannot look."""

    def __init__(self, client: Client, pipeline: str) -> None:
        self._client = client
        self._pipeline = pipeline

    def mend(self, topics: Collection[str], seen: Collection[OpenTransaction]) -> MendReport:
        """Look at every partition of the topics; `seen` is what an earlier look found open."""
        facts = self._client.topics(topics, timeout_s=TIMEOUT_S)
        partitions = [TopicPartition(name, index) for name in sorted(facts) for index in range(facts[name].partitions)]
        opened = self._client.open_transactions(partitions, timeout_s=TIMEOUT_S)
        hanging = self._judge(opened, seen) if opened else []
        mended: list[Hanging] = []
        left: list[tuple[Hanging, str]] = []
        for one in hanging:
            if one.verdict not in (Verdict.COMMIT, Verdict.ABORT):
                left.append((one, NOT_TRIED))
                continue
            try:
                self._write(one)
            except (SinkRefused, BrokerUnavailable) as error:
                left.append((one, error.message))
            else:
                mended.append(one)
        return MendReport(frozenset(opened), tuple(mended), tuple(left))

    def _judge(self, opened: Collection[OpenTransaction], seen: Collection[OpenTransaction]) -> Sequence[Hanging]:
        listed = derive_listed(self._client.list_transactions("", timeout_s=TIMEOUT_S))
        suspects = find_suspects(opened, listed, seen)
        ids = {
            one.producer_id: listed[one.producer_id].transactional_id for one in suspects if one.producer_id in listed
        }
        told = {producer_id: self._client.describe(known, timeout_s=TIMEOUT_S) for producer_id, known in ids.items()}
        if not suspects:
            return []
        still = self._client.open_transactions(sorted({one.partition for one in suspects}), timeout_s=TIMEOUT_S)
        found = []
        for one in (each for each in still if each in suspects):
            known, description = ids.get(one.producer_id), told.get(one.producer_id)
            verdict = decide_verdict(one, known, description, self._pipeline)
            if verdict is not Verdict.LIVE:
                epoch = one.producer_epoch if description is None else description.producer_epoch
                found.append(Hanging(one, verdict, known, epoch))
        return found

    def _write(self, one: Hanging) -> None:
        """The marker, and a look whether it has helped."""
        self._client.write_marker(one.opened, one.epoch, one.verdict is Verdict.COMMIT, timeout_s=TIMEOUT_S)
        if one.opened in self._client.open_transactions([one.opened.partition], timeout_s=TIMEOUT_S):
            raise BrokerUnavailable("the broker took the marker, but the transaction is open still")
