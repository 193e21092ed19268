"""Planned faults: what, when, to whom; and which of them really happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from tidegate.simulation.reach import ReachTable

TARGETS: Final = frozenset({"daemon", "slot", "state", "journal", "moved", "loading", "grace"})
"""Shown in a table; others are many."""
CRASHES: Final = frozenset({"crash-before", "crash-after"})


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Either at a moment (`at_s`) or at the `nth` time that a `point` is passed; both count from when faults begin.

    A point is `<kind of process>.<what it does>`, for example `daemon.storage.put_if_absent` or `slot.broker.produce`.
    """

    kind: str
    at_s: float | None = None
    point: str = ""
    nth: int = 0
    target: str = ""
    """Which process, for faults at a moment: `daemon`, `slot 0`, or two of them."""
    seconds: float = 0.0
    """How long it lasts; of the death of a daemon how long nobody starts it again, 0: as usual."""

    def __str__(self) -> str:
        when = f"at {self.at_s:.3f} s" if self.at_s is not None else f"at {self.point} no. {self.nth}"
        return f"{self.kind} {self.target} {when}" + (f" for {self.seconds:.3f} s" if self.seconds else "")

    @property
    def title(self) -> str:
        """Its kind, for a table."""
        if self.point:
            return f"{self.kind} {'.'.join(self.point.split('.')[:2])}"
        first = self.target.split("/")[0].split(" ")[0]
        if self.kind == "clock":
            return f"clock {first} {self.target.split(' ')[-1]}"
        return f"{self.kind} {first}" if first in TARGETS else self.kind


class FaultPlan:
    """The faults of one schedule. None happens before `begin` and none after `end`."""

    def __init__(
        self, faults: tuple[Fault, ...], reach: ReachTable | None = None, now: Callable[[], float] = float
    ) -> None:
        self.faults = faults
        self.fired: list[Fault] = []
        self.passed: Counter[str] = Counter()
        """Point -> how often, since faults have begun."""
        self.away_s = 0.0
        """How long nobody starts the daemon again that a fault has killed."""
        self.until_s = 0.0
        """When the last of them is over that has happened."""
        self.active = False
        self._reach = reach or ReachTable()
        self._now = now
        self._at_points = {(fault.point, fault.nth): fault for fault in faults if fault.point}

    @property
    def timed(self) -> list[Fault]:
        """Those with a moment."""
        return [fault for fault in self.faults if fault.at_s is not None]

    def begin(self) -> None:
        """From now on points are counted."""
        self.active = True

    def end(self) -> None:
        """No more faults."""
        self.active = False

    def strike(self, point: str) -> Fault | None:
        """A point is passed: the fault that is planned for this time, if any."""
        if not self.active:
            return None
        self.passed[point] += 1
        fault = self._at_points.get((point, self.passed[point]))
        if fault is not None:
            self.happened(fault)
            if fault.kind in CRASHES:
                self.away_s = max(self.away_s, fault.seconds)
        return fault

    def happened(self, fault: Fault) -> None:
        """It did."""
        self.fired.append(fault)
        self.until_s = max(self.until_s, self._now() + fault.seconds)
        self._reach.note(f"fault: {fault.title}")
