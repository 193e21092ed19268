"""What has become of transactions that are not to be committed: looked at, and aborted. Read by going back only.

The committer is never asked here: it would commit them.
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
    """What is used of TransactionClient."""

    def end_transaction(self, committable: Committable, commit: bool, timeout_s: float) -> EndAnswer:
        """Commit or abort one."""

    def outcome(self, written: WrittenRange, producer: ProducerId, timeout_s: float) -> Marker:
        """Read the marker; `timeout_s` is for each piece of the log."""

    def describe(self, transactional_id: TransactionalId, timeout_s: float) -> TransactionDescription | None:
        """Ask the coordinator."""


def find_transaction_statuses(
    client: StatusClient, committables: Sequence[Committable]
) -> dict[Key, TransactionStatus]:
    """What the broker says; changes nothing. Raises BrokerUnavailable."""
    return {key_of(one): _find_transaction_status(client, one) for one in committables}


def abort_all(client: StatusClient, committables: Sequence[Committable]) -> None:
    """Ask for their abort. One that was committed before stays so, and one without an answer may stay open:
    `find_transaction_statuses` shows it afterwards.
    """
    for one in committables:
        client.end_transaction(one, commit=False, timeout_s=TIMEOUT_S)


def decide_transaction_status(
    committable: Committable, told: TransactionDescription | None, markers: Sequence[Marker]
) -> TransactionStatus | None:
    """From the coordinator's view if it is about exactly this transaction, else from the markers. Pure.

    None: it has to be decided from markers, and none were given. One commit marker is enough; aborted is only what
    every partition says.
    """
    if told is not None and told.producer == committable.producer:
        match told.state:
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
    told = client.describe(one.transactional_id, timeout_s=TIMEOUT_S)
    status = decide_transaction_status(one, told, ())
    if status is None:
        markers = [client.outcome(part, one.producer, timeout_s=TIMEOUT_S) for part in one.written]
        status = decide_transaction_status(one, told, markers)
    return status or TransactionStatus.UNKNOWN
