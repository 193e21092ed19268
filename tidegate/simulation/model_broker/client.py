"""The model's stand-in for `sinks.transactions.TransactionClient`: the same calls, deadlines and errors.

What a call asks and how often it asks again is as there; every single request goes through the link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from tidegate.coordinator.types import Committable, WrittenRange
from tidegate.ids import TopicPartition, TransactionalId
from tidegate.simulation.model_broker.broker import NODE, ModelBroker
from tidegate.simulation.model_broker.codes import COORDINATOR_RETRY, LEADER_RETRY, Code, RequestRefused
from tidegate.simulation.model_broker.link import Link, LinkLost
from tidegate.sinks.batches import BatchHeader, derive_first_sequence, derive_marker, derive_ranges
from tidegate.sinks.connection import BACKOFF_S, BACKOFF_S_MAX
from tidegate.sinks.errors import BrokerUnavailable
from tidegate.sinks.facts import (
    EndAnswer,
    Leader,
    LoggedRange,
    Marker,
    OpenTransaction,
    PreparedView,
    ProducerProgress,
    TopicFacts,
    TopicLimits,
    TransactionDescription,
    TransactionListing,
)
from tidegate.sinks.transactions import ANSWER_TIMEOUT_S, FENCE_TIMEOUT_MS

T = TypeVar("T")

_END_ANSWERS: Final[Mapping[Code, EndAnswer]] = {
    Code.INVALID_PRODUCER_EPOCH: EndAnswer.FENCED,
    Code.INVALID_TXN_STATE: EndAnswer.INVALID_STATE,
    Code.INVALID_PRODUCER_ID_MAPPING: EndAnswer.UNKNOWN_PRODUCER,
    Code.PRODUCER_FENCED: EndAnswer.FENCED,
}


class ModelClient:
    """Asks the model about transactions and ends them, for one process. Raises BrokerUnavailable."""

    def __init__(self, broker: ModelBroker, link: Link) -> None:
        self._broker = broker
        self._link = link
        self.interruptions = 0

    def close(self) -> None:
        """Nothing is held."""

    # -- the coordinator of an id ------------------------------------------------------------------------------------

    def describe(
        self, transactional_id: TransactionalId, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> TransactionDescription | None:
        """See TransactionClient."""
        try:
            return self._ask("describe", lambda now_ms: self._broker.describe(now_ms, transactional_id), timeout_s)
        except RequestRefused as refused:
            if refused.code is Code.TRANSACTIONAL_ID_NOT_FOUND:
                return None
            raise _unavailable(f"describing transaction {transactional_id}", refused) from refused

    def topic_limits(self, topic: str, timeout_s: float = ANSWER_TIMEOUT_S) -> TopicLimits:  # noqa: ARG002 - see TransactionClient
        """The model's topics take every record."""
        return TopicLimits()

    def end_transaction(
        self, committable: Committable, commit: bool = True, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> EndAnswer:
        """See TransactionClient."""
        owner = (committable.transactional_id, committable.producer_id, committable.producer_epoch)
        try:
            self._ask("end", lambda now_ms: self._broker.end_transaction(now_ms, *owner, commit), timeout_s)
        except BrokerUnavailable:
            return EndAnswer.NO_ANSWER
        except RequestRefused as refused:
            return _END_ANSWERS.get(refused.code, EndAnswer.REJECTED)
        return EndAnswer.ENDED

    def end_transactions(
        self, committables: Sequence[Committable], timeout_s: float = ANSWER_TIMEOUT_S
    ) -> list[EndAnswer]:
        """See TransactionClient; one after the other."""
        deadline_s = self._link.clock.monotonic() + timeout_s
        return [
            self.end_transaction(committable, timeout_s=max(0.0, deadline_s - self._link.clock.monotonic()))
            for committable in committables
        ]

    def fence(self, transactional_id: TransactionalId, timeout_s: float = ANSWER_TIMEOUT_S) -> tuple[int, int]:
        """See TransactionClient."""
        try:
            return self._ask(
                "fence",
                lambda now_ms: self._broker.init_producer(now_ms, transactional_id, FENCE_TIMEOUT_MS),
                timeout_s,
            )
        except RequestRefused as refused:
            raise _unavailable(f"fencing transaction {transactional_id}", refused) from refused

    def list_transactions(self, prefix: str, timeout_s: float = ANSWER_TIMEOUT_S) -> list[TransactionListing]:
        """See TransactionClient."""
        return [
            listing
            for listing in self._ask("list", self._broker.list_transactions, timeout_s)
            if listing.transactional_id.startswith(prefix)
        ]

    # -- the leaders of partitions -----------------------------------------------------------------------------------

    def producer_state(
        self, partitions: Iterable[TopicPartition], producer_id: int, epoch: int, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> dict[TopicPartition, ProducerProgress]:
        """See TransactionClient."""
        wanted = list(partitions)

        def request(now_ms: int) -> dict[TopicPartition, ProducerProgress]:
            found = {part: self._broker.producer_progress(now_ms, part, producer_id, epoch) for part in wanted}
            return {part: progress for part, progress in found.items() if progress is not None}

        return self._ask("producers", request, timeout_s)

    def open_transactions(
        self, partitions: Iterable[TopicPartition], timeout_s: float = ANSWER_TIMEOUT_S
    ) -> list[OpenTransaction]:
        """See TransactionClient."""
        wanted = list(partitions)
        return self._ask(
            "opened",
            lambda now_ms: [one for part in sorted(wanted) for one in self._broker.open_transactions(now_ms, part)],
            timeout_s,
        )

    def write_marker(
        self, opened: OpenTransaction, epoch: int, commit: bool, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        """See TransactionClient."""
        try:
            self._ask("marker", lambda now_ms: self._broker.write_marker(now_ms, opened, epoch, commit), timeout_s)
        except RequestRefused as refused:
            raise _unavailable(
                f"writing the missing marker of a transaction to {opened.partition}", refused
            ) from refused

    def prepared_view(
        self, transactional_id: TransactionalId, producer_id: int, epoch: int, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> PreparedView:
        """See TransactionClient."""
        deadline_s = self._link.clock.monotonic() + timeout_s
        description = self.describe(transactional_id, timeout_s)
        if description is None or not description.partitions:
            return PreparedView(description, {}, {})
        wanted = sorted(description.partitions)
        progress = self.producer_state(wanted, producer_id, epoch, deadline_s - self._link.clock.monotonic())
        ends = self._ask(
            "ends",
            lambda now_ms: {part: self._broker.offsets(now_ms, part).end for part in wanted},
            deadline_s - self._link.clock.monotonic(),
        )
        return PreparedView(description, progress, ends)

    def first_sequence(
        self,
        partition: TopicPartition,
        start_offset: int,
        producer_id: int,
        epoch: int,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> int | None:
        """See TransactionClient."""
        return derive_first_sequence(self._batches(partition, start_offset, timeout_s) or (), producer_id, epoch)

    def outcome(
        self, written: WrittenRange, producer_id: int, epoch: int, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> Marker:
        """See TransactionClient."""
        batches = self._batches(written.partition, written.start_offset, timeout_s)
        return Marker.GONE if batches is None else derive_marker(batches, producer_id, epoch)

    def data_ranges(
        self, written: WrittenRange, producer_id: int, epoch: int, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> list[LoggedRange]:
        """See TransactionClient."""
        batches = self._batches(written.partition, written.start_offset, timeout_s)
        return list(derive_ranges(batches or (), written.end_offset, producer_id, epoch))

    def stable_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float = ANSWER_TIMEOUT_S
    ) -> dict[TopicPartition, int]:
        """See TransactionClient."""
        wanted = list(partitions)
        return self._ask(
            "stable", lambda now_ms: {part: self._broker.offsets(now_ms, part).stable for part in wanted}, timeout_s
        )

    def first_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float = ANSWER_TIMEOUT_S
    ) -> dict[TopicPartition, int]:
        """See TransactionClient."""
        wanted = list(partitions)
        return self._ask(
            "first", lambda now_ms: {part: self._broker.offsets(now_ms, part).start for part in wanted}, timeout_s
        )

    def leaders(self, topics: Iterable[str], timeout_s: float = ANSWER_TIMEOUT_S) -> dict[TopicPartition, Leader]:
        """See TransactionClient."""
        wanted = sorted(set(topics))
        return self._ask("leaders", lambda now_ms: self._broker.leaders(now_ms, wanted), timeout_s)

    def known_coordinator(self, transactional_id: TransactionalId) -> int | None:  # noqa: ARG002  # there is one broker
        """See TransactionClient."""
        return NODE

    # -- the cluster -------------------------------------------------------------------------------------------------

    def cluster_id(self, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
        """See TransactionClient."""
        return self._ask("cluster", lambda _now_ms: self._broker.cluster_id, timeout_s)

    def topics(self, names: Iterable[str], timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, TopicFacts]:
        """See TransactionClient."""
        wanted = sorted(set(names))
        return self._ask("topics", lambda _now_ms: self._broker.topics(wanted), timeout_s)

    def id_lifetime_ms(self, timeout_s: float = ANSWER_TIMEOUT_S) -> int | None:
        """See TransactionClient."""
        return self._ask("config", lambda _now_ms: self._broker.id_lifetime_ms, timeout_s)

    def mirrored_texts(self, group: str, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[TopicPartition, str]:
        """See TransactionClient."""
        found = self._ask("group", lambda _now_ms: self._broker.group_offsets(group), timeout_s)
        return {part: text for part, (_, text) in found.items()}

    def mirror_offsets(self, group: str, offsets: Mapping[TopicPartition, int], text: str = "") -> None:
        """Write offsets to a consumer group (as TransactionClient); tried once."""
        try:
            self._link.call("mirror", lambda: self._broker.mirror_offsets(group, offsets, text))
        except LinkLost as lost:
            raise BrokerUnavailable(f"positions were not mirrored to consumer group {group}") from lost

    # -- inside --------------------------------------------------------------------------------------------------------

    def _batches(self, partition: TopicPartition, offset: int, timeout_s: float) -> list[BatchHeader] | None:
        """All batches from `offset` on; None: that offset, or the topic, is gone."""
        if not self.topics([partition.topic], timeout_s):
            return None
        try:
            return self._ask("headers", lambda now_ms: self._broker.headers(now_ms, partition, offset), timeout_s)
        except RequestRefused as refused:
            if refused.code is Code.OFFSET_OUT_OF_RANGE:
                return None
            raise _unavailable(f"reading {partition} at offset {offset}", refused) from refused

    def _ask(self, name: str, request: Callable[[int], T], timeout_s: float) -> T:
        """Repeat until the answer is final. Raises BrokerUnavailable, and RequestRefused for a final refusal."""
        deadline_s, pause_s, last = self._link.clock.monotonic() + timeout_s, BACKOFF_S, "no try was made"
        while self._link.clock.monotonic() < deadline_s:
            try:
                return self._link.call(name, lambda: request(self._link.clock.now_ms()))
            except LinkLost:
                last = "no answer"
            except RequestRefused as refused:
                if refused.code not in COORDINATOR_RETRY | LEADER_RETRY:
                    raise
                last = refused.code.name
            self.interruptions += 1
            if self._link.clock.monotonic() + pause_s >= deadline_s:
                break
            self._link.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, BACKOFF_S_MAX)
        raise BrokerUnavailable(f"{name}: no final answer from the model broker in {timeout_s:g} s, last: {last}")


def _unavailable(what: str, refused: RequestRefused) -> BrokerUnavailable:
    return BrokerUnavailable(f"{what}: the broker answered {refused.code.name}")
