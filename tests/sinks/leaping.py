"""A clock for what waits in vain."""

from __future__ import annotations


class LeapingClock:
    """Passes by sleeping only, and quickly: what waits for something that never comes ends soon on any machine."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_ms(self) -> int:
        return int(self._now_s * 1000)

    def monotonic(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        self._now_s += 200 * seconds
