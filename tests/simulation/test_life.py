"""The course of a schedule: quiet, faults, calm, and once more."""

from __future__ import annotations

import msgspec
import pytest

from tidegate.simulation import life
from tidegate.simulation.campaign import quiet, tell
from tidegate.simulation.draw import draw_schedule
from tidegate.simulation.faults import Fault
from tidegate.simulation.life import Life
from tidegate.simulation.world import Schedule, ScheduleResult, play

pytestmark = pytest.mark.slow

KILL = Fault(kind="kill", at_s=0.0, target="daemon")


def schedule_of(seed: int, *faults: Fault, quiet: int = 0, after: int = 1, faults_s: float = 1.0) -> Schedule:
    """A drawn workload with a life and faults of our own."""
    workload = msgspec.structs.replace(draw_schedule(seed).workload, bounded=False, slot_pace=1.0)
    life = Life(quiet=quiet, after=after, faults_s=faults_s)
    return Schedule(seed=seed, workload=workload, life=life, faults=faults)


def played(schedule: Schedule) -> ScheduleResult:
    with quiet():
        return play(schedule)


def test_no_fault_happens_before_so_many_checkpoints_are_committed() -> None:
    result = played(schedule_of(1, KILL, quiet=6))
    assert not result.problems, tell(result, None)
    assert result.fired == (KILL,)
    lines = result.trace.lines
    first = next(index for index, line in enumerate(lines) if "FAULT" in line)
    assert sum("is complete and committed" in line for line in lines[:first]) >= 6


def test_calls_are_counted_from_the_first_moment_of_the_faults() -> None:
    crash = Fault(kind="crash-before", point="daemon.storage.put_if_absent", nth=1)
    result = played(schedule_of(1, crash, quiet=3))
    assert not result.problems, tell(result, None)
    lines = result.trace.lines
    begin = next(index for index, line in enumerate(lines) if "faults begin" in line)
    assert any("put_if_absent" in line for line in lines[:begin])
    assert result.fired == (crash,)
    assert result.passed["daemon.storage.put_if_absent"] > 1


def test_so_many_checkpoints_with_new_records_follow_the_last_fault() -> None:
    result = played(schedule_of(1, KILL, quiet=1, after=7))
    assert not result.problems, tell(result, None)
    lines = result.trace.lines
    last = next(index for index, line in enumerate(lines) if "the faults are over" in line)
    assert sum("is complete and committed" in line for line in lines[last:]) >= 7


def test_whatever_was_committed_starts_again() -> None:
    result = played(schedule_of(2, quiet=1))
    assert not result.problems, tell(result, None)
    assert result.daemons == 2
    assert any("started once more" in line for line in result.trace.lines)


def test_a_pipeline_that_does_not_start_again_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    again = life.Course._start_again

    def without_its_journal(self: life.Course) -> None:
        newest = max(name for name in self._world.operations.objects if name.startswith("journal/"))
        del self._world.operations.objects[newest]
        again(self)

    monkeypatch.setattr(life.Course, "_start_again", without_its_journal)
    assert played(schedule_of(2, quiet=1)).problems


def test_a_recovery_that_takes_too_long_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life, "RECOVERY_S", 0.3)
    away = msgspec.structs.replace(KILL, at_s=1.9, seconds=3.0)
    problems = played(schedule_of(1, away, quiet=2, faults_s=1.0)).problems
    assert any("a committed checkpoint did not come" in problem for problem in problems)
