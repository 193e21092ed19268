"""A failing schedule becomes small."""

from __future__ import annotations

import msgspec

from tidegate.simulation.campaign import SHRINK_RUNS_MAX, Shrinker, decode_schedule, encode_schedule
from tidegate.simulation.draw import draw_schedule
from tidegate.simulation.world import Schedule


def test_only_the_faults_that_are_needed_are_left() -> None:
    schedule = draw_schedule(8)
    needed = {schedule.faults[2], schedule.faults[7]}
    shrinker = Shrinker(lambda candidate: needed <= set(candidate.faults))
    assert set(shrinker.shrink(schedule).faults) == needed


def test_life_becomes_shorter_and_records_fewer_while_it_still_fails() -> None:
    schedule = draw_schedule(8)
    workload = msgspec.structs.replace(schedule.workload, backlog=40, wave=30)
    shrinker = Shrinker(lambda candidate: candidate.workload.backlog >= 17 and candidate.life.quiet >= 2)
    long = msgspec.structs.replace(schedule.life, quiet=6)
    smallest = shrinker.shrink(msgspec.structs.replace(schedule, workload=workload, life=long))
    assert (smallest.workload.backlog, smallest.workload.wave) == (17, 0)
    assert (smallest.life.quiet, smallest.life.after, smallest.faults) == (2, 0, ())


def test_it_gives_up_after_a_bounded_number_of_runs() -> None:
    asked: list[Schedule] = []

    def fails(candidate: Schedule) -> bool:
        asked.append(candidate)
        return len(asked) % 3 == 0

    Shrinker(fails).shrink(draw_schedule(8))
    assert len(asked) <= SHRINK_RUNS_MAX


def test_a_schedule_survives_its_file() -> None:
    schedule = draw_schedule(5)
    assert decode_schedule(encode_schedule(schedule)) == schedule


def test_leaving_a_fault_out_changes_nothing_else_of_the_plan() -> None:
    schedule = draw_schedule(5)
    less = msgspec.structs.replace(schedule, faults=schedule.faults[1:])
    assert less.workload == schedule.workload
    assert draw_schedule(5) == schedule
