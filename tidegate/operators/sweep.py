"""Removes expired entries of a state, in parts. Pure.

Whether an entry is expired is decided when it is read, so it does not matter when it is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from tidegate.config.fields.steps import Ttl
from tidegate.operators.runtime import END_OF_TIME, LOWEST
from tidegate.state.base import Key, KeyedState
from tidegate.state.snapshot import Value

SWEPT_AT_ONCE: Final = 2000
"""The number of entries that a snapshot sweeps."""
SWEPT_FOR_NEW: Final = 2
"""The number of entries swept for each new key. It ensures that expired entries are at most as many as live ones,
however many keys arrive between two snapshots.
"""


class Sweep:
    """Removes expired entries, a part at a time, in rounds over the whole state."""

    def __init__(self, state: KeyedState[Any], ttl: Ttl, now_ms: Callable[[], int]) -> None:
        """`now_ms` is the wall clock. It is read only for a `ttl` in processing time."""
        self._state = state
        self._ttl = ttl
        self._now_ms = now_ms
        self._round: Iterator[Any] | None = None

    @property
    def under_way(self) -> bool:
        """True within a round."""
        return self._round is not None

    def go_on(self, entries: int, watermark_ms: int) -> list[tuple[Key, Value]]:
        """Sweeps the next entries. Removes and returns those that have ended, and sets an end for those without one.

        In event time nothing ends before the first watermark, and nothing by an end of time, because another start may
        bring more rows.
        """
        now_ms = self._now_ms() if self._ttl.processing else watermark_ms
        if now_ms in (LOWEST, END_OF_TIME):
            return []
        if self._round is None:
            self._round = self._state.keys()
        keys = list(islice(self._round, entries))
        if len(keys) < entries:
            self._round = None
        over: list[tuple[Key, Value]] = []
        endless: dict[Key, Value] = {}
        for key, value in zip(keys, self._state.get_many(keys), strict=True):
            if value is None:
                continue
            if value[-1] is None:
                endless[key] = (*value[:-1], now_ms + self._ttl.time_ms)
            elif value[-1] < now_ms:
                over.append((key, value))
        if endless:
            self._state.put_many(endless, endless.values())
        if over:
            self._state.delete_many([key for key, _ in over])
        return over
