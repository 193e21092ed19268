"""From a failing schedule to a small one that still fails: fewer faults, then fewer records."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidegate.simulation.faults import Fault
from tidegate.simulation.world import Schedule

RUNS_MAX = 150


class Shrinker:
    """Delta debugging. `fails` plays a schedule; it is asked at most RUNS_MAX times."""

    def __init__(self, fails: Callable[[Schedule], bool]) -> None:
        self._fails = fails
        self.runs = 0

    def shrink(self, schedule: Schedule) -> Schedule:
        """The smallest failing schedule that was found."""
        schedule = self._fewer_faults(schedule)
        schedule = self._fewer_records(schedule)
        return self._fewer_faults(schedule)

    def _fewer_faults(self, schedule: Schedule) -> Schedule:
        """Leave out half of them, then quarters, then one at a time."""
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

    def _fewer_records(self, schedule: Schedule) -> Schedule:
        records = schedule.workload.records
        step = records // 2
        while step >= 1:
            smaller = msgspec.structs.replace(schedule.workload, records=schedule.workload.records - step)
            candidate = msgspec.structs.replace(schedule, workload=smaller)
            if smaller.records >= 1 and self._ask(candidate):
                schedule = candidate
            else:
                step //= 2
        return schedule

    def _ask(self, schedule: Schedule) -> bool:
        if self.runs >= RUNS_MAX:
            return False
        self.runs += 1
        return self._fails(schedule)
