"""Decides how a committable ended, and the status of transactions that a rewind must not commit.

The essential rule: a committed transaction looks "fenced", "empty" or "unknown" to its coordinator after any
re-initialisation of its id. So a refusal alone proves nothing, and *only an abort marker* in a partition proves that a
transaction is lost. A rewind never uses the committer: it would commit the transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, Protocol

from tidegate.committable import Committable, WrittenRange
from tidegate.coordinator.ledger import Key, key_of
from tidegate.coordinator.restore_target import TransactionStatus
from tidegate.ids import ProducerId, TransactionalId
from tidegate.kafka.facts import CoordinatorState, EndAnswer, Marker, TransactionDescription


class CommitOutcome(Enum):
    """The outcome of a committable after a request to end it."""

    ENDED_NOW = "ended now"
    """The coordinator accepted the commit (or confirmed that it had accepted it)."""
    COMMITTED = "committed"
    """The coordinator refuses, but a commit marker exists: committed earlier."""
    STILL_OPEN = "still open"
    """Not final: ask again."""
    LOST = "lost"
    """An abort marker exists."""
    GONE = "gone"
    """Nothing of it is left: retention has removed its records and markers. Only the user can decide."""
    ACCEPTED = "accepted as gone"
    """As GONE, but the user has decided that it counts as committed."""
    UNDECIDABLE = "undecidable"
    """One partition has a commit marker, another an abort marker. Only the user can decide."""

    @property
    def committed(self) -> bool:
        """Whether its records are visible to read-committed readers, will be once the markers are written, or count as
        such.
        """
        return self in (CommitOutcome.ENDED_NOW, CommitOutcome.COMMITTED, CommitOutcome.ACCEPTED)


def decide_from_answer(answer: EndAnswer) -> CommitOutcome | None:
    """Decides from the coordinator's answer alone. Returns None if the markers must be read."""
    match answer:
        case EndAnswer.ENDED:
            return CommitOutcome.ENDED_NOW
        case EndAnswer.NO_ANSWER:
            return CommitOutcome.STILL_OPEN
        case EndAnswer.FENCED | EndAnswer.INVALID_STATE | EndAnswer.UNKNOWN_PRODUCER:
            return None
        case EndAnswer.NOT_AUTHORIZED | EndAnswer.REJECTED:
            return None


def decide_from_markers(markers: Sequence[Marker]) -> CommitOutcome:
    """Decides from the markers of all partitions of a refused transaction.

    Its coordinator decides once for all partitions and then writes one marker after another, so one marker is enough.
    Missing markers will follow (or are lost, which `hanging_transactions.py` detects), and markers that retention has
    removed had the same type. Without any marker, the caller waits. A commit marker next to an abort marker is
    corruption.
    """
    seen = set(markers)
    if {Marker.COMMIT, Marker.ABORT} <= seen:
        return CommitOutcome.UNDECIDABLE
    if Marker.COMMIT in seen:
        return CommitOutcome.COMMITTED
    if Marker.ABORT in seen:
        return CommitOutcome.LOST
    return CommitOutcome.STILL_OPEN if Marker.OPEN in seen else CommitOutcome.GONE


TIMEOUT_S: Final = 30.0


class StatusClient(Protocol):
    """The part of TransactionClient used here."""

    def end_transaction(self, committable: Committable, commit: bool, timeout_s: float) -> EndAnswer:
        """Commits or aborts one."""

    def outcome(self, written: WrittenRange, producer: ProducerId, timeout_s: float) -> Marker:
        """Reads the marker; `timeout_s` applies to each piece of the log."""

    def describe(self, transactional_id: TransactionalId, timeout_s: float) -> TransactionDescription | None:
        """Asks the coordinator."""


def find_transaction_statuses(
    client: StatusClient, committables: Sequence[Committable]
) -> dict[Key, TransactionStatus]:
    """Returns the status of each transaction; changes nothing. Raises BrokerUnavailable."""
    return {key_of(one): _find_transaction_status(client, one) for one in committables}


def abort_all(client: StatusClient, committables: Sequence[Committable]) -> None:
    """Requests the abort of all. A transaction committed earlier stays committed; one without an answer may stay open.

    `find_transaction_statuses` shows the status afterwards.
    """
    for one in committables:
        client.end_transaction(one, commit=False, timeout_s=TIMEOUT_S)


def decide_transaction_status(
    committable: Committable, description: TransactionDescription | None, markers: Sequence[Marker]
) -> TransactionStatus | None:
    """Decides from the coordinator's answer if it concerns exactly this transaction, else from the markers. Pure.

    Returns None if it must be decided from markers, and none were given. A single commit marker proves a commit; an
    abort requires an abort marker in every partition.
    """
    if description is not None and description.producer == committable.producer:
        match description.state:
            case CoordinatorState.ONGOING:
                return TransactionStatus.OPEN
            case CoordinatorState.PREPARE_COMMIT | CoordinatorState.COMPLETE_COMMIT:
                return TransactionStatus.COMMITTED
            case CoordinatorState.PREPARE_ABORT | CoordinatorState.COMPLETE_ABORT:
                return TransactionStatus.ABORTED
    if not markers:
        return None
    if Marker.COMMIT in markers:
        return TransactionStatus.COMMITTED
    return TransactionStatus.ABORTED if set(markers) == {Marker.ABORT} else TransactionStatus.UNKNOWN


def _find_transaction_status(client: StatusClient, one: Committable) -> TransactionStatus:
    description = client.describe(one.transactional_id, timeout_s=TIMEOUT_S)
    status = decide_transaction_status(one, description, ())
    if status is None:
        markers = [client.outcome(part, one.producer, timeout_s=TIMEOUT_S) for part in one.written]
        status = decide_transaction_status(one, description, markers)
    return status or TransactionStatus.UNKNOWN
