"""The daemon dies at the calls of one checkpoint, one recovery and one salvage; the next one makes the output exact.

The salvage: three transactions of two sinks and two subtasks that timed out, one held back after them, one that nobody
lists. See `tests/support/broker_life.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.dev.broker import DevelopmentBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SEED = 61
POINTS_MIN = {"checkpoint": 10, "recovery": 10, "salvage": 25}
"""Points that are struck at least: a life without points must not look like a pass."""


def strike(broker: DevelopmentBroker, directory: Path, life: str, reads: int, *bugs: str) -> tuple[int, str]:
    """Exit code and output."""
    arguments = [life, broker.bootstrap, str(directory), f"{SEED}", f"{reads}", *bugs]
    command = [sys.executable, "-m", "tests.support.broker_crash_points", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1700, check=False)
    print(done.stdout)
    return done.returncode, done.stdout + done.stderr[-3000:]


@pytest.mark.parametrize(
    ("life", "reads"), [("checkpoint", -1), ("recovery", 4), pytest.param("salvage", 4, marks=pytest.mark.deep)]
)
def test_C32_a_daemon_that_dies_at_any_call_is_made_whole_by_the_next(
    broker_tv2: DevelopmentBroker, tmp_path: Path, life: str, reads: int
) -> None:
    code, output = strike(broker_tv2, tmp_path, life, reads)
    assert code == 0, output
    struck = re.search(r": (\d+) of \d+ points, 0 not in an allowed state$", output, re.MULTILINE)
    assert struck is not None
    assert int(struck[1]) >= POINTS_MIN[life]


@pytest.mark.deep
@pytest.mark.parametrize(("life", "bug"), [("checkpoint", "commit-first"), ("recovery", "no-recommit")])
def test_a_planted_bug_is_seen(broker_tv2: DevelopmentBroker, tmp_path: Path, life: str, bug: str) -> None:
    code, output = strike(broker_tv2, tmp_path, life, 0, bug)
    assert code == 1, output
    assert "WRONG" in output
