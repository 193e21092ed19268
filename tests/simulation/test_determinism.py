"""A seed is a run: the same events at the same moments, in every process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.depth import DEPTH
from tidegate.simulation.digests import digests

SEEDS = 2 * DEPTH

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def here() -> list[str]:
    """Of this process, whose hashes begin where nobody knows."""
    return digests(1, SEEDS)


@pytest.mark.deep
def test_a_seed_run_twice_gives_the_same_trace(here: list[str]) -> None:
    assert digests(1, SEEDS) == here


def test_a_process_with_another_hash_seed_gives_the_same_traces(here: list[str]) -> None:
    hash_seed = "4242" if os.environ.get("PYTHONHASHSEED") != "4242" else "1"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "POLARS_MAX_THREADS": "1"}
    command = [sys.executable, "-m", "tidegate.simulation.digests", "1", str(SEEDS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=True)
    assert len(here) == SEEDS
    assert done.stdout.split() == here
