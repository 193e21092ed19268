"""Determines the status of transactions that a rewind must not commit, and aborts them.

The committer is never used here: it would commit them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from tidegate.committable import Committable, WrittenRange
from tidegate.coordinator.ledger import Key, key_of
from tidegate.coordinator.restore_target import TransactionStatus
from tidegate.ids import ProducerId, TransactionalId
from tidegate.kafka.facts import CoordinatorState, EndAnswer, Marker, TransactionDescription

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
