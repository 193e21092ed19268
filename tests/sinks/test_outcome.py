"""The whole table of answers and markers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement

import pytest

from tests.coordinator.values import committable
from tidegate.committable import Committable, WrittenRange
from tidegate.coordinator.ledger import key_of
from tidegate.coordinator.restore_target import TransactionStatus
from tidegate.ids import ProducerId, TransactionalId
from tidegate.kafka.facts import CoordinatorState, EndAnswer, Marker, TransactionDescription
from tidegate.sinks.outcome import (
    CommitOutcome,
    abort_all,
    decide_from_answer,
    decide_from_markers,
    decide_transaction_status,
    find_transaction_statuses,
)

ALL_MARKERS = [list(markers) for count in range(4) for markers in combinations_with_replacement(Marker, count)]
NOT_DECISIVE = [answer for answer in EndAnswer if answer not in (EndAnswer.ENDED, EndAnswer.NO_ANSWER)]


def decide_outcome(answer: EndAnswer, markers: Sequence[Marker]) -> CommitOutcome:
    """As the committer does: markers are looked at only where the answer leaves it open."""
    decided = decide_from_answer(answer)
    return decide_from_markers(markers) if decided is None else decided


@pytest.mark.parametrize("markers", ALL_MARKERS, ids=str)
def test_a_taken_commit_needs_no_markers(markers: list[Marker]) -> None:
    assert decide_outcome(EndAnswer.ENDED, markers) is CommitOutcome.ENDED_NOW


@pytest.mark.parametrize("markers", ALL_MARKERS, ids=str)
def test_without_an_answer_nothing_is_final(markers: list[Marker]) -> None:
    assert decide_outcome(EndAnswer.NO_ANSWER, markers) is CommitOutcome.STILL_OPEN


@pytest.mark.parametrize("answer", NOT_DECISIVE)
@pytest.mark.parametrize("markers", ALL_MARKERS, ids=str)
def test_X02_one_marker_decides_and_both_kinds_are_damage(answer: EndAnswer, markers: list[Marker]) -> None:
    found = decide_outcome(answer, markers)
    committed, aborted = Marker.COMMIT in markers, Marker.ABORT in markers
    assert (found is CommitOutcome.COMMITTED) == (committed and not aborted)
    assert (found is CommitOutcome.LOST) == (aborted and not committed)
    assert (found is CommitOutcome.UNDECIDABLE) == (committed and aborted)


@pytest.mark.parametrize("answer", NOT_DECISIVE)
@pytest.mark.parametrize("markers", ALL_MARKERS, ids=str)
def test_X20_without_a_marker_it_is_waited_for_as_long_as_one_can_come(
    answer: EndAnswer, markers: list[Marker]
) -> None:
    none = not {Marker.COMMIT, Marker.ABORT} & set(markers)
    found = decide_outcome(answer, markers)
    assert (found is CommitOutcome.STILL_OPEN) == (none and Marker.OPEN in markers)
    assert (found is CommitOutcome.GONE) == (none and Marker.OPEN not in markers)


def test_only_two_outcomes_are_commits() -> None:
    assert {one for one in CommitOutcome if one.committed} == {
        CommitOutcome.ENDED_NOW,
        CommitOutcome.COMMITTED,
        CommitOutcome.ACCEPTED,
    }


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
