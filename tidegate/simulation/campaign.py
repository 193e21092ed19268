"""A campaign: many schedules, played in one or several processes and counted. Failed schedules are reported."""

from __future__ import annotations

import gc
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from signal import SIG_DFL, SIGINT, signal
from typing import Final

import msgspec

from tidegate.parent import die_with_parent
from tidegate.simulation.draw import draw_schedule
from tidegate.simulation.faults import Fault
from tidegate.simulation.shapes.registry import JOINED, PYTHON, WINDOWED
from tidegate.simulation.workload import Workload
from tidegate.simulation.world import Schedule, ScheduleResult, play

ENOUGH_FAULTS: Final = 5
"""A schedule counts if at least this many of its faults really happened, or half of them if it plans few."""
ORDINARY: Final = frozenset({"savepoint", "stop", "go-back"})
"""Planned disturbances that are not counted as faults."""
ONLY: Final[Mapping[str, Callable[[Workload], bool]]] = {
    "windows": lambda workload: workload.topology in WINDOWED,
    "joins": lambda workload: workload.topology in JOINED,
    "python": lambda workload: workload.topology in PYTHON,
    "clusters": lambda workload: bool(workload.locations),
}
"""Groups of schedules that a campaign may be limited to."""
CHUNK: Final = 50
GARBAGE: Final = (2_000_000, 0, 0)
"""Thresholds of the garbage collector.

A world becomes garbage as a whole, so collecting while it lives is useless. With these thresholds the collector runs
once in about a hundred worlds, over everything. This takes a fourteenth of the time; a run after every 50,000 new
objects takes an eighth.
"""
STORY_LINES: Final = 60
SHRINK_RUNS_MAX = 150
SHRINKING: Final = (("life", "quiet"), ("life", "after"), ("workload", "backlog"), ("workload", "wave"))
"""Values that can be reduced, down to zero."""

_PLAYING: Final = ExitStack()
"""Contexts that a process playing chunks stays in until it ends."""


class CampaignCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a number of schedules."""

    drawn: int = 0
    """Seeds drawn, whether they were played or skipped."""
    played: int = 0
    counted: int = 0
    """Schedules with enough faults."""
    faults: int = 0
    attempts: int = 0
    checkpoints: int = 0
    refusals: int = 0
    """Daemons that stopped for good because a file was damaged."""
    recovered_s: float = 0.0
    """The longest time from the end of the last disturbance to the next committed checkpoint."""
    standing_s: float = 0.0
    """The longest time that readers were blocked while an attempt ran."""
    reach: dict[str, int] = {}
    """Situation -> how often it was reached."""
    failed: tuple[int, ...] = ()
    """Seeds of failed schedules."""
    stories: tuple[str, ...] = ()

    def plus(self, other: CampaignCounts) -> CampaignCounts:
        """Returns the sum of both."""
        return CampaignCounts(
            drawn=self.drawn + other.drawn,
            played=self.played + other.played,
            counted=self.counted + other.counted,
            faults=self.faults + other.faults,
            attempts=self.attempts + other.attempts,
            checkpoints=self.checkpoints + other.checkpoints,
            refusals=self.refusals + other.refusals,
            recovered_s=max(self.recovered_s, other.recovered_s),
            standing_s=max(self.standing_s, other.standing_s),
            reach=dict(Counter(self.reach) + Counter(other.reach)),
            failed=self.failed + other.failed,
            stories=self.stories + other.stories,
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Disables log messages and makes garbage collection rare while many schedules run."""
    before, thresholds = logging.root.manager.disable, gc.get_threshold()
    logging.disable(logging.CRITICAL)
    gc.set_threshold(*GARBAGE)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        logging.disable(before)


def play_seeds(first: int, count: int, *, only: str = "") -> CampaignCounts:
    """Plays seeds `first` to `first + count - 1` in this process, or only those of a group (`ONLY`)."""
    with quiet():
        return _play_chunk(first, count, only=only)


def play_in_processes(
    first: int, count: int, processes: int, budget_s: float | None, *, only: str = ""
) -> Iterator[tuple[CampaignCounts, float]]:
    """Yields the counts so far and the elapsed seconds after each chunk. Ends early if the budget is used up.

    `only`: the group of schedules that are played (`ONLY`); others are skipped.
    """
    started = time.monotonic()
    counts = CampaignCounts()
    chunks = [(at, min(CHUNK, first + count - at)) for at in range(first, first + count, CHUNK)]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_begin_chunks) as pool:
        play_chunk = partial(_play_chunk, only=only)
        # One chunk more than processes, so that the first idle process has work while the oldest chunk is awaited.
        ahead = processes + 1
        waiting = [pool.submit(play_chunk, at, size) for at, size in chunks[:ahead]]
        following = iter(chunks[ahead:])
        while waiting:
            counts = counts.plus(waiting.pop(0).result())
            elapsed_s = time.monotonic() - started
            yield counts, elapsed_s
            chunk = next(following, None)
            if chunk is not None and (budget_s is None or elapsed_s < budget_s):
                waiting.append(pool.submit(play_chunk, *chunk))


