"""Open transactions that block read-committed readers: decides which of them will never end, and what may be done.
Pure.

A coordinator reports a transaction as ended everywhere, but may have skipped partitions: when it writes markers, Kafka
takes a partition without a leader for a deleted one (seen with 4.3.1 after a crash). The transaction then stays open
there forever. The essential rule: *the coordinator's decision is completed, never made here*. A marker is written only
for a transaction of our own, with the end that the coordinator has recorded for exactly this producer id and epoch, and
only while the cluster is stable. While leaders and coordinators change, the cluster may still be writing the marker
itself. See ADR 15.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from tidegate.committable import Committable
from tidegate.ids import TopicPartition, TransactionalId
from tidegate.kafka.facts import (
    TRANSACTION_LOG,
    CoordinatorState,
    Leader,
    OpenBrokerTransaction,
    TransactionDescription,
    TransactionListing,
)
from tidegate.sinks.naming import derive_name

_LIVE: Final = frozenset(
    {
        CoordinatorState.ONGOING,
        CoordinatorState.PREPARE_COMMIT,
        CoordinatorState.PREPARE_ABORT,
        CoordinatorState.PREPARE_EPOCH_FENCE,
    }
)

FENCE_RAISES: Final = 2
"""Lower bound: a fence whose answer is lost is repeated, and every start fences transactions held back behind a lost
one.
"""


RIPE_S: Final = 5.0
"""How long a transaction must have been found unended in a stable cluster before anything is done or reported."""


class HangingVerdict(Enum):
    """The classification of an open transaction in a partition."""

    LIVE = "live"
    """Its coordinator knows that it is open, or is about to end it."""
    COMMIT = "commit"
    """Ours, committed at its coordinator: the marker is missing."""
    ABORT = "abort"
    """Ours, aborted at its coordinator: the marker is missing."""
    UNSURE = "unsure"
    """Ours, but the coordinator no longer knows how exactly this one ended."""
    FOREIGN = "foreign"
    """It belongs to another application, and its coordinator does not know it as open."""
    UNSEEN = "unseen"
    """No transactional id visible to this user has its producer id."""


class HangingTransaction(msgspec.Struct, frozen=True):
    """An open transaction that is not LIVE."""

    opened: OpenBrokerTransaction
    verdict: HangingVerdict
    transactional_id: TransactionalId | None
    epoch: int
    """The epoch at its coordinator, which the marker must carry."""
    coordinator: int | None = None
    """The broker that reported it."""

    @property
    def decided(self) -> bool:
        """Whether its coordinator knows how it ended, so that its marker may be written."""
        return self.verdict in (HangingVerdict.COMMIT, HangingVerdict.ABORT)

    @property
    def own(self) -> bool:
        """Whether it is known to belong to this pipeline."""
        return self.verdict in (HangingVerdict.COMMIT, HangingVerdict.ABORT, HangingVerdict.UNSURE)


def find_suspects(
    opened: Collection[OpenBrokerTransaction],
    listed: Mapping[int, TransactionListing],
    seen: Collection[OpenBrokerTransaction],
) -> list[OpenBrokerTransaction]:
    """Returns the transactions to ask their coordinators about.

    These are not listed as open (by producer id), or were already seen open at an earlier check.
    """
    return [
        one
        for one in opened
        if one in seen or (listing := listed.get(one.producer.id)) is None or listing.state not in _LIVE
    ]


def decide_verdict(
    one: OpenBrokerTransaction,
    transactional_id: TransactionalId | None,
    description: TransactionDescription | None,
    pipeline: str,
) -> HangingVerdict:
    """Classifies an open transaction. `description` is the coordinator's answer *before* `one` was last seen open.

    A complete transaction has no marker in progress. A timeout raises the epoch by one. A fence raises it by two: one
    for the abort and one for the new owner. After a commit, an id is initialised again only once its markers were seen,
    so EMPTY with such an epoch means an abort.
    """
    if transactional_id is None or description is None or description.producer.id != one.producer.id:
        return HangingVerdict.UNSEEN
    if _is_live(one, description):
        return HangingVerdict.LIVE
    name = derive_name(transactional_id)
    if name is None or name.pipeline != pipeline:
        return HangingVerdict.FOREIGN
    raised = description.producer.epoch - one.producer.epoch
    match description.state:
        case CoordinatorState.COMPLETE_COMMIT if raised == 0:
            return HangingVerdict.COMMIT
        case CoordinatorState.COMPLETE_ABORT if raised in (0, 1):
            return HangingVerdict.ABORT
        case CoordinatorState.EMPTY if raised >= FENCE_RAISES:
            return HangingVerdict.ABORT
        case _:
            return HangingVerdict.UNSURE


class HangingTransactionTracker(msgspec.Struct, frozen=True):
    """Hanging transactions over several checks."""

    leaders: Mapping[TopicPartition, Leader]
    """Leaders of the outputs and, if visible, of the transaction log, whose leaders are the coordinators."""
    interruptions: int
    """Interruptions of the connection: the only sign of a coordinator's restart if the transaction log is hidden."""
    since: Mapping[HangingTransaction, float]
    """Seconds of a monotonic clock since when every check has found it, with the same coordinator and leaders."""

    @property
    def _visible(self) -> bool:
        return any(partition.topic == TRANSACTION_LOG for partition in self.leaders)

    def is_quiet(self, later: HangingTransactionTracker) -> bool:
        """Returns whether nothing has changed up to a later check."""
        if self.leaders != later.leaders:
            return False
        return self._visible or self.interruptions == later.interruptions

    def is_ripe(self, one: HangingTransaction, now: float) -> bool:
        """Returns whether it is certain to stay open.

        It is then neither a marker in progress nor the view of a leader that is being replaced.
        """
        return now - self.since[one] >= RIPE_S

    def without(self, one: HangingTransaction) -> HangingTransactionTracker:
        """Returns a tracker in which the time of this transaction starts again."""
        return msgspec.structs.replace(self, since={each: at for each, at in self.since.items() if each != one})


