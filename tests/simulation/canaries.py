"""Whether the simulation would notice: known protocol bugs are planted one at a time, and plain seeds must find each
within a budget, or the simulation proves nothing. `make canaries` prints where each one is caught.

`known.json` has for each a seed that catches it at little cost, for the tests; `--learn` searches those that do not any
more.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.simulation import (
    planted,
    planted_clusters,
    planted_event_time,
    planted_joins,
    planted_python_steps,
    planted_starts,
)
from tidegate.simulation.campaign import prepare, quiet
from tidegate.simulation.draw import draw_schedule
from tidegate.simulation.world import play

BUDGET: Final = 1000
"""Seeds that may be played for one canary in one run."""
NEAR: Final = 5
"""In a test: from the known seed on."""
FIRST_MAX: Final = 1_000_000_000
KNOWN: Final = Path(__file__).parent / "known.json"

Plant = Callable[[pytest.MonkeyPatch], None]

CANARIES: Final[dict[str, Plant]] = {
    name: plant
    for module in (planted, planted_starts, planted_event_time, planted_joins, planted_python_steps, planted_clusters)
    for name, plant in vars(module).items()
    if callable(plant) and getattr(plant, "__module__", "") == module.__name__ and not name.startswith("_")
}

_SOUND: Final[dict[int, bool]] = {}


class Caught(msgspec.Struct, frozen=True):
    """A schedule that a planted bug breaks."""

    seed: int
    problem: str
    seconds: float
    """Of this schedule, with the bug and, where it is played without it, without."""


def known_seeds() -> dict[str, int]:
    found: dict[str, int] = json.loads(KNOWN.read_text())
    return found


def hunt(name: str, first: int, budget: int, enough: int = 1, without: bool = True) -> list[Caught]:
    """Play seeds with the bug until so many are violated that are not without it, or the budget is used up.

    Unless `without`, violated seeds are not played without the bug, which takes as long again.
    """
    caught: list[Caught] = []
    with quiet():
        for seed in range(first, first + budget):
            found = _try(name, seed, without)
            if found is not None:
                caught.append(found)
            if len(caught) == enough:
                break
    return caught


def _try(name: str, seed: int, without: bool) -> Caught | None:
    schedule = draw_schedule(seed)
    started = time.process_time()
    with pytest.MonkeyPatch.context() as patch:
        CANARIES[name](patch)
        problems = play(schedule).problems
    if not problems or (without and not _sound(seed)):
        return None
    telling = _telling(problems)
    if telling.startswith(("TypeError: ", "AttributeError: ")):
        raise AssertionError(f"{name} does not fit the code that it replaces: {telling}")
    return Caught(seed, telling, time.process_time() - started)


def _sound(seed: int) -> bool:
    """Whether nothing is violated without a bug. Several canaries share seeds, so it is played once in a process."""
    if seed not in _SOUND:
        _SOUND[seed] = not play(draw_schedule(seed)).problems
    return _SOUND[seed]


def _telling(problems: Sequence[str]) -> str:
    """What is wrong with the output rather than that it was waited for in vain."""
    lines = [problem.strip().splitlines()[-1] for problem in problems]
    return next((line for line in lines if "did not come within" not in line), lines[0])


class Options(msgspec.Struct, frozen=True):
    """Of the command."""

    names: list[str]
    first: int
    runs: int
    budget: int
    processes: int
    learn: bool


def read_options(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, help="first seed of the first run; fresh ones without it")
    parser.add_argument("--runs", type=int, default=1, help="of different first seeds")
    parser.add_argument("--budget", type=int, default=BUDGET, help="seeds for each canary in each run")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--learn", action="store_true", help=f"renew {KNOWN.name} where it does not catch any more")
    parser.add_argument("names", nargs="*", help="of canaries; all without any")
    found = parser.parse_args(arguments)
    first = secrets.randbelow(FIRST_MAX) if found.first is None else found.first
    return Options(found.names or list(CANARIES), first, found.runs, found.budget, found.processes, found.learn)


def run(options: Options, pool: ProcessPoolExecutor) -> Iterator[str]:
    """A line for each canary: how many seeds it took in each run. The last line counts."""
    yield f"first seeds {', '.join(str(_begin(options, number)) for number in range(options.runs))}"
    waiting: dict[str, list[Future[list[Caught]]]] = {
        name: [pool.submit(hunt, name, _begin(options, number), options.budget) for number in range(options.runs)]
        for name in options.names
    }
    everywhere = 0
    for name, futures in waiting.items():
        runs = [future.result() for future in futures]
        took = [
            str(found[0].seed - _begin(options, at) + 1) if found else "NOT CAUGHT" for at, found in enumerate(runs)
        ]
        everywhere += all(runs)
        problem = next((found[0].problem for found in runs if found), "")
        yield f"{name:<64} {' '.join(took)}  {problem[:120]}"
    yield f"{everywhere} of {len(waiting)} caught"


def learn(options: Options, pool: ProcessPoolExecutor) -> Iterator[str]:
    """Renew the known seeds of those that are not caught near theirs."""
    known = known_seeds() if KNOWN.exists() else {}
    looks = {name: pool.submit(hunt, name, known.get(name, 0), NEAR) for name in options.names if name in known}
    lost = [name for name in options.names if name not in looks or not looks[name].result()]
    hunts = {pool.submit(hunt, name, options.first, options.budget): name for name in lost}
    for future in as_completed(hunts):
        name, found = hunts[future], future.result()
        if found:
            known[name] = found[0].seed
            KNOWN.write_text(json.dumps({one: known[one] for one in CANARIES if one in known}, indent=1) + "\n")
        yield f"{name:<64} {found[0].seed if found else 'NOT CAUGHT'}"
    left = [name for name in lost if name not in known]
    yield f"{len(options.names) - len(left)} of {len(options.names)} caught"


def _begin(options: Options, number: int) -> int:
    return options.first + number * options.budget


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 when something was not caught."""
    options = read_options(arguments)
    context = get_context("spawn")
    last = ""
    with ProcessPoolExecutor(options.processes, mp_context=context, initializer=prepare) as pool:
        for last in learn(options, pool) if options.learn else run(options, pool):
            print(last, flush=True)
    told, _, of, _ = last.split()
    return int(told != of)


if __name__ == "__main__":
    sys.exit(main())
