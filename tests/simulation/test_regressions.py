"""Schedules that failed once, shrunk; each file says in its name what was wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.simulation.campaign import decode_schedule, quiet, tell
from tidegate.simulation.world import play

FILES = sorted((Path(__file__).parent / "regressions").glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_schedule_that_failed_once_passes(file: Path) -> None:
    schedule = decode_schedule(file.read_bytes())
    with quiet():
        result = play(schedule)
    assert not result.problems, tell(result, None)
    assert len(result.fired) == len(schedule.faults), "a fault of the schedule does not happen any more"