def derive_watch(
    before: HangingTransactionTracker | None,
    leaders: Mapping[TopicPartition, Leader],
    interruptions: int,
    found: Collection[HangingTransaction],
    now: float,
) -> HangingTransactionTracker:
    """Returns the tracker after one more check. If anything has changed, the time of all transactions starts again."""
    fresh = HangingTransactionTracker(leaders, interruptions, dict.fromkeys(found, now))
    if before is None or not before.is_quiet(fresh):
        return fresh
    return msgspec.structs.replace(fresh, since={one: before.since.get(one, now) for one in fresh.since})


class BlockedPartition(msgspec.Struct, frozen=True):
    """A transactional id that waits for the markers of its last transaction."""

    since: float
    """Seconds of a monotonic clock."""
    interruptions: int
    """Interruptions of the connection up to then."""


def derive_blocked(before: BlockedPartition | None, now: float, interruptions: int) -> BlockedPartition:
    """Starts the time again after an outage, since the markers could not have been written during it."""
    return (
        before if before is not None and before.interruptions == interruptions else BlockedPartition(now, interruptions)
    )


def find_unended(committable: Committable, opened: Collection[OpenBrokerTransaction]) -> list[TopicPartition]:
    """Returns the partitions in which a committed transaction is still open."""
    return sorted(one.partition for one in opened if one.producer == committable.producer)


def report_resolved(resolved: Sequence[HangingTransaction]) -> list[str]:
    """Describes what was found and done, one text per distinct transaction."""
    groups: dict[str, list[HangingTransaction]] = {}
    for one in resolved:
        groups.setdefault(f"{_place(one)} is {_END[one.verdict]}", []).append(one)
    return [
        f"{what} at its coordinator, but its {found[0].verdict.value} marker was missing in "
        f"{', '.join(f'{one.opened.partition} (from offset {one.opened.start_offset} on)' for one in found)}, where "
        f"readers of committed records were blocked; a crash of Kafka can cause that. The marker is written now"
        for what, found in groups.items()
    ]


