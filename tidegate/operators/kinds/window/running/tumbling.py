"""Tumbling windows without corrections: a window is an entry of the state `slices`, and is taken from its front.

Rows wait in a `Buffer`. A small number of due partial results bypasses the state, so a window that opens and closes
between two snapshots never enters it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl
from typing_extensions import override

from tidegate.operators.kinds.window.running.base import FOLDED_MAX, WindowRuntime
from tidegate.operators.kinds.window.running.emission import ResultsOf, emit_results
from tidegate.operators.kinds.window.running.partial import AT, Buffer
from tidegate.operators.kinds.window.running.slicing import Slicing
from tidegate.operators.kinds.window.running.store import Store, key_columns
from tidegate.operators.kinds.window.states import SLICES
from tidegate.operators.lateness import after_ms

if TYPE_CHECKING:
    from tidegate.operators.kinds.window import WindowOperator
    from tidegate.operators.runtime import Out
    from tidegate.operators.spec import Slot


class TumblingRuntime(WindowRuntime):
    """Emits each tumbling window once."""

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
        emit_results(keyed, starts, ends, results_of, self._names, out, self._room)
