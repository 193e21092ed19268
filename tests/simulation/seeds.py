"""Plays a range of seeds and says what went wrong."""

from __future__ import annotations

from tests.depth import DEPTH
from tidegate.simulation.campaign import play_seeds

PER_TEST = 12
TESTS = DEPTH
"""Of each file."""


def check_seeds(first: int) -> None:
    """PER_TEST schedules from seed `first` on: no violation, and most with enough faults that happened."""
    counts = play_seeds(first, PER_TEST)
    print(f"seeds {first} to {first + PER_TEST - 1}: {counts.faults} faults, {counts.attempts} attempts")
    assert not counts.failed, "\n".join(counts.stories)
    assert counts.counted >= PER_TEST * 0.6
