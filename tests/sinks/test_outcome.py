"""The whole table of answers and markers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement

import pytest

from tidegate.kafka.facts import EndAnswer, Marker
from tidegate.sinks.outcome import CommitOutcome, decide_from_answer, decide_from_markers

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
