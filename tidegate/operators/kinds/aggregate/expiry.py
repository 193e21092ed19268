"""When running totals end: a key to which nothing is added for the `ttl` begins again. Pure.

In event time that goes by the row alone: it begins again when its own time, or the watermark of its partition when it
was read if that was later, is past the last time of its key plus the ttl. So batches, restarts and the moment at which
an entry is really removed make no difference: the watermark that removes it is never ahead of a partition's own, unless
that one was idle. By the clock it goes by when batches are processed.

An entry has the time at which it ends in the state's expiry slot. One that was written without a ttl has none, and is
given one by the first sweep or the first row that meets it, as if it had been added to at that moment.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from tidegate.state.base import KeyedState
from tidegate.state.snapshot import Value

SWEPT_AT_ONCE: Final = 2000
"""Entries that are looked at for a snapshot."""
SWEPT_FOR_NEW: Final = 2
"""So many are looked at for each that is new, so that what has ended is at most as much as what has not, however many
keys come between two snapshots."""


def split_lives(
    numbers: Sequence[int],
    times: Sequence[int],
    nows: Sequence[int],
    ends: list[int | None],
    ttl_ms: int,
    *,
    endless: Container[int] = (),
) -> tuple[list[int], list[int]]:
    """The number of each row's life, and the last life of each key.

    `numbers`: of each row's key. `times` of the rows, and the moments `nows` at which they are judged, which are not
    before them. `ends`: when each key's total ends, None for a new key and for those of `endless`, whose totals were
    written without a ttl; moved. A key's first life has the key's number, each further one a number of its own after
    those of all keys.
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
    """Removes what has ended, a part at a time, in rounds over the whole state."""

    def __init__(self, state: KeyedState[Any], ttl_ms: int) -> None:
        self._state = state
        self._ttl_ms = ttl_ms
        self._round: Iterator[Any] | None = None

    def go_on(self, now_ms: int, entries: int) -> None:
        """The next so many entries. `now_ms`: what ended before it is removed; what has no end yet is given one."""
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
