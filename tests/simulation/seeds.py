"""Plays a range of seeds and says what went wrong."""

from __future__ import annotations

from tests.depth import DEPTH
from tidegate.simulation.campaign import play_seeds

PER_TEST = 20
TESTS = DEPTH
"""Of each file."""


def check_seeds(first: int) -> None:
    """PER_TEST schedules from seed `first` on: no violation, and most with enough faults that happened."""
    tally = play_seeds(first, PER_TEST)
    print(f"seeds {first} to {first + PER_TEST - 1}: {tally.faults} faults, {tally.attempts} attempts")
    assert not tally.failed, "\n".join(tally.stories)
    assert tally.counted >= PER_TEST * 0.6