class UnresolvedTransaction(msgspec.Struct, frozen=True):
    """A transaction that still hangs."""

    one: HangingTransaction
    why: str
    """Why nothing was done, or why it did not help."""
    forbidden: bool = False
    """Whether this user may not write its marker."""


def tell_left(left: UnresolvedTransaction, bootstrap: str) -> str:
    """Describes what was found, why nothing was done, and what the user can do."""
    one, found = left.one, left.one.opened
    stuck = f"readers of committed records are blocked at offset {found.start_offset} of {found.partition}"
    abort = (
        f"kafka-transactions.sh --bootstrap-server {bootstrap} abort --topic {found.partition.topic} --partition "
        f"{found.partition.partition} --start-offset {found.start_offset}"
    )
    listing = f"kafka-transactions.sh --bootstrap-server {bootstrap}"
    match one.verdict:
        case HangingVerdict.COMMIT:
            grant = (
                f"Grant this user CLUSTER_ACTION (kafka-acls.sh --bootstrap-server {bootstrap} --add "
                f"--allow-principal User:NAME --operation ClusterAction --cluster), then the next check writes it"
            )
            return (
                f"{stuck}: {_place(one)} is committed, but its marker is missing and could not be written: "
                f"{left.why}. {grant if left.forbidden else 'Writing is retried at every check'}. Do not use "
                f"`kafka-transactions.sh abort`: it would remove committed records from the output"
            )
        case HangingVerdict.ABORT:
            return (
                f"{stuck}: {_place(one)} is aborted, but its marker is missing and could not be written: {left.why}. "
                f"{'' if left.forbidden else 'Writing is retried at every check. '}Write it with: {abort}"
            )
        case HangingVerdict.UNSURE:
            return (
                f"{stuck}: {_place(one)} is open there, and its coordinator no longer knows how it ended. Compare "
                f"the output after that offset with the expected output. Only if it contains these records a "
                f"second time, run: {abort}"
            )
        case HangingVerdict.FOREIGN:
            return (
                f"{stuck}: {_place(one)}, which does not belong to this pipeline, is open there, and its "
                f"coordinator does not list it as open. Ask its owner whether it was committed ({listing} describe "
                f"--transactional-id {one.transactional_id}); if not, run: {abort}"
            )
        case _:
            return (
                f"{stuck}: {_place(one)} is open there, and no transactional id that this user may see owns it. "
                f"Find its owner ({listing} list; {listing} describe-producers --topic {found.partition.topic} "
                f"--partition {found.partition.partition}). If it has none and was not committed, run: {abort}"
            )


_END: Final = {HangingVerdict.COMMIT: "committed", HangingVerdict.ABORT: "aborted"}


def _is_live(one: OpenBrokerTransaction, description: TransactionDescription) -> bool:
    if description.state not in _LIVE:
        return False
    if description.state is not CoordinatorState.ONGOING:
        return True  # markers are being written
    return description.producer.epoch == one.producer.epoch and one.partition in description.partitions


def _place(one: HangingTransaction) -> str:
    owner = f"producer id {one.opened.producer.id} epoch {one.opened.producer.epoch}"
    return f"transaction {one.transactional_id} ({owner})" if one.transactional_id else f"a transaction of {owner}"


class ResolveReport(msgspec.Struct, frozen=True):
    """The result of one check of all partitions of the outputs."""

    opened: frozenset[OpenBrokerTransaction]
    """Every open transaction."""
    resolved: tuple[HangingTransaction, ...] = ()
    left: tuple[UnresolvedTransaction, ...] = ()
    waiting: tuple[UnresolvedTransaction, ...] = ()
    """Transactions that the cluster itself or the next check may end."""


def derive_listed(listings: Sequence[TransactionListing]) -> dict[int, TransactionListing]:
    """Maps producer ids to listings; each belongs to one transactional id."""
    return {one.producer_id: one for one in listings}
