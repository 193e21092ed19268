"""Clocks that stand until a test moves them."""

from __future__ import annotations

from tidegate.clock import SystemClock


class HandClock:
    """Seconds, for whoever takes a function."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class SetClock(SystemClock):
    """A clock whose seconds stand; the wall clock goes on."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now
