"""What has become of a transaction: from the coordinator's view of exactly it, else from the markers."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest

from tests.coordinator.values import committable
from tidegate.committable import Committable, WrittenRange
from tidegate.coordinator.ledger import key_of
from tidegate.coordinator.restore_target import TransactionStatus
from tidegate.ids import ProducerId, TransactionalId
from tidegate.kafka.facts import CoordinatorState, EndAnswer, Marker, TransactionDescription
from tidegate.sinks.outcome import abort_all, decide_transaction_status, find_transaction_statuses

ONE = committable(1)
TOLD = {
    CoordinatorState.ONGOING: TransactionStatus.OPEN,
    CoordinatorState.PREPARE_COMMIT: TransactionStatus.COMMITTED,
    CoordinatorState.COMPLETE_COMMIT: TransactionStatus.COMMITTED,
    CoordinatorState.PREPARE_ABORT: TransactionStatus.ABORTED,
    CoordinatorState.COMPLETE_ABORT: TransactionStatus.ABORTED,
}
MARKERS = [list(markers) for count in (1, 2, 3) for markers in combinations_with_replacement(Marker, count)]


def view(state: CoordinatorState, epoch: int = ONE.producer_epoch) -> TransactionDescription:
    return TransactionDescription(state, ProducerId(ONE.producer_id, epoch), 60_000, 1, frozenset())


class ScriptedClient:
    def __init__(self, told: TransactionDescription | None, markers: list[Marker]) -> None:
        self.told, self.markers = told, markers
        self.aborted: list[Committable] = []

    def end_transaction(self, committable: Committable, commit: bool, timeout_s: float) -> EndAnswer:
        assert not commit
        self.aborted.append(committable)
        return EndAnswer.ENDED

    def outcome(self, written: WrittenRange, producer: ProducerId, timeout_s: float) -> Marker:
        return self.markers.pop(0)

    def describe(self, transactional_id: TransactionalId, timeout_s: float) -> TransactionDescription | None:
        return self.told


@pytest.mark.parametrize("state", list(CoordinatorState))
def test_the_coordinators_view_of_exactly_this_transaction_decides(state: CoordinatorState) -> None:
    assert decide_transaction_status(ONE, view(state), ()) is TOLD.get(state)


@pytest.mark.parametrize("state", list(CoordinatorState))
@pytest.mark.parametrize("markers", MARKERS, ids=str)
def test_the_view_of_a_later_transaction_of_the_id_says_nothing(state: CoordinatorState, markers: list[Marker]) -> None:
    later = view(state, ONE.producer_epoch + 1)
    assert decide_transaction_status(ONE, later, ()) is None
    fate = decide_transaction_status(ONE, later, markers)
    assert (fate is TransactionStatus.COMMITTED) == (Marker.COMMIT in markers)
    assert (fate is TransactionStatus.ABORTED) == (set(markers) == {Marker.ABORT})


def test_markers_are_read_only_where_the_coordinator_does_not_tell() -> None:
    assert find_transaction_statuses(ScriptedClient(view(CoordinatorState.ONGOING), []), [ONE]) == {
        key_of(ONE): TransactionStatus.OPEN
    }
    assert find_transaction_statuses(ScriptedClient(None, [Marker.ABORT]), [ONE]) == {
        key_of(ONE): TransactionStatus.ABORTED
    }
    assert find_transaction_statuses(ScriptedClient(None, [Marker.GONE]), [ONE]) == {
        key_of(ONE): TransactionStatus.UNKNOWN
    }


def test_abort_never_commits() -> None:
    client = ScriptedClient(None, [])
    abort_all(client, [ONE, committable(2)])
    assert client.aborted == [ONE, committable(2)]
