"""Open transactions in front of read-committed readers: which of them nobody will end, and what may be done. Pure.

A coordinator that has ended a transaction everywhere says so, but it may have left partitions out: Kafka takes a
partition without a leader for a deleted one when it writes markers (seen with 4.3.1 after a crash). There the
transaction stays open for ever. The rule that everything hangs on: *the coordinator's decision is completed, never made
here*. A marker is written only for a transaction of our own, with the end that the coordinator has recorded for exactly
this producer id and epoch. And only while nothing moves: a cluster whose leaders and coordinators change may still be
writing the marker itself. See ADR 15.
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
"""At least: one whose answer is lost is repeated, and what is held back by a lost transaction every start fences."""


RIPE_S: Final = 5.0
"""How long a transaction must have been found unended, with nothing moving, before anything is done or reported."""


class HangingVerdict(Enum):
    """What an open transaction in a partition is."""

    LIVE = "live"
    """Its coordinator knows that it is open, or is about to end it."""
    COMMIT = "commit"
    """Ours, committed at its coordinator: the marker is missing."""
    ABORT = "abort"
    """Ours, aborted at its coordinator: the marker is missing."""
    UNSURE = "unsure"
    """Ours, but the coordinator does not say any more how exactly this one ended."""
    FOREIGN = "foreign"
    """Somebody else's, and its coordinator does not know it as open."""
    UNSEEN = "unseen"
    """No transactional id that this user may see has its producer id."""


class HangingTransaction(msgspec.Struct, frozen=True):
    """An open transaction that is not LIVE."""

    opened: OpenBrokerTransaction
    verdict: HangingVerdict
    transactional_id: TransactionalId | None
    epoch: int
    """At its coordinator: what a marker has to carry."""
    coordinator: int | None = None
    """The broker that said so."""

    @property
    def decided(self) -> bool:
        """Its coordinator says how it ended: its marker may be written."""
        return self.verdict in (HangingVerdict.COMMIT, HangingVerdict.ABORT)

    @property
    def own(self) -> bool:
        """It is known to be of this pipeline."""
        return self.verdict in (HangingVerdict.COMMIT, HangingVerdict.ABORT, HangingVerdict.UNSURE)


def find_suspects(
    opened: Collection[OpenBrokerTransaction],
    listed: Mapping[int, TransactionListing],
    seen: Collection[OpenBrokerTransaction],
) -> list[OpenBrokerTransaction]:
    """What is worth a question to its coordinator: not in a state of being open by the list (by producer id), or
    seen open at an earlier look already.
    """
    return [
        one
        for one in opened
        if one in seen or (listing := listed.get(one.producer.id)) is None or listing.state not in _LIVE
    ]


def decide_verdict(
    one: OpenBrokerTransaction,
    transactional_id: TransactionalId | None,
    told: TransactionDescription | None,
    pipeline: str,
) -> HangingVerdict:
    """`told` is what the coordinator said *before* `one` was seen open for the last time: a complete transaction has no
    marker under way.

    A time-out raises the epoch by one. A fence raises it by two, one for the abort and one for the new owner; after a
    commit an id is initialised again only when its markers were seen, so EMPTY that far on was an abort.
    """
    if transactional_id is None or told is None or told.producer.id != one.producer.id:
        return HangingVerdict.UNSEEN
    if _is_live(one, told):
        return HangingVerdict.LIVE
    name = derive_name(transactional_id)
    if name is None or name.pipeline != pipeline:
        return HangingVerdict.FOREIGN
    raised = told.producer.epoch - one.producer.epoch
    match told.state:
        case CoordinatorState.COMPLETE_COMMIT if raised == 0:
            return HangingVerdict.COMMIT
        case CoordinatorState.COMPLETE_ABORT if raised in (0, 1):
            return HangingVerdict.ABORT
        case CoordinatorState.EMPTY if raised >= FENCE_RAISES:
            return HangingVerdict.ABORT
        case _:
            return HangingVerdict.UNSURE


class HangingTransactionTracker(msgspec.Struct, frozen=True):
    """Transactions that hang, over several looks."""

    leaders: Mapping[TopicPartition, Leader]
    """Of the outputs and, where it may be seen, of the transaction log, whose leaders are the coordinators."""
    interruptions: int
    """Of the connection: what there is to see of a coordinator's restart where the transaction log is hidden."""
    since: Mapping[HangingTransaction, float]
    """Seconds of a monotonic clock: from when on every look has found it, with the same coordinator and leaders."""

    @property
    def _visible(self) -> bool:
        return any(partition.topic == TRANSACTION_LOG for partition in self.leaders)

    def is_quiet(self, later: HangingTransactionTracker) -> bool:
        """Nothing has moved up to a later look."""
        if self.leaders != later.leaders:
            return False
        return self._visible or self.interruptions == later.interruptions

    def is_ripe(self, one: HangingTransaction, now: float) -> bool:
        """Nobody else will end it: it is not a marker on its way, nor the view of a leader that is being replaced."""
        return now - self.since[one] >= RIPE_S

    def without(self, one: HangingTransaction) -> HangingTransactionTracker:
        """Its time starts again."""
        return msgspec.structs.replace(self, since={each: at for each, at in self.since.items() if each != one})


