"""Planned faults: which, when and where, and which of them actually happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from tidegate.ids import MAIN_CLUSTER, ClusterName
from tidegate.simulation.reach import ReachTable

TARGETS: Final = frozenset({"daemon", "slot", "state", "journal", "moved", "loading", "grace"})
"""Targets that a table shows by name; others would be too many."""
CRASHES: Final = frozenset({"crash-before", "crash-after"})


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fault at a moment (`at_s`) or at the `nth` time that a `point` is passed. Both count from when faults begin.

    A point is `<kind of process>.<action>`, for example `daemon.storage.put_if_absent` or `slot.broker.produce`.
    """

    kind: str
    at_s: float | None = None
    point: str = ""
    nth: int = 0
    target: str = ""
    """The process that a fault at a moment affects: `daemon`, `slot 0`, or two of them."""
    cluster: ClusterName = MAIN_CLUSTER
    """The cluster that a fault of brokers affects."""
    seconds: float = 0.0
    """Duration. For the death of a daemon: how long it is not restarted; 0 means the usual time."""

    def __str__(self) -> str:
        when = f"at {self.at_s:.3f} s" if self.at_s is not None else f"at {self.point} no. {self.nth}"
        where = "" if self.cluster == MAIN_CLUSTER else f"in cluster {self.cluster} "
        return f"{self.kind} {self.target} {where}{when}" + (f" for {self.seconds:.3f} s" if self.seconds else "")

    @property
    def title(self) -> str:
        """The kind of fault as a table shows it."""
        if self.point:
            return f"{self.kind} {'.'.join(self.point.split('.')[:2])}"
        first = self.target.split("/")[0].split(" ")[0]
        if self.kind == "clock":
            return f"clock {first} {self.target.split(' ')[-1]}"
        return f"{self.kind} {first}" if first in TARGETS else self.kind


class FaultPlan:
    """The faults of one schedule. None happens before `begin` or after `end`."""

    def __init__(
        self, faults: tuple[Fault, ...], reach: ReachTable | None = None, now: Callable[[], float] = float
    ) -> None:
        self.faults = faults
        self.fired: list[Fault] = []
        self.passed: Counter[str] = Counter()
        """Point -> how often it was passed since faults began."""
        self.away_s = 0.0
        """Time for which a daemon that a fault has killed is not restarted."""
        self.until_s = 0.0
        """End of the last fault that has happened."""
        self.active = False
        self._reach = reach or ReachTable()
        self._now = now
        self._at_points = {(fault.point, fault.nth): fault for fault in faults if fault.point}

    @property
    def timed(self) -> list[Fault]:
        """The faults that happen at a moment."""
        return [fault for fault in self.faults if fault.at_s is not None]

    def begin(self) -> None:
        """Starts counting points."""
        self.active = True

    def end(self) -> None:
        """Ends all faults."""
        self.active = False

    def strike(self, point: str) -> Fault | None:
        """Counts that a point is passed and returns the fault planned for this time, if any."""
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
        """Notes that a fault has happened."""
        self.fired.append(fault)
        self.until_s = max(self.until_s, self._now() + fault.seconds)
        self._reach.note(f"fault: {fault.title}")
        if fault.cluster != MAIN_CLUSTER:
            self._reach.note("faults of the second cluster")
