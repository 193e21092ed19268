"""A seed is a run: the same events at the same moments, in every process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tidegate.simulation.digests import digests

SEEDS = 6

pytestmark = pytest.mark.slow


def digests_of_a_process(hash_seed: int) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "POLARS_MAX_THREADS": "1"}
    command = [sys.executable, "-m", "tidegate.simulation.digests", "1", str(SEEDS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=True)
    return done.stdout.split()


def test_a_seed_run_twice_gives_the_same_trace() -> None:
    assert digests(1, SEEDS) == digests(1, SEEDS)


def test_processes_with_different_hash_seeds_give_the_same_traces() -> None:
    first, second = digests_of_a_process(1), digests_of_a_process(4242)
    assert len(first) == SEEDS
    assert first == second
