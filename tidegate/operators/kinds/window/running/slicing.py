"""Maps times to slices, slices to the results that include them, and results to their due times.

Times are cut into *slices* so that every window is a whole number of them. A tumbling window is one slice. The slices
of sliding windows are between the starts and ends of all windows: at most two for each `every`, whatever the sizes are.
Early results also cut them at their due times (`EarlySlicing`).

Everything is computed in *local* milliseconds: UTC less the offset, or, with a time zone, wall-clock time less the
offset, so that a day has 24 hours however long it lasts. An *instant* is UTC. A *due time* is the local end of a
result: the end of its window, unless it is an early result.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import polars as pl

if TYPE_CHECKING:
    from tidegate.operators.kinds.window.settings import Windowing

_CHANGE_MS: Final = 26 * 3_600_000
"""More than any clock change ever made."""


class Slicing:
    """The slicing of tumbling and sliding windows."""

    def __init__(self, window: Windowing) -> None:
        self.size_ms = window.size_ms
        self._period_ms = window.every_ms
        self.step_ms = window.every_ms
        """The distance between due times."""
        self.single = self.step_ms == self.size_ms
        """True if every result is one slice."""
        self._cut_ms = window.size_ms % window.every_ms
        self._offset_ms = window.offset_ms
        self._zone = window.time_zone

    # -- rows ----------------------------------------------------------------------------------------------------------

    def ends_of(self, times: pl.Series) -> pl.Series:
        """Returns the local end of the slice that contains each instant."""
        if not self._zone:
            return self._end(times - self._offset_ms if self._offset_ms else times)
        ends = self._end(self._local(times))
        # If a clock was put back across boundaries, its repeated hour reads as if it were before them.
        passed = times >= self._instants(ends)
        return ends.zip_with(~passed, self._ends_after_change(ends, passed)) if passed.any() else ends

    def row_ends(self, rows: pl.DataFrame) -> pl.Series:
        """Returns the local end of the slice that contains each row's event time."""
        return self.ends_of(rows["__tidegate_time"])

    def first_end(self, rows: pl.DataFrame) -> int:
        """Returns the earliest of these ends."""
        first_ms = int(rows["__tidegate_time"].min())  # type: ignore[arg-type]  # Int64
        if self._zone or self._cut_ms:
            return int(self.ends_of(pl.Series([first_ms]))[0])
        return self.floor_of(first_ms) + self.step_ms

    def open_from(self, rows: pl.DataFrame) -> int:
        """Returns an instant: if everything from it on is open, so are the slices of all rows."""
        if self._zone:
            return int(rows["__tidegate_time"].min())  # type: ignore[arg-type]  # Int64
        return self.first_end(rows) + self._offset_ms - 1

    def floors_of(self, instants: pl.Series) -> pl.Series:
        """Returns the local start of the slice that contains each instant. What is due up to it has ended by then."""
        return self._start_of(self.ends_of(instants))

    def ended_by(self, ends: pl.Series, instants: pl.Series) -> pl.Series:
        """Returns which slices, by their local ends, have ended by these instants."""
        if self._zone:
            return ends <= self.floors_of(instants)
        return ends <= (instants - self._offset_ms if self._offset_ms else instants)

    def floor_of(self, instant_ms: int) -> int:
        """Returns the result of `floors_of` for one instant."""
        if self._zone:
            return int(self.floors_of(pl.Series([instant_ms]))[0])
        local = instant_ms - self._offset_ms
        base = local - local % (self.step_ms if not self._cut_ms else self._period_ms)
        return base + self._cut_ms if self._cut_ms and local - base >= self._cut_ms else base

    # -- results -------------------------------------------------------------------------------------------------------

    def first_due(self, ends: pl.Series) -> pl.Series:
        """Returns the first due time of the slices with these ends."""
        if self.single:
            return ends
        late = (ends - self._cut_ms) % self._period_ms
        return ends + (self._period_ms - late) % self._period_ms

    def last_due(self, ends: pl.Series) -> pl.Series:
        """Returns the last due time of the slices with these ends."""
        if self.single:
            return ends
        starts = self._start_of(ends)
        return starts - starts % self._period_ms + self.size_ms

    def first_due_after(self, floors: pl.Series) -> pl.Series:
        """Returns the first due time after these."""
        step = self.step_ms
        return floors - (floors - self.size_ms % step) % step + step

    def window_start(self, dues: pl.Series) -> pl.Series:
        """Returns the local start of the window whose result is due."""
        return dues - self.size_ms

    def slices_of(self, due: int) -> range | list[int]:
        """Returns the ends of the slices of a result, in order."""
        start = due - self.size_ms
        if not self._cut_ms:
            return range(start + self.step_ms, due + 1, self.step_ms)
        whole = range(start + self._period_ms, due + 1, self._period_ms)
        return sorted([*whole, *range(start + self._cut_ms, due + 1, self._period_ms)])

    def next_due(self, due: int) -> int:
        """Returns the due time after one."""
        return due + self.step_ms

    def last_dropped(self, over: int) -> int:
        """Returns the slice end up to which no result is due after `over`. Of uneven slices, some are left."""
        if self.single:
            return over
        return over - self.size_ms + (0 if self._cut_ms else self.step_ms)

    def instants_of(self, locals_ms: pl.Series) -> pl.Series:
        """Returns the UTC instants of local times that are starts or ends."""
        if not self._zone:
            return locals_ms + self._offset_ms if self._offset_ms else locals_ms
        return self._instants(locals_ms)

    # -- arithmetic ----------------------------------------------------------------------------------------------------

    def _end(self, times: pl.Series) -> pl.Series:
        if not self._cut_ms:
            return times - times % self.step_ms + self.step_ms
        inside = times % self._period_ms
        base = times - inside
        return (
            base + pl.select(pl.when(inside < self._cut_ms).then(self._cut_ms).otherwise(self._period_ms)).to_series()
        )

    def _start_of(self, ends: pl.Series) -> pl.Series:
        if not self._cut_ms:
            return ends - self.step_ms
        inside = ends % self._period_ms
        first = pl.select(pl.when(inside == 0).then(self._period_ms - self._cut_ms).otherwise(self._cut_ms)).to_series()
        return ends - first

    def _ends_after_change(self, ends: pl.Series, passed: pl.Series) -> pl.Series:
        """Replaces boundaries that a clock had shown before it was put back with the first ones that it had not."""
        wrong = ends.filter(passed).unique()
        shown = [_shown_until(self._zone, local) for local in wrong + self._offset_ms]
        right = self._end(pl.Series(shown, dtype=pl.Int64) - self._offset_ms - 1)
        return ends.replace_strict(wrong, right, default=None, return_dtype=pl.Int64)

    def _local(self, times: pl.Series) -> pl.Series:
        return _clock_at(self._zone, times) - self._offset_ms

    def _instants(self, locals_ms: pl.Series) -> pl.Series:
        clock = locals_ms + self._offset_ms
        found = _instants_at(self._zone, clock)
        if found.null_count():
            missing = clock.filter(found.is_null()).unique().to_list()
            instants = [_first_instant(self._zone, local) for local in missing]
            found = found.fill_null(clock.replace_strict(missing, instants, default=None, return_dtype=pl.Int64))
        return found


