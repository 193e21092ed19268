"""The due time up to which results have been emitted, by this attempt and by earlier ones.

What a restored watermark had made due has been emitted or has a timer in the state. A later row must not cause it to be
emitted again. A rescale may bring together key groups whose watermarks differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import polars as pl

from tidegate.operators.lateness import after_ms
from tidegate.operators.runtime import LOWEST

if TYPE_CHECKING:
    from tidegate.operators.event_time import EventClock
    from tidegate.operators.kinds.window.running.slicing import Slicing


class EmittedPanes:
    """Tracks by key group up to which due time results were emitted. Times are local ms, as all due times."""

    def __init__(self, clock: EventClock, slicing: Slicing, groups_of: Callable[[pl.DataFrame], Sequence[int]]) -> None:
        """`groups_of` returns the key group of each row of a frame that has the key columns."""
        self._clock = clock
        self._slicing = slicing
        self._groups_of = groups_of
        self._until: int | None = None
        self._before: dict[int, int] | None = None
        """By key group, from a restore; empty once this attempt has emitted more. None: not read yet."""

    def advance(self, until: int) -> None:
        """Records that everything due up to here has been emitted."""
        self._until = until if self._until is None else max(until, self._until)
        before = self._restored()
        if before and max(before.values()) <= self._until:
            self._before = {}

    def until(self, rows: pl.DataFrame) -> pl.Series | None:
        """Returns the due time for each row's key, or one for all rows; None while nothing has been emitted."""
        before = self._restored()
        if not before:
            return None if self._until is None else pl.Series([self._until])
        least = LOWEST if self._until is None else self._until
        values = set(before.values())
        if len(values) == 1 and len(before) == self._clock.width:
            return pl.Series([max(least, *values)])
        return pl.Series([max(least, before.get(group, LOWEST)) for group in self._groups_of(rows)], dtype=pl.Int64)

    def _restored(self) -> dict[int, int]:
        if self._before is None:
            restored = self._clock.restored()
            floors = {one: self._slicing.floor_of(after_ms(one)) for one in set(restored.values())}
            self._before = {group: floors[one] for group, one in restored.items()}
        return self._before
