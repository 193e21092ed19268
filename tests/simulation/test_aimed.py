"""Crashes behind checkpoints with rows in flight: they happen, and the rows are restored."""

from __future__ import annotations

import msgspec
import pytest

from tests.simulation.canaries import with_rows_in_flight
from tidegate.simulation.campaign import quiet, tell
from tidegate.simulation.draw import draw_schedule
from tidegate.simulation.faults import ROWS_IN_FLIGHT, Fault
from tidegate.simulation.world import Result, play

SEEDS = range(1, 11)


def played(target: str) -> Result:
    """The first schedule in which a checkpoint has rows in flight."""
    faults = (Fault(kind="kill", point=ROWS_IN_FLIGHT, nth=1, target=target),)
    with quiet() as workers:
        for schedule in map(draw_schedule, SEEDS):
            workload = with_rows_in_flight(schedule.workload)
            result = play(msgspec.structs.replace(schedule, workload=workload, faults=faults), workers)
            if result.fired:
                return result
    raise AssertionError("no checkpoint had rows in flight")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["daemon", "slot 1"])
def test_rows_in_flight_are_restored_behind_a_crash_that_is_aimed_at_them(target: str) -> None:
    result = played(target)
    assert result.replays > 0
    assert not result.problems, tell(result, None)
