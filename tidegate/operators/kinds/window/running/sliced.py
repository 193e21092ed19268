"""Results that combine several slices or are emitted more than once: sliding windows and corrected results.

A row is in one slice, however many windows contain it. Each pending result has a *timer*, its due time and key. If
slices are also part of the next result, the timer sets that result's timer. When a timer fires, the slices of its
result are read and merged. A slice is removed when the last of its results can no longer be emitted.

Rows that are late for some but not all results of their slice cannot be added to the slice. They go into the state
`extra`, once for each due time that still accepts them. With `allowed_lateness`, a row may belong to results that have
been emitted. Those are corrected and emitted again at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import polars as pl
from typing_extensions import override

from tidegate.operators.kinds.window.running.base import (
    FOLDED_MAX,
    ResultsOf,
    Store,
    WindowRuntime,
    emit_results,
    key_columns,
)
from tidegate.operators.kinds.window.running.partial import AT, Buffer
from tidegate.operators.kinds.window.running.slicing import Slicing
from tidegate.operators.kinds.window.running.timed import TimedRuntime, at_of, first_at
from tidegate.operators.kinds.window.settings import EXTRA, SLICES
from tidegate.operators.lateness import after_ms

if TYPE_CHECKING:
    from tidegate.operators.kinds.window import WindowOperator
    from tidegate.operators.runtime import Out
    from tidegate.operators.spec import Slot
    from tidegate.state.order import Row

LOOKED_UP_MAX: Final = 4_000
"""The maximum number of slices read in one call."""
ENTRIES: Final = 2
"""The state entries of a partial result: a slice and a timer."""
SPREAD_MAX: Final = 400_000
"""The maximum number of rows created at a time from those that are late for some of their results."""
_ROW: Final = "__tidegate_row"
_LAST: Final = "__tidegate_last"


class SlicedRuntime(TimedRuntime):
    """Keeps slices and emits results by their timers."""

    def __init__(self, operator: WindowOperator, slot: Slot) -> None:
        slicing = Slicing(operator.window)
        super().__init__(operator, slot, slicing)
        self._every_ms = operator.window.every_ms
        self._fired_max = max(1, LOOKED_UP_MAX // len(slicing.slices_of(0)))
        self._slices = Store(self._timed[SLICES], self._aggregates, self._keys)
        self._extra = Store(self._timed[EXTRA], self._aggregates, self._keys)
        self._rows = Buffer(self._aggregates, self._key_names, slicing.row_ends, slicing.first_end, ENTRIES)
        self._more = Buffer(self._aggregates, self._key_names, at_of, first_at, ENTRIES)
        self._buffers = ((self._rows, self._slices), (self._more, self._extra))

    # -- rows ----------------------------------------------------------------------------------------------------------

    @override
    def _open_from(self, batch: pl.DataFrame) -> int:
        return super()._open_from(batch) if self._lateness_ms else self._slicing.open_from(batch)

    def _take_lagging(self, batch: pl.DataFrame, closed: pl.Series, out: Out) -> None:
        slicing = self._slicing
        ends = slicing.ends_of(batch["__tidegate_time"])
        first, last = slicing.first_due(ends), slicing.last_due(ends)
        over = slicing.floors_of(closed - self._lateness_ms if self._lateness_ms else closed)
        late = last <= over
        if late.any():
            self._late.put_aside(batch.filter(late), closed.filter(late), out)
        begin = slicing.first_due_after(over)
        begin = pl.select(pl.max_horizontal(first, pl.min_horizontal(begin, last))).to_series()
        whole = ~late & (begin == first)
        if whole.any():
            self._take(batch.select(self._columns).filter(whole))
        some = ~late & (begin > first)
        if some.any():
            rows = batch.select(self._columns).filter(some)
            for part in self._for_each_due(rows, begin.filter(some), last.filter(some)):
                self._more.add(part)
        given = self._given.until(batch) if self._lateness_ms else None
        if given is not None:
            again = ~late & (begin <= given)
            if again.any():
                self._correct(batch.filter(again), begin.filter(again), last.filter(again), out)

    def _for_each_due(self, rows: pl.DataFrame, begin: pl.Series, last: pl.Series) -> Iterator[pl.DataFrame]:
        """Yields each row once for each of its results, which may be thousands, for a part of the rows at a time."""
        dues = rows.with_columns(begin.alias(AT), last.alias(_LAST))
        most = max(1, SPREAD_MAX * self._every_ms // self._slicing.size_ms)
        for part in dues.iter_slices(most):
            each = pl.int_ranges(part[AT], part[_LAST] + 1, self._slicing.step_ms, eager=True)
            yield part.drop(_LAST).with_columns(each.alias(AT)).explode(AT)

    def _fold(self, parts: pl.DataFrame | None, store: Store) -> None:
        """Merges partial results into the state and sets timers for the results that are due next."""
        if parts is None:
            return
        rows = store.add(parts)
        given = self._given.until(parts)
        if store is self._slices:
            first, last = self._slicing.first_due(parts[AT]), self._slicing.last_due(parts[AT])
            self._set_timers(rows, self._not_given(first, given), last, given)
        else:
            self._set_timers(rows, parts[AT], parts[AT], given)

    def _not_given(self, dues: pl.Series, given: pl.Series | None) -> pl.Series:
        """Returns the due times, or the first ones that were not emitted yet."""
        if given is None:
            return dues
        return pl.select(pl.max_horizontal(dues, self._slicing.first_due_after(given))).to_series()

    # -- results -------------------------------------------------------------------------------------------------------

    def _set_next(self, rows: Sequence[Row]) -> None:
        """Sets the timers of the next results if they share slices with these."""
        due = rows[0][0]
        going_on = [end for end in self._slicing.slices_of(due) if end > due - self._slicing.size_ms + self._every_ms]
        found = self._slices.state.get_many([(end, *row[1:]) for row in rows for end in going_on])
        size = len(going_on)
        following = [
            (self._slicing.next_due(due), *row[1:])
            for place, row in enumerate(rows)
            if any(value is not None for value in found[place * size : (place + 1) * size])
        ]
        if following:
            self._timers.put_many(following, [()] * len(following))

    def _emit(self, rows: Sequence[Row], out: Out) -> None:
        """Emits the results of these due times and keys, ordered by time."""
        parts = self._look_up(rows)
        if parts is None:
            return
        parts = parts.sort([AT, *self._key_names])
        slicing, dues = self._slicing, parts[AT]
        starts, ends = (slicing.instants_of(one) for one in (slicing.window_start(dues), dues))
        self._note_closed(ends - 1, parts)
        emit_results(parts, starts, ends, self._results_of(parts), self._names, out, self._slot)

    def _look_up(self, rows: Sequence[Row]) -> pl.DataFrame | None:
        """Reads and merges the slices of each due time and its entry in `extra`."""
        wanted = [(place, (end, *row[1:])) for place, row in enumerate(rows) for end in self._slicing.slices_of(row[0])]
        found = self._slices.state.get_many([key for _, key in wanted])
        values = [(place, value) for (place, _), value in zip(wanted, found, strict=True) if value is not None]
        if len(self._extra):
            more = self._extra.state.get_many(rows)
            values += [(place, value) for place, value in enumerate(more) if value is not None]
        if not values:
            return None
        columns = self._aggregates.columns_of([value for _, value in values])
        frame = pl.DataFrame([pl.Series(_ROW, [place for place, _ in values], dtype=pl.Int64), *columns])
        merged = self._aggregates.reduce_parts(frame, [_ROW]).sort(_ROW)
        chosen = [rows[place] for place in merged[_ROW]]
        return pl.DataFrame([*key_columns(chosen, self._keys), *merged.drop(_ROW).get_columns()])

    def _correct(self, batch: pl.DataFrame, begin: pl.Series, last: pl.Series, out: Out) -> None:
        """Emits again the emitted results that also include these rows, once each, in the order of their ends."""
        given = self._given.until(batch)
        assert given is not None
        ends = pl.select(pl.min_horizontal(last, given)).to_series()
        names = self._key_names
        parts = self._for_each_due(batch.select(names), begin, ends)
        wanted = pl.concat([part.drop_nulls(AT).select(AT, *names).unique() for part in parts])
        self._emit_again(wanted.unique(), out)

    def _drop(self, watermark_ms: int) -> bool:
        """Removes what no result can include any more. Returns True if there is more."""
        over = self._slicing.floor_of(after_ms(watermark_ms) - self._lateness_ms)
        taken = self._slices.state.take_due(self._slicing.last_dropped(over), FOLDED_MAX)
        more = self._extra.state.take_due(over, FOLDED_MAX) if len(self._extra) else []
        self._note_forgotten(taken, self._slicing.last_due)
        self._note_forgotten(more)
        return max(len(taken), len(more)) == FOLDED_MAX


class TumblingRuntime(WindowRuntime):
    """Emits each tumbling window once, without corrections.

    A window is an entry of the state `slices`, and is taken from its front.

    Rows wait in a `Buffer`. A small number of due partial results bypasses the state, so a window that opens and closes
    between two snapshots never enters it.
    """

    def __init__(self, operator: WindowOperator, slot: Slot) -> None:
        super().__init__(operator, slot)
        self._slicing = Slicing(operator.window)
        self._store = Store(self._timed[SLICES], self._aggregates, self._keys)
        self._by = [AT, *(name for name, _ in self._keys)]
        self._buffer = Buffer(self._aggregates, self._by[1:], self._slicing.row_ends, self._slicing.first_end)

    @property
    @override
    def gauges(self) -> Mapping[str, int]:
        windows = len(self._store) + len(self._buffer)
        return {"open_windows": windows, "timers": windows}

    @override
    def before_snapshot(self) -> None:
        parts = self._buffer.take()
        if parts is not None:
            self._store.add(parts)
        self._clock.before_snapshot()

    def _take(self, rows: pl.DataFrame) -> None:
        self._buffer.add(rows)

    @override
    def _open_from(self, batch: pl.DataFrame) -> int:
        return self._slicing.open_from(batch)

    def _take_lagging(self, batch: pl.DataFrame, closed: pl.Series, out: Out) -> None:
        late = self._slicing.ended_by(self._slicing.ends_of(batch["__tidegate_time"]), closed)
        rows = batch[self._columns]
        if late.any():
            self._late.put_aside(batch.filter(late), closed.filter(late), out)
            rows = rows.filter(~late)
        if rows.height:
            self._take(rows)

    def _relieve(self) -> None:
        if excess := self._buffer.excess:
            parts = self._buffer.take(excess)
            if parts is not None:
                self._store.add(parts)

    def _fire(self, watermark_ms: int, limit: int, out: Out) -> bool:
        until = self._slicing.floor_of(after_ms(watermark_ms))
        due = self._buffer.take_due(until)
        waiting = 0 if due is None else due.height
        if len(self._store) + waiting > limit:
            if due is not None:
                self._buffer.put_back(due[FOLDED_MAX:])
                self._store.add(due[:FOLDED_MAX])
                return True
            return self._emit_held(until, limit, out)
        taken = self._store.take_due(until, limit)
        if taken is not None and due is not None:
            taken = self._aggregates.reduce_parts(pl.concat([taken, due]), self._by)
        parts = due if taken is None else taken
        if parts is not None:
            ordered = parts.sort(self._by)
            self._emit(ordered, self._results_of(ordered), out)
        return False

    def _emit_held(self, until: int, limit: int, out: Out) -> bool:
        """Emits entries of the state in the order of their times, without converting them to partial results."""
        taken = self._store.state.take_due(until, limit)
        if taken:
            rows, values = zip(*taken, strict=True)
            keyed = pl.DataFrame(key_columns(rows, self._keys))
            self._emit(keyed, lambda start, end: self._aggregates.results_of_values(values[start:end]), out)
        return len(taken) == limit

    def _emit(self, keyed: pl.DataFrame, results_of: ResultsOf, out: Out) -> None:
        slicing, dues = self._slicing, keyed[AT]
        starts, ends = (slicing.instants_of(one) for one in (slicing.window_start(dues), dues))
        self._note_closed(ends - 1, keyed)
        emit_results(keyed, starts, ends, results_of, self._names, out, self._slot)
