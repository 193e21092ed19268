"""Schedules with faults over a pipeline with bad records: every record comes out or has its letter, once, in order."""

from __future__ import annotations

import msgspec
import pytest

from tidegate.simulation.campaign import quiet, tell
from tidegate.simulation.draw import draw_schedule
from tidegate.simulation.workload import LETTERS
from tidegate.simulation.world import Schedule, play

SCHEDULES = 12


def schedules() -> list[Schedule]:
    """Those of the first seeds without keys: what they plan fits this pipeline, too."""
    drawn = (draw_schedule(seed) for seed in range(1_000))
    found = [one for one in drawn if one.workload.topology == "stateless"][:SCHEDULES]
    assert len(found) == SCHEDULES
    return [
        msgspec.structs.replace(one, workload=msgspec.structs.replace(one.workload, topology=LETTERS)) for one in found
    ]


@pytest.mark.parametrize("schedule", schedules(), ids=lambda schedule: str(schedule.seed))
def test_letters_are_exact_whatever_fails(schedule: Schedule) -> None:
    with quiet() as workers:
        result = play(schedule, workers)
    assert not result.problems, tell(result, None)
