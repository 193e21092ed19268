"""Schedules with faults over sinks that no seed draws: bad records with letters, and topics that records choose."""

from __future__ import annotations

from itertools import count, islice

import msgspec
import pytest

from tests.depth import DEPTH
from tidegate.simulation.campaign import quiet, tell
from tidegate.simulation.draw import draw_schedule
from tidegate.simulation.world import Schedule, play

SCHEDULES = {"letters": 6 * DEPTH, "halves": 3 * DEPTH}


def schedules() -> list[Schedule]:
    """Those of the first seeds without keys: what they plan fits these pipelines, too."""
    drawn = map(draw_schedule, count())
    found = list(islice((one for one in drawn if one.workload.topology == "stateless"), max(SCHEDULES.values())))
    return [
        msgspec.structs.replace(one, workload=msgspec.structs.replace(one.workload, topology=topology, locations=()))
        for topology, number in SCHEDULES.items()
        for one in found[:number]
    ]


@pytest.mark.parametrize("schedule", schedules(), ids=lambda one: f"{one.workload.topology}-{one.seed}")
def test_outputs_are_exact_whatever_fails(schedule: Schedule) -> None:
    """Every record comes out or has its letter, once, in order, in the topic that it names."""
    with quiet():
        result = play(schedule)
    assert not result.problems, tell(result, None)
