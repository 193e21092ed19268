"""The expiry of running totals: a key to which nothing is added for the `ttl` starts again. Pure.

In event time, the row alone decides. Its key starts again if the row's own time, or the watermark of its partition when
it was read if that was later, is past the last time of the key plus the ttl. So batches, restarts and the moment when
an entry is really removed make no difference: the watermark that removes it is never ahead of a partition's own
watermark, unless that partition was idle. In processing time, the moment when a batch is processed decides.

An entry has its end time in the state's expiry slot. An entry written without a ttl has none. The first sweep or row
that encounters it sets one, as if the key had been updated at that moment.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
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


def split_lives(
    numbers: Sequence[int],
    times: Sequence[int],
    nows: Sequence[int],
    ends: list[int | None],
    ttl_ms: int,
    *,
    endless: Container[int] = (),
) -> tuple[list[int], list[int]]:
    """Returns the number of each row's life, and the last life of each key.

    `numbers`: the number of each row's key. `times`: the times of the rows. `nows`: the moments at which the rows are
    judged, which are not before their times. `ends`: when each key's total ends; None for a new key and for those of
    `endless`, whose totals were written without a ttl. The function updates `ends`. A key's first life has the key's
    number; each further life has its own number, after those of all keys.
    """
    last = list(range(len(ends)))
    count = len(ends)
    lives: list[int] = []
    for number, time, now in zip(numbers, times, nows, strict=True):
        end = ends[number]
        if end is None:
            end = now + ttl_ms if number in endless else None  # whatever `time` is: a late row must not end it
        elif now > end:
            last[number] = count
            count += 1
            end = None
        later = time + ttl_ms
        ends[number] = later if end is None or later > end else end
        lives.append(last[number])
    return lives, last


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
