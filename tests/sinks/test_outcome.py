"""The whole table of answers and markers."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest

from tidegate.sinks.facts import EndAnswer, Marker
from tidegate.sinks.outcome import Outcome, decide_outcome

ALL_MARKERS = [list(markers) for count in range(4) for markers in combinations_with_replacement(Marker, count)]
NOT_DECISIVE = [answer for answer in EndAnswer if answer not in (EndAnswer.ENDED, EndAnswer.NO_ANSWER)]


@pytest.mark.parametrize("markers", ALL_MARKERS, ids=str)
def test_a_taken_commit_needs_no_markers(markers: list[Marker]) -> None:
    assert decide_outcome(EndAnswer.ENDED, markers) is Outcome.ENDED_NOW


@pytest.mark.parametrize("markers", ALL_MARKERS, ids=str)
def test_without_an_answer_nothing_is_final(markers: list[Marker]) -> None:
    assert decide_outcome(EndAnswer.NO_ANSWER, markers) is Outcome.STILL_OPEN


@pytest.mark.parametrize("answer", NOT_DECISIVE)
@pytest.mark.parametrize("markers", ALL_MARKERS, ids=str)
def test_lost_is_concluded_from_abort_markers_alone(answer: EndAnswer, markers: list[Marker]) -> None:
    lost = decide_outcome(answer, markers) is Outcome.LOST
    assert lost == (bool(markers) and set(markers) == {Marker.ABORT})


@pytest.mark.parametrize("answer", NOT_DECISIVE)
@pytest.mark.parametrize("markers", ALL_MARKERS, ids=str)
def test_a_refused_transaction_is_committed_by_commit_markers_alone(answer: EndAnswer, markers: list[Marker]) -> None:
    committed = decide_outcome(answer, markers) is Outcome.COMMITTED
    assert committed == (bool(markers) and set(markers) == {Marker.COMMIT})


@pytest.mark.parametrize("answer", NOT_DECISIVE)
@pytest.mark.parametrize("markers", ALL_MARKERS, ids=str)
def test_missing_markers_are_waited_for_unless_the_rest_contradicts(answer: EndAnswer, markers: list[Marker]) -> None:
    seen = set(markers)
    waits = (Marker.OPEN in seen and seen <= {Marker.OPEN, Marker.COMMIT}) or seen == {Marker.OPEN, Marker.ABORT}
    assert (decide_outcome(answer, markers) is Outcome.STILL_OPEN) == waits


@pytest.mark.parametrize("answer", NOT_DECISIVE)
@pytest.mark.parametrize("markers", ALL_MARKERS, ids=str)
def test_gone_or_contradicting_or_no_markers_are_for_a_person(answer: EndAnswer, markers: list[Marker]) -> None:
    seen = set(markers)
    undecidable = not seen or Marker.GONE in seen or {Marker.COMMIT, Marker.ABORT} <= seen
    assert (decide_outcome(answer, markers) is Outcome.UNDECIDABLE) == undecidable


def test_only_two_outcomes_are_commits() -> None:
    assert {outcome for outcome in Outcome if outcome.committed} == {Outcome.ENDED_NOW, Outcome.COMMITTED}
