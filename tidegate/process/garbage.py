"""How often Python looks for garbage in cycles where there are millions of tuples, which have none."""

from __future__ import annotations

import gc
from typing import Final

GARBAGE: Final = (100_000, 50, 100)
"""Thresholds of the three generations. With those of Python half the time of a restore goes into looking."""


def collect_rarely() -> None:
    """From here on, in this process."""
    gc.set_threshold(*GARBAGE)
