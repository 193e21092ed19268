"""Reduces a failing schedule to a small one that still fails: fewer faults, then a shorter life and fewer records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from tidegate.simulation.faults import Fault
from tidegate.simulation.world import Schedule

RUNS_MAX = 150
PARTS: Final = (("life", "quiet"), ("life", "after"), ("workload", "backlog"), ("workload", "wave"))
"""Values that can be reduced, down to zero."""


class Shrinker:
    """Delta debugging. `fails` plays a schedule; it is called at most RUNS_MAX times."""

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
        for part, name in PARTS:
            step = getattr(getattr(schedule, part), name) // 2
            while step >= 1:
                smaller = _reduced(schedule, part, name, step)
                if smaller is not None and self._ask(smaller):
                    schedule = smaller
                else:
                    step //= 2
        return schedule

    def _ask(self, schedule: Schedule) -> bool:
        if self.runs >= RUNS_MAX:
            return False
        self.runs += 1
        return self._fails(schedule)


def _reduced(schedule: Schedule, part: str, name: str, step: int) -> Schedule | None:
    whole = getattr(schedule, part)
    left = getattr(whole, name) - step
    if left < 0:
        return None
    return msgspec.structs.replace(schedule, **{part: msgspec.structs.replace(whole, **{name: left})})
