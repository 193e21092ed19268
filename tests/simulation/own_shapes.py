"""Plays seeds of a shape that only tests have, in a process of its own."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from tidegate.simulation.campaign import quiet, tell
from tidegate.simulation.draw import draw_schedule
from tidegate.simulation.world import Schedule, play

Bug = Callable[[pytest.MonkeyPatch], None]


def play_seeds(
    seeds: range, change: Callable[[int, Schedule], Schedule], floors: Mapping[str, int], enough: int, bug: Bug | None
) -> int:
    """Plays each seed with its schedule changed, and prints what was reached, or that one has found the planted bug.

    From so many seeds on as are `enough`, the floors must be reached. Returns the exit code.
    """
    reach = Counter[str]()
    failed = 0
    with pytest.MonkeyPatch.context() as patch:
        if bug is not None:
            bug(patch)
        for seed in seeds:
            with quiet():
                result = play(change(seed, draw_schedule(seed)))
            reach.update(result.reach)
            if result.problems and bug is not None:
                print("found")
                return 0
            if result.problems:
                failed += 1
                print(f"seed {seed}: {tell(result, None)}", file=sys.stderr)
    for what in floors:
        print(f"{what}: {reach[what]}")
    missed = [what for what, floor in floors.items() if len(seeds) >= enough and reach[what] < floor]
    print(f"reached too rarely: {missed}" if missed else "ok" if not failed else f"{failed} failed")
    return int(bool(missed or failed))
