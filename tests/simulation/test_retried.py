"""Replayed dead letters under faults, by a shape that no seed draws."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.depth import DEPTH
from tests.tidy.tree import ROOT

SEEDS = 8 * DEPTH

pytestmark = [pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(900)]


def test_rows_that_return_come_out_once_behind_the_step_that_they_return_to() -> None:
    done = run("1", str(SEEDS))
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["ok"]), done.stdout + done.stderr


def test_a_barrier_that_passes_rows_on_their_way_to_the_vertex_of_a_source_is_found() -> None:
    done = run("1", str(SEEDS), "barrier passes rows")
    assert done.stdout.splitlines()[-1:] == ["found"], done.stdout + done.stderr


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation.retried", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "POLARS_MAX_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
