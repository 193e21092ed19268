"""Removes expired entries of a state, in parts. Pure.

Whether an entry is expired is decided when it is read, so it does not matter when it is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from tidegate.state.base import KeyedState
from tidegate.state.snapshot import Value

SWEPT_AT_ONCE: Final = 2000
"""The number of entries that a snapshot sweeps."""
SWEPT_FOR_NEW: Final = 2
"""The number of entries swept for each new key. It ensures that expired entries are at most as many as live ones,
however many keys arrive between two snapshots.
"""


class Sweep:
    """Removes expired entries, a part at a time, in rounds over the whole state."""

    def __init__(self, state: KeyedState[Any], ttl_ms: int) -> None:
        self._state = state
        self._ttl_ms = ttl_ms
        self._round: Iterator[Any] | None = None

    def go_on(self, now_ms: int, entries: int) -> None:
        """Sweeps the next entries. Removes those that ended before `now_ms`, and sets an end for those without one."""
        if self._round is None:
            self._round = self._state.keys()
        keys = list(islice(self._round, entries))
        if len(keys) < entries:
            self._round = None
        over: list[Any] = []
        endless: dict[Any, Value] = {}
        for key, value in zip(keys, self._state.get_many(keys), strict=True):
            if value is None:
                continue
            if value[-1] is None:
                endless[key] = (*value[:-1], now_ms + self._ttl_ms)
            elif value[-1] < now_ms:
                over.append(key)
        if endless:
            self._state.put_many(endless, endless.values())
        if over:
            self._state.delete_many(over)
