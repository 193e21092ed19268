"""Planned faults: what, when, to whom; and which of them really happened."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

ROWS_IN_FLIGHT: Final = "daemon.rows-in-flight"
"""The point behind the completion of a checkpoint that holds rows in flight."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Either at a moment (`at_s`, virtual seconds after the start) or at the `nth` time that a `point` is passed.

    A point is `<kind of process>.<what it does>`, for example `daemon.storage.put_if_absent` or `slot.broker.produce`.
    """

    kind: str
    at_s: float | None = None
    point: str = ""
    nth: int = 0
    target: str = ""
    """Which process, for faults at a moment and behind a checkpoint: `daemon`, `slot 0`, or two of them."""
    seconds: float = 0.0

    def __str__(self) -> str:
        when = f"at {self.at_s:.3f} s" if self.at_s is not None else f"at {self.point} no. {self.nth}"
        return f"{self.kind} {self.target} {when}" + (f" for {self.seconds:.3f} s" if self.seconds else "")


class FaultPlan:
    """The faults of one schedule. `calm` ends them, but for those behind checkpoints with rows in flight: while other
    faults go on, a pipeline with slow slots hardly completes any, so they strike where it works off what has waited.
    """

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.faults = faults
        self.fired: list[Fault] = []
        self.passed: Counter[str] = Counter()
        self.calm = False
        self._at_points = {(fault.point, fault.nth): fault for fault in faults if fault.point}

    @property
    def timed(self) -> list[Fault]:
        """Those with a moment."""
        return [fault for fault in self.faults if fault.at_s is not None]

    def strike(self, point: str) -> Fault | None:
        """A point is passed: the fault that is planned for this time, if any."""
        self.passed[point] += 1
        fault = self._at_points.get((point, self.passed[point]))
        if fault is None or (self.calm and point != ROWS_IN_FLIGHT):
            return None
        self.fired.append(fault)
        return fault
