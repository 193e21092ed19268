"""Whether the simulation would notice: known protocol bugs are planted one at a time, and plain seeds must find each
within a budget, or the simulation proves nothing. `make canaries` prints where each one is caught.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec
import pytest

from tests.simulation import planted
from tidegate.simulation.campaign import prepare, quiet
from tidegate.simulation.draw import draw_schedule
from tidegate.simulation.world import play

BUDGET: Final = 1000
"""Seeds that may be played for one canary, from FIRST on."""
FIRST: Final = 1

Plant = Callable[[pytest.MonkeyPatch], None]

CANARIES: Final[dict[str, Plant]] = {
    name: plant
    for name, plant in vars(planted).items()
    if callable(plant) and getattr(plant, "__module__", "") == planted.__name__
}


class Caught(msgspec.Struct, frozen=True):
    """The first schedule that a planted bug breaks."""

    seed: int
    problem: str
    seconds: float


def hunt(plant: Plant, first: int = FIRST, budget: int = BUDGET) -> Caught | None:
    """Play seeds with the bug until one is violated that is not without it; None when the budget is used up."""
    started = time.monotonic()
    with quiet() as workers:
        for seed in range(first, first + budget):
            schedule = draw_schedule(seed)
            with pytest.MonkeyPatch.context() as patch:
                plant(patch)
                problems = play(schedule, workers).problems
            if problems and not play(schedule, workers).problems:
                return Caught(seed, _telling(problems), time.monotonic() - started)
    return None


def _telling(problems: Sequence[str]) -> str:
    """What is wrong with the output rather than that it was waited for in vain."""
    lines = [problem.strip().splitlines()[-1] for problem in problems]
    return next((line for line in lines if "did not come within" not in line), lines[0])


def main(arguments: Sequence[str] | None = None) -> Iterator[str]:
    """The table, line by line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--first", type=int, default=FIRST)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(arguments)
    chosen = {name: plant for name, plant in CANARIES.items() if not options.names or name in options.names}
    caught = 0
    for name, plant in chosen.items():
        found = hunt(plant, options.first, options.budget)
        caught += found is not None
        what = (
            f"NOT CAUGHT in {options.budget} seeds"
            if found is None
            else f"caught at seed {found.seed} ({found.seconds:.1f} s): {found.problem[:150]}"
        )
        yield f"{name:<64} {what}"
    yield f"{caught} of {len(chosen)} caught"


if __name__ == "__main__":
    prepare()
    last = ""
    for last in main():
        print(last, flush=True)
    told, _, of, _ = last.split()
    sys.exit(told != of)