@lru_cache(maxsize=1024)
def _first_instant(zone: str, local_ms: int) -> int:
    """Returns when a clock first shows a local time that it skips, or a later one."""
    low, high = local_ms - _CHANGE_MS, local_ms + _CHANGE_MS
    while low < high:
        middle = (low + high) // 2
        if int(_clock_at(zone, pl.Series([middle]))[0]) >= local_ms:
            high = middle
        else:
            low = middle + 1
    return low


@lru_cache(maxsize=1024)
def _shown_until(zone: str, local_ms: int) -> int:
    """Returns where the clock would have continued when it was put back, for a local time that it had already shown."""
    start = int(_instants_at(zone, pl.Series([local_ms]))[0])
    low, high = 0, _CHANGE_MS
    while low < high:
        middle = (low + high) // 2
        if int(_clock_at(zone, pl.Series([start + middle]))[0]) == local_ms + middle:
            low = middle + 1
        else:
            high = middle
    return local_ms + low


def _clock_at(zone: str, instants: pl.Series) -> pl.Series:
    """Returns the local times that the clock shows, ms since 1970 there."""
    clock = instants.cast(pl.Datetime("ms", "UTC")).dt.convert_time_zone(zone).dt.replace_time_zone(None)
    return clock.cast(pl.Int64)


def _instants_at(zone: str, clock: pl.Series) -> pl.Series:
    """Returns the first instants at which the clock shows these times; NULL where it never does."""
    zoned = clock.cast(pl.Datetime("ms")).dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    return zoned.dt.convert_time_zone("UTC").cast(pl.Int64)
