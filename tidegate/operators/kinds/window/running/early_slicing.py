"""Maps slices to the windows with early results that contain them, and windows to the due times of their results.

Each window has its own due times: its end, and before that each multiple of the interval, counted from its start. So
the length of the slices of sliding windows is the greatest common divisor of size, `every` and interval. A window is
identified by its local end.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from tidegate.operators.kinds.window.running.slicing import Slicing

if TYPE_CHECKING:
    import polars as pl

    from tidegate.operators.kinds.window.settings import Windowing


class EarlySlicing(Slicing):
    """The slicing of tumbling and sliding windows with early results."""

    def __init__(self, window: Windowing) -> None:
        super().__init__(window)
        self.every_ms = window.every_ms
        self._early_ms = window.early_ms
        self.step_ms = gcd(window.size_ms, window.every_ms, window.early_ms)
        self._cut_ms = 0

    def wholes_of(self, ends: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Returns the first and the last of the windows that contain the slices with these ends."""
        starts = ends - self.step_ms
        return ends + (self.size_ms - ends) % self.every_ms, starts - starts % self.every_ms + self.size_ms

    def due_after(self, wholes: pl.Series, floors: pl.Series) -> pl.Series:
        """Returns the first due time of each window after its floor, or the window's end if there is none."""
        left = (wholes - 1 - floors).clip(lower_bound=0)
        return wholes - left // self._early_ms * self._early_ms

    def whole_of(self, due: int) -> int:
        """Returns the end of the tumbling window of a result."""
        return due - 1 - (due - 1) % self.size_ms + self.size_ms
