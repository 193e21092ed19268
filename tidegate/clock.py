"""The time, as a value that is handed in: a machine's own, or a virtual one under the simulation."""

from __future__ import annotations

import time
from typing import Final, Protocol


class Clock(Protocol):
    """What the edge asks of a clock."""

    def now_ms(self) -> int:
        """Wall clock, ms since 1970."""

    def monotonic(self) -> float:
        """Seconds, never goes back."""

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        """See Clock."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """See Clock."""
        return time.monotonic()

    def elapsed_ms(self) -> float:
        """Monotonic, ms."""
        return time.perf_counter() * 1000

    def sleep(self, seconds: float) -> None:
        """See Clock."""
        time.sleep(seconds)


SYSTEM_CLOCK: Final = SystemClock()
