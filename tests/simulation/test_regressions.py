"""Schedules that failed once, shrunk; each file says in its name what was wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tidy.tree import TESTS
from tidegate.simulation.campaign import decode_schedule, quiet, tell
from tidegate.simulation.world import play

FILES = sorted((Path(__file__).parent / "regressions").glob("*.json"))
SHOWN_BY_QUICK_TESTS = {
    "commits-ask-again-for-what-has-ended-until-readers-stand-still": "daemon/test_instructions.py",
    "files-missed-while-the-volume-was-away": "daemon/test_restore_point.py",
    "last-watermark-forgotten-while-an-idle-channel-was-asked": "task/test_valve.py",
    "late-by-the-first-watermark-of-a-source-with-an-idle-partition": "task/test_idle_channels.py",
    "partition-asked-whether-it-is-idle-when-it-had-rows-again": "sources/test_watermarks.py",
    "rows-of-an-idle-partition-late-while-another-of-its-source-is-read": "task/test_idle_channels.py",
    "savepoint-restored-again-where-the-old-volume-is-back": "daemon/test_repeat_output.py",
}
"""The longest schedules whose bug was fixed together with a quick test of it, and the file of that test."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, id=file.stem, marks=[pytest.mark.deep] if file.stem in SHOWN_BY_QUICK_TESTS else [])
        for file in FILES
    ],
)
def test_schedule_that_failed_once_passes(file: Path) -> None:
    schedule = decode_schedule(file.read_bytes())
    with quiet():
        result = play(schedule)
    assert not result.problems, tell(result, None)
    assert len(result.fired) == len(schedule.faults), "a fault of the schedule does not happen any more"


def test_every_schedule_that_is_shown_elsewhere_is_there_and_so_is_the_file() -> None:
    assert SHOWN_BY_QUICK_TESTS.keys() <= {file.stem for file in FILES}
    assert all((TESTS / name).is_file() for name in SHOWN_BY_QUICK_TESTS.values())