def prepare() -> None:
    """Prepares a process before Polars is imported.

    One thread is enough for a few dozen rows. A process of a pool ends with its parent.
    """
    os.environ["POLARS_MAX_THREADS"] = "1"
    parent = parent_process()
    if parent is not None:
        die_with_parent(parent.pid)
        signal(SIGINT, SIG_DFL)  # a KeyboardInterrupt could be raised anywhere in the product, which may catch it


def _begin_chunks() -> None:
    """Prepares a process that only plays chunks."""
    prepare()
    gc.freeze()  # the collector need not walk the modules
    _PLAYING.enter_context(quiet())


def _play_chunk(first: int, count: int, *, only: str) -> CampaignCounts:
    counts = CampaignCounts()
    for seed in range(first, first + count):
        schedule = draw_schedule(seed)
        counts = counts.plus(CampaignCounts(drawn=1))
        if only and not ONLY[only](schedule.workload):
            continue
        counts = counts.plus(_count(play(schedule)))
    return counts


def tell(result: ScheduleResult, smallest: Schedule | None) -> str:
    """Returns the story of a failed schedule."""
    fired, story = [str(fault) for fault in result.fired], result.trace.lines
    parts = [
        f"seed {result.schedule.seed} fails: {result.schedule.workload}",
        "faults that happened:",
        *(f"  {fault}" for fault in fired),
        f"the last {STORY_LINES} of {len(story)} lines:",
        *(f"  {line}" for line in story[-STORY_LINES:]),
        "problems:",
        *(f"  {problem}" for problem in result.problems),
    ]
    if smallest is not None:
        parts += ["smallest schedule that fails, for tests/simulation/regressions/:", encode_schedule(smallest)]
    return "\n".join(parts)


def encode_schedule(schedule: Schedule) -> str:
    """Encodes a schedule as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(schedule), indent=2).decode()


def decode_schedule(text: str | bytes) -> Schedule:
    """Inverse of `encode_schedule`."""
    return msgspec.json.decode(text, type=Schedule)


def _count(result: ScheduleResult) -> CampaignCounts:
    failed: tuple[int, ...] = ()
    stories: tuple[str, ...] = ()
    faults = sum(fault.kind not in ORDINARY for fault in result.fired)
    if result.problems:
        smallest = Shrinker(lambda s: bool(play(s).problems)).shrink(result.schedule)
        failed, stories = (result.schedule.seed,), (tell(result, smallest),)
    return CampaignCounts(
        played=1,
        counted=int(faults >= min(ENOUGH_FAULTS, len(result.schedule.faults) // 2)),
        faults=faults,
        attempts=result.attempts,
        checkpoints=result.checkpoints,
        refusals=len(result.refusals),
        recovered_s=result.recovered_s,
        standing_s=result.standing_s,
        reach=result.reach,
        failed=failed,
        stories=stories,
    )


class Shrinker:
    """Reduces a failing schedule to a small one that still fails, by delta debugging.

    There are fewer faults first, then a shorter life and fewer records. `fails` plays a schedule; it is called at most
    SHRINK_RUNS_MAX times.
    """

    def __init__(self, fails: Callable[[Schedule], bool]) -> None:
        self._fails = fails
        self.runs = 0

    def shrink(self, schedule: Schedule) -> Schedule:
        """Returns the smallest failing schedule that was found."""
        schedule = self._fewer_faults(schedule)
        schedule = self._less(schedule)
        return self._fewer_faults(schedule)

    def _fewer_faults(self, schedule: Schedule) -> Schedule:
        """Leaves out half of the faults, then quarters, and finally one at a time."""
        size = max(1, len(schedule.faults) // 2)
        while schedule.faults:
            smaller = self._without(schedule, size)
            if smaller is not None:
                schedule = smaller
                size = min(size, max(1, len(schedule.faults)))
            elif size == 1:
                break
            else:
                size = max(1, size // 2)
        return schedule

    def _without(self, schedule: Schedule, size: int) -> Schedule | None:
        for start in range(0, len(schedule.faults), size):
            left: tuple[Fault, ...] = schedule.faults[:start] + schedule.faults[start + size :]
            candidate = msgspec.structs.replace(schedule, faults=left)
            if self._ask(candidate):
                return candidate
        return None

    def _less(self, schedule: Schedule) -> Schedule:
        """Reduces the number of records and the length of the life."""
        for part, name in SHRINKING:
            step = getattr(getattr(schedule, part), name) // 2
            while step >= 1:
                smaller = _reduced(schedule, part, name, step)
                if smaller is not None and self._ask(smaller):
                    schedule = smaller
                else:
                    step //= 2
        return schedule

    def _ask(self, schedule: Schedule) -> bool:
        if self.runs >= SHRINK_RUNS_MAX:
            return False
        self.runs += 1
        return self._fails(schedule)


def _reduced(schedule: Schedule, part: str, name: str, step: int) -> Schedule | None:
    whole = getattr(schedule, part)
    left = getattr(whole, name) - step
    if left < 0:
        return None
    return msgspec.structs.replace(schedule, **{part: msgspec.structs.replace(whole, **{name: left})})
