"""Early results of tumbling and sliding windows, in addition to those on close and to corrected ones.

The rows of a window are aggregated by due time: a row counts from the first result of its window that accepts it. A row
that is late for some of the results starts with a later one. Each result removes its entry from the state `slices` and
adds it to the *gathered* value of its window, so that its cost does not depend on the number of results. An early
result is emitted only if rows have arrived since the one before it.

Any due time of a tumbling window identifies it. Sliding windows share due times, so entries and timers also have the
end of their window, as the last column of their keys, and a row has one entry for each window, and as many results.

With `allowed_lateness`, the last result of a window is corrected at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import TYPE_CHECKING, Final

import polars as pl
from typing_extensions import override

from tidegate.datatypes import BIGINT
from tidegate.operators.kinds.window.running.base import FIRED_MAX, FOLDED_MAX, Store, emit_results
from tidegate.operators.kinds.window.running.partial import AT, Buffer
from tidegate.operators.kinds.window.running.slicing import Slicing
from tidegate.operators.kinds.window.running.timed import TimedRuntime, at_of, first_at
from tidegate.operators.kinds.window.settings import GATHERED, SLICES
from tidegate.operators.lateness import after_ms

if TYPE_CHECKING:
    from tidegate.operators.kinds.window import WindowOperator
    from tidegate.operators.kinds.window.settings import Windowing
    from tidegate.operators.runtime import Out
    from tidegate.operators.spec import Slot
    from tidegate.state.order import Row


class EarlySlicing(Slicing):
    """The slicing of tumbling and sliding windows with early results, and the due times of these.

    Each window has its own due times: its end, and before that each multiple of the interval, counted from its start.
    So the length of the slices of sliding windows is the greatest common divisor of size, `every` and interval. A
    window is identified by its local end.
    """

    def __init__(self, window: Windowing) -> None:
        super().__init__(window)
        self.every_ms = window.every_ms
        self._early_ms = window.early_ms
        self.step_ms = gcd(window.size_ms, window.every_ms, window.early_ms)
        self._cut_ms = 0

    def wholes_of(self, ends: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Returns the first and the last of the windows that contain the slices with these ends."""
        starts = ends - self.step_ms
        return ends + (self.size_ms - ends) % self.every_ms, starts - starts % self.every_ms + self.size_ms

    def due_after(self, wholes: pl.Series, floors: pl.Series) -> pl.Series:
        """Returns the first due time of each window after its floor, or the window's end if there is none."""
        left = (wholes - 1 - floors).clip(lower_bound=0)
        return wholes - left // self._early_ms * self._early_ms

    def whole_of(self, due: int) -> int:
        """Returns the end of the tumbling window of a result."""
        return due - 1 - (due - 1) % self.size_ms + self.size_ms


_WHOLE: Final = "__tidegate_whole"
"""The column of the local end of a window."""


