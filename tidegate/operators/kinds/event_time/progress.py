"""The watermark of an `event_time` step. Pure.

Rows have an event time before the step, and another one after it. The watermarks that arrive say how complete the rows
are by the former: when one arrives, all rows up to it are here. The highest new time of these rows, less the delay,
is the watermark of the step. So it does not depend on how far one partition has been read ahead of another, and it
needs no idleness of its own.

Rows after the watermark wait for it as pairs of both times. A pair matters only if its new time is higher than that of
every pair before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final

from tidegate.operators.runtime import LOWEST

PAIRS_MAX: Final = 1000
"""The maximum number of pairs. Beyond it every second one is dropped: the watermark then follows in larger steps."""
_BEFORE: Final = itemgetter(0)

Pair = tuple[int, int]
"""The event time of a row before the step, and after it."""


class EventTimeProgress:
    """The pairs of one subtask, ascending in both times."""

    def __init__(self, lag_ms: int) -> None:
        """`lag_ms`: how far the watermark is behind the highest time."""
        self._lag_ms = lag_ms
        self._pairs: list[Pair] = []

    @property
    def pairs(self) -> Sequence[Pair]:
        """What a restart needs: the pair that the watermark is of, and those after it."""
        return self._pairs

    def add(self, pairs: Iterable[Pair]) -> None:
        """Adds rows, in any order."""
        kept = self._pairs
        for before_ms, time_ms in pairs:
            if not kept or (kept[-1][0] < before_ms and kept[-1][1] < time_ms):
                kept.append((before_ms, time_ms))
                continue
            place = bisect_right(kept, before_ms, key=_BEFORE)
            if place and kept[place - 1][1] >= time_ms:
                continue
            end = place
            while end < len(kept) and kept[end][1] <= time_ms:
                end += 1
            if place and kept[place - 1][0] == before_ms:
                place -= 1
            kept[place:end] = [(before_ms, time_ms)]
        while len(kept) > PAIRS_MAX:
            kept[:-1] = kept[:-1:2]

    def reach(self, watermark_ms: int) -> int:
        """Returns the step's watermark at a watermark that has arrived; LOWEST if no row has come up to there.

        Rows of the next instant count as well. They may not be complete, but those that follow are not before them.
        """
        passed = bisect_right(self._pairs, watermark_ms + 1, key=_BEFORE)
        if not passed:
            return LOWEST
        del self._pairs[: passed - 1]
        return self._pairs[0][1] - self._lag_ms