def derive_watch(
    before: HangingTransactionTracker | None,
    leaders: Mapping[TopicPartition, Leader],
    interruptions: int,
    found: Collection[HangingTransaction],
    now: float,
) -> HangingTransactionTracker:
    """After one more check. Whenever anything has moved, all of them start again."""
    fresh = HangingTransactionTracker(leaders, interruptions, dict.fromkeys(found, now))
    if before is None or not before.is_quiet(fresh):
        return fresh
    return msgspec.structs.replace(fresh, since={one: before.since.get(one, now) for one in fresh.since})


class BlockedPartition(msgspec.Struct, frozen=True):
    """A transactional id waits for the markers of its last transaction."""

    since: float
    """Seconds of a monotonic clock."""
    interruptions: int
    """Of the connection, up to then."""


def derive_blocked(before: BlockedPartition | None, now: float, interruptions: int) -> BlockedPartition:
    """In an outage the markers could not have been written: after one it counts again from the start."""
    return (
        before if before is not None and before.interruptions == interruptions else BlockedPartition(now, interruptions)
    )


def find_unended(committable: Committable, opened: Collection[OpenBrokerTransaction]) -> list[TopicPartition]:
    """Partitions where a transaction that was committed is open still."""
    return sorted(one.partition for one in opened if one.producer == committable.producer)


def report_resolved(resolved: Sequence[HangingTransaction]) -> list[str]:
    """What was found and done, a text for each transaction."""
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
    """A transaction that hangs still."""

    one: HangingTransaction
    why: str
    """Why nothing was done, or what was of no use."""
    forbidden: bool = False
    """This user may not write its marker."""


def tell_left(left: UnresolvedTransaction, bootstrap: str) -> str:
    """What was found, why nothing was done, and what a person can do."""
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
                f"{left.why}. {grant if left.forbidden else 'It is tried again at every check'}. Do not use "
                f"`kafka-transactions.sh abort`: it would take committed records away"
            )
        case HangingVerdict.ABORT:
            return (
                f"{stuck}: {_place(one)} is aborted, but its marker is missing and could not be written: {left.why}. "
                f"{'' if left.forbidden else 'It is tried again at every check. '}Write it with: {abort}"
            )
        case HangingVerdict.UNSURE:
            return (
                f"{stuck}: {_place(one)} is open there, and its coordinator no longer says how it ended. "
                f"Compare the output after that offset with what is expected; only when these records are there a "
                f"second time: {abort}"
            )
        case HangingVerdict.FOREIGN:
            return (
                f"{stuck}: {_place(one)}, which is not of this pipeline, is open there, and its coordinator does not "
                f"know it as open. Its owner has to say whether it was committed ({listing} describe "
                f"--transactional-id {one.transactional_id}); if not: {abort}"
            )
        case _:
            return (
                f"{stuck}: {_place(one)} is open there, and no transactional id that this user may see owns it. Ask "
                f"for its owner ({listing} list; {listing} describe-producers --topic {found.partition.topic} "
                f"--partition {found.partition.partition}); if it has none and was not committed: {abort}"
            )


_END: Final = {HangingVerdict.COMMIT: "committed", HangingVerdict.ABORT: "aborted"}


def _is_live(one: OpenBrokerTransaction, told: TransactionDescription) -> bool:
    if told.state not in _LIVE:
        return False
    if told.state is not CoordinatorState.ONGOING:
        return True  # markers are under way
    return told.producer.epoch == one.producer.epoch and one.partition in told.partitions


def _place(one: HangingTransaction) -> str:
    owner = f"producer id {one.opened.producer.id} epoch {one.opened.producer.epoch}"
    return f"transaction {one.transactional_id} ({owner})" if one.transactional_id else f"a transaction of {owner}"


class ResolveReport(msgspec.Struct, frozen=True):
    """One look at all partitions of the outputs."""

    opened: frozenset[OpenBrokerTransaction]
    """Everything that was open."""
    resolved: tuple[HangingTransaction, ...] = ()
    left: tuple[UnresolvedTransaction, ...] = ()
    waiting: tuple[UnresolvedTransaction, ...] = ()
    """Those that may be ended by the cluster itself, or by the next look."""


def derive_listed(listings: Sequence[TransactionListing]) -> dict[int, TransactionListing]:
    """By producer id, which belongs to one transactional id."""
    return {one.producer_id: one for one in listings}
