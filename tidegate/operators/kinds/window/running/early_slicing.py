"""Which windows with early results a slice is in, and when their results are due.

Each window has its own due times: its end, and before that each multiple of the interval, counted from its start. So
the slices of sliding windows are as long as what divides size, `every` and interval. A window is named by its local
end.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from tidegate.operators.kinds.window.running.slicing import Slicing

if TYPE_CHECKING:
    import polars as pl

    from tidegate.operators.kinds.window.settings import Windowing


class EarlySlicing(Slicing):
    """Of tumbling and sliding windows."""

    def __init__(self, window: Windowing) -> None:
        super().__init__(window)
        self.every_ms = window.every_ms
        self._early_ms = window.early_ms
        self.step_ms = gcd(window.size_ms, window.every_ms, window.early_ms)
        self._cut_ms = 0

    def wholes_of(self, ends: pl.Series) -> tuple[pl.Series, pl.Series]:
        """The first and the last of the windows that the slices with these ends are in."""
        starts = ends - self.step_ms
        return ends + (self.size_ms - ends) % self.every_ms, starts - starts % self.every_ms + self.size_ms

    def due_after(self, wholes: pl.Series, floors: pl.Series) -> pl.Series:
        """Of each window the first due time after one; its end if there is none."""
        left = (wholes - 1 - floors).clip(lower_bound=0)
        return wholes - left // self._early_ms * self._early_ms

    def whole_of(self, due: int) -> int:
        """The tumbling window that a result is of."""
        return due - 1 - (due - 1) % self.size_ms + self.size_ms
