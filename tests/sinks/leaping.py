"""A clock for what waits."""

from __future__ import annotations


class LeapingClock:
    """Passes by sleeping only, by default quickly: what waits for what never comes ends soon on any machine."""

    def __init__(self, speed: float = 200) -> None:
        self._now_s = 0.0
        self._speed = speed

    def now_ms(self) -> int:
        return int(self._now_s * 1000)

    def monotonic(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        self._now_s += self._speed * seconds
