"""How long a failed attempt is waited after: longer with every failure in a row. Pure.

`coordinator/restart.py` takes up to a fifth away from each wait, at random.
"""

from __future__ import annotations

from typing import Final

DOUBLINGS_MAX: Final = 40
"""Beyond every limit on a wait."""


def derive_wait_ms(initial_ms: int, max_ms: int, in_a_row: int) -> int:
    """The wait after this failure in a row, from 1."""
    return min(initial_ms << min(in_a_row - 1, DOUBLINGS_MAX), max_ms)


def derive_waits_ms(initial_ms: int, max_ms: int, failures: int) -> int:
    """All waits between so many failures in a row. There may be any number of them."""
    growing = min(failures - 1, DOUBLINGS_MAX)
    grown_ms = sum(derive_wait_ms(initial_ms, max_ms, in_a_row) for in_a_row in range(1, growing + 1))
    return grown_ms + (failures - 1 - growing) * max_ms