class EarlyRuntime(TimedRuntime):
    """Adds up windows by due time and emits early, final and corrected results."""

    _slicing: EarlySlicing

    def __init__(self, operator: WindowOperator, slot: Slot) -> None:
        slicing = EarlySlicing(operator.window)
        super().__init__(operator, slot, slicing)
        self._early_ms = operator.window.early_ms
        self._sliding = operator.window.overlapping
        keys = [*self._keys, (_WHOLE, BIGINT)] if self._sliding else self._keys
        self._by = [AT, *(name for name, _ in keys)]
        self._slices = Store(self._timed[SLICES], self._aggregates, keys)
        self._gathered = Store(self._timed[GATHERED], self._aggregates, self._keys)
        windows = -(-operator.window.size_ms // operator.window.every_ms)
        entries = 3 * windows  # each of them also has two timers
        self._folded_max = max(1, FOLDED_MAX // entries)
        self._fired_max = FIRED_MAX // 2 if self._sliding else FIRED_MAX
        self._rows = Buffer(self._aggregates, self._key_names, slicing.row_ends, slicing.first_end, entries)
        self._more = Buffer(self._aggregates, self._by[1:], at_of, first_at)
        """Rows that are late for some results of their windows."""
        self._buffers = ((self._rows, self._slices), (self._more, self._slices))

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _take_lagging(self, batch: pl.DataFrame, closed: pl.Series, out: Out) -> None:
        slicing = self._slicing
        ends = slicing.ends_of(batch["__tidegate_time"])
        closed_to = slicing.floors_of(closed)
        over = slicing.floors_of(closed - self._lateness_ms) if self._lateness_ms else closed_to
        late = slicing.wholes_of(ends)[1] <= over
        if late.any():
            self._late.put_aside(batch.filter(late), closed.filter(late), out)
        some = ~late & (closed_to >= ends)
        if not (late | some).all():
            self._take(batch.select(self._columns).filter(~late & ~some))
        if some.any():
            rows = batch.select(self._columns).with_columns(ends.alias(AT)).filter(some)
            self._take_some(rows, closed_to.filter(some), over.filter(some), out)

    def _take_some(self, rows: pl.DataFrame, closed_to: pl.Series, over: pl.Series, out: Out) -> None:
        """Accepts rows that only some results of their windows accept. They are late for windows that end at or before
        `over`.
        """
        rows = self._spread(rows.with_columns(closed_to.alias("__tidegate_closed"), over.alias("__tidegate_over")))
        rows = rows.filter(pl.col(_WHOLE) > pl.col("__tidegate_over"))
        # An early result is not corrected, so it accepts no row that arrives after it.
        after = rows.select(pl.max_horizontal(pl.col(AT) - 1, "__tidegate_closed")).to_series()
        due = self._slicing.due_after(rows[_WHOLE], after)
        rows = rows.drop("__tidegate_closed", "__tidegate_over").with_columns(due.alias(AT))
        self._more.add(rows)
        given = self._given.until(rows) if self._lateness_ms else None
        if given is not None:
            again = rows.filter(rows[_WHOLE] <= given)
            if again.height:
                self._correct(again, out)

    def _spread(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Repeats each row, or partial result of a slice, for each window that contains it."""
        first, last = self._slicing.wholes_of(frame[AT])
        if not self._sliding:
            return frame.with_columns(first.alias(_WHOLE))
        wholes = pl.int_ranges(first, last + 1, self._slicing.every_ms, eager=True)
        return frame.with_columns(wholes.alias(_WHOLE)).explode(_WHOLE)

    @override
    def _fold(self, parts: pl.DataFrame | None, store: Store) -> None:
        """Merges partial results into the store and sets timers. Waiting rows have the ends of slices, all others due
        times.
        """
        if parts is None:
            return
        if self._sliding and _WHOLE not in parts.columns:
            parts = self._spread(parts)
            parts = parts.with_columns(self._slicing.due_after(parts[_WHOLE], parts[AT] - 1).alias(AT))
            parts = self._aggregates.reduce_parts(parts, self._by)
        rows = store.add(parts)
        given = self._given.until(parts)
        wholes = parts[_WHOLE] if self._sliding else self._slicing.wholes_of(parts[AT])[0]
        self._set_timers(rows, parts[AT], wholes, given)
        self._set_timers(rows, wholes, wholes, given)

    # -- results -------------------------------------------------------------------------------------------------------

    def _emit(self, rows: Sequence[Row], out: Out) -> None:
        """Emits results of one due time, or of the ends of several windows. Adds each to the gathered value of its
        window.
        """
        new = self._slices.state.get_many(rows)
        self._slices.state.delete_many([row for row, value in zip(rows, new, strict=True) if value is not None])
        merged = self._gathered.merge([self._whole_of(row) for row in rows], new)
        found = [(row, value) for row, value in zip(rows, merged, strict=True) if value is not None]
        if not found:
            return
        slicing = self._slicing
        parts = self._slices.frame_of(*zip(*found, strict=True)).sort(self._by)
        wholes = parts[_WHOLE] if self._sliding else slicing.wholes_of(parts[AT])[0]
        self._note_closed(slicing.instants_of(parts[AT]) - 1, parts)
        starts, ends = (slicing.instants_of(one) for one in (slicing.window_start(wholes), wholes))
        emit_results(parts, starts, ends, self._results_of(parts), self._names, out, self._slot)

    def _whole_of(self, row: Row) -> Row:
        """Returns the key in `gathered` of a due time and key."""
        return (row[-1], *row[1:-1]) if self._sliding else (self._slicing.whole_of(row[0]), *row[1:])

    def _correct(self, rows: pl.DataFrame, out: Out) -> None:
        """Emits the last results of these windows, once each, in the order of their ends."""
        wanted = rows.select(pl.col(_WHOLE).alias(AT), *self._key_names, _WHOLE).unique()
        self._emit_again(wanted, out)

    def _drop(self, watermark_ms: int) -> bool:
        """Removes what no result can include any more. Returns True if there is more."""
        over = self._slicing.floor_of(after_ms(watermark_ms) - self._lateness_ms)
        left = self._slices.state.take_due(over - self._slicing.size_ms + self._early_ms, FOLDED_MAX)
        gathered = self._gathered.state.take_due(over, FOLDED_MAX)
        self._note_forgotten(gathered)
        return max(len(left), len(gathered)) == FOLDED_MAX
