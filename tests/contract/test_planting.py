"""Mutants: which can be planted, which are rejected, and how a session's report is evaluated."""

from __future__ import annotations

import pytest

from tests.contract.planter import Noticed, Report, find_faults
from tests.contract.planting import Mutant, MutantLost, planted
from tests.coordinator.values import settings
from tidegate.coordinator.events import SAVEPOINT
from tidegate.coordinator.triggers import earliest_trigger_ms as imported_elsewhere
from tidegate.task.barriers.aligner import Aligner

PAUSE = Mutant("C07", "coordinator.triggers:earliest_trigger_ms", "last_completed_ms + settings.min_pause_ms", "7")


def test_a_mutant_is_there_until_the_end_of_the_block_wherever_its_function_was_imported_to() -> None:
    assert imported_elsewhere(settings(min_pause_ms=5), 100) == 105
    with planted(PAUSE):
        assert imported_elsewhere(settings(min_pause_ms=5), 100) == 7
    assert imported_elsewhere(settings(min_pause_ms=5), 100) == 105


def test_properties_and_methods_can_be_changed() -> None:
    aligner, seen = Aligner(2), []
    with planted(Mutant("C26", "coordinator.events:CheckpointProperties.subsumed", "not self.savepoint", "True")):
        seen.append(SAVEPOINT.subsumed)
    with planted(Mutant("B12", "task.barriers.aligner:Aligner.is_blocked", "channel in self._received", "True")):
        seen.append(aligner.is_blocked(0))
    seen += [SAVEPOINT.subsumed, aligner.is_blocked(0)]
    assert seen == [True, True, False, False]


@pytest.mark.parametrize(
    ("place", "old", "new", "problem"),
    [
        ("coordinator.triggers:gone", "a", "b", "is not there"),
        ("coordinator.gone:x", "a", "b", "is not there"),
        ("coordinator.triggers:PHASES", "a", "b", "is no function, but dict"),
        ("coordinator.triggers:earliest_trigger_ms", "no such text", "b", "stands 0 times"),
        ("coordinator.triggers:earliest_trigger_ms", "last_completed_ms", "b", "stands 3 times"),
        ("coordinator.triggers:earliest_trigger_ms", "0 if", "(0) if", "changes nothing"),
    ],
)
def test_a_mutant_that_does_not_fit_is_an_error(place: str, old: str, new: str, problem: str) -> None:
    with pytest.raises(MutantLost, match=problem), planted(Mutant("C07", place, old, new)):
        raise AssertionError("was planted")


def test_faults_are_lines_without_mutant_mutants_that_nobody_notices_or_do_not_fit_and_tests_that_fail_anyway() -> None:
    lost = Mutant("C01", "x:y", "a", "b")
    report = Report([Noticed(PAUSE, tests=3), Noticed(lost, problem="x is not there"), Noticed(lost, by="t")], ["t"])
    assert find_faults(report, {"C01", "C02", "C07"}) == [
        "C02: covered, but without a mutant",
        f"{PAUSE}: none of the 3 quick tests that name the line has noticed",
        "x is not there",
        "t fails without a mutant, too",
    ]
    assert find_faults(Report([Noticed(PAUSE, by="t")], []), {"C07"}) == []
