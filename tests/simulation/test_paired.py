"""An operator with two inputs under faults, by a kind that is no part of the product."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.depth import DEPTH
from tests.tidy.tree import ROOT

SEEDS = 6 * DEPTH


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_pairs_of_two_topics_come_out_once_with_a_gate_with_a_lead_and_without_either() -> None:
    done = run("1", str(SEEDS))
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["ok"]), done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "bug",
    [
        "gate never opens",
        pytest.param("no barrier on hold", marks=pytest.mark.deep),
        pytest.param("one edge by key is enough", marks=pytest.mark.deep),
    ],
)
def test_a_planted_bug_is_found(bug: str) -> None:
    done = run("1", str(SEEDS), bug)
    assert done.stdout.splitlines()[-1:] == ["found"], done.stdout + done.stderr


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation.paired", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "POLARS_MAX_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
