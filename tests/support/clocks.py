"""Clocks that advance only when a test moves them."""

from __future__ import annotations

from tidegate.clock import SystemClock


class HandClock:
    """A clock in seconds, also usable as a function."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class SetClock(SystemClock):
    """A clock whose monotonic time is fixed; its wall clock continues."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now
