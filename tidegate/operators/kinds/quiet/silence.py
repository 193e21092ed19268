"""The results of one key, from the event times of its rows. Pure.

A key is quiet at an instant if the last row up to then is at least `for` older. Whether it is, is known once the
watermark reaches the instant: every row up to there has arrived, and rows after it may have arrived as well. So the
times of these rows are kept, and a result depends only on the rows, not on the order of their arrival.

Of three times within `for`, the middle one is not needed: no row between them can make a difference. So at most two
times per `for` are kept, however many rows arrive.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from tidegate.operators.lateness import LAST_MS


class Arrivals(NamedTuple):
    """What is known about a key."""

    times: tuple[int, ...]
    """Event times of its rows, ascending. No result is due before the first one."""
    absences: int = 0
    """How often it has been declared quiet since the first one."""

    @property
    def waits_for_row(self) -> bool:
        """True if only another row can change that it is quiet."""
        return self.absences > 0 and len(self.times) == 1


class Result(NamedTuple):
    """A change of a key, or a repeated absence."""

    at_ms: int
    quiet: bool
    last_ms: int
    """The time of the last row before."""


class Silence(NamedTuple):
    """The settings of the step."""

    for_ms: int
    repeat_ms: int | None

    def add(self, arrivals: Arrivals, times: Iterable[int]) -> Arrivals:
        """Returns the arrivals with further rows, none of them earlier than what the watermark has passed."""
        kept = [*arrivals.times]
        for time in times:
            place = bisect_left(kept, time)
            if place < len(kept) and kept[place] == time:
                continue
            kept.insert(place, time)
            fixed = 1 if arrivals.absences else 0  # the time of the last row before the absence, and its successor
            for middle in (place + 1, place, place - 1):
                if fixed < middle < len(kept) - 1 and kept[middle + 1] - kept[middle - 1] <= self.for_ms:
                    del kept[middle]
        return Arrivals(tuple(kept), arrivals.absences)

    def derive_next(self, arrivals: Arrivals) -> Result | None:
        """Returns the next result if no further row arrives; None if there is none."""
        last, *rest = arrivals.times
        if not arrivals.absences:
            for time in rest:
                if time - last > self.for_ms:
                    break
                last = time
            return _within_calendar(Result(last + self.for_ms, quiet=True, last_ms=last))
        again = None
        if self.repeat_ms is not None:
            again = last + self.for_ms + arrivals.absences * self.repeat_ms
        if rest and (again is None or rest[0] <= again):
            return Result(rest[0], quiet=False, last_ms=last)
        return None if again is None else _within_calendar(Result(again, quiet=True, last_ms=last))

    def apply(self, arrivals: Arrivals, result: Result) -> Arrivals:
        """Returns the arrivals after their next result, which the watermark has reached."""
        if result.quiet:
            first = arrivals.times.index(result.last_ms)
            return Arrivals(arrivals.times[first:], arrivals.absences + 1)
        return Arrivals(arrivals.times[1:])

    def forget(self, arrivals: Arrivals, reached_ms: int) -> Arrivals:
        """Returns the arrivals without times that no result needs, now that no row up to an instant can follow."""
        times = arrivals.times
        if arrivals.absences:
            return arrivals
        first = 0
        while first + 1 < len(times) and times[first + 1] <= min(reached_ms, times[first] + self.for_ms):
            first += 1
        return Arrivals(times[first:])


def _within_calendar(result: Result) -> Result | None:
    return result if result.at_ms <= LAST_MS else None
