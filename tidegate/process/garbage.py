"""Reduces how often Python searches for cyclic garbage in processes with millions of tuples, which form no cycles."""

from __future__ import annotations

import gc
from typing import Final

GARBAGE: Final = (100_000, 50, 100)
"""Thresholds of the three generations. With Python's own, half the time of a restore is spent in the search."""


def collect_rarely() -> None:
    """Applies the thresholds to this process from now on."""
    gc.set_threshold(*GARBAGE)
