"""The lines of the contract by id. All of them are kept: at least one test names each.

F: fault tolerance, B: barrier handling, C: coordinator, W: watermarks, S: serializers of state.
"""

from __future__ import annotations

LAST = {"F": 29, "B": 50, "C": 41, "W": 32, "S": 23}
"""Maps a group to the number of its last line; the first is 01."""

ALL = frozenset(f"{group}{number:02}" for group, last in LAST.items() for number in range(1, last + 1))
