"""The wait after a failed attempt, which grows with consecutive failures. Pure.

The first failure is followed by another attempt at once: most are a lost process, and readers wait for the next commit.
`coordinator/restart.py` shortens each wait at random by up to a fifth.
"""

from __future__ import annotations

from typing import Final

DOUBLINGS_MAX: Final = 40
"""Doublings after which every limit on a wait is exceeded."""


def derive_wait_ms(initial_ms: int, max_ms: int, in_a_row: int) -> int:
    """Returns the wait after the given consecutive failure, counted from 1."""
    return min(initial_ms << min(in_a_row - 2, DOUBLINGS_MAX), max_ms) if in_a_row > 1 else 0


def derive_waits_ms(initial_ms: int, max_ms: int, failures: int) -> int:
    """Returns the sum of the waits between this number of consecutive failures, which is not bounded."""
    growing = min(failures - 1, DOUBLINGS_MAX + 1)
    grown_ms = sum(derive_wait_ms(initial_ms, max_ms, in_a_row) for in_a_row in range(1, growing + 1))
    return grown_ms + (failures - 1 - growing) * max_ms
