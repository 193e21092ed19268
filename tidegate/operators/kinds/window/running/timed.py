"""The common part of windows whose results have timers: rows wait in buffers before they go into states.

A timer is a due time and a key in the state `timers`. The result is emitted when the watermark passes the due time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl
from typing_extensions import override

from tidegate.operators.kinds.window.running.base import DUE_COST, FOLDED_MAX, Store, WindowRuntime, key_columns
from tidegate.operators.kinds.window.running.partial import AT, Buffer
from tidegate.operators.kinds.window.running.slicing import Slicing
from tidegate.operators.kinds.window.settings import TIMERS
from tidegate.operators.lateness import after_ms
from tidegate.operators.runtime import LOWEST
from tidegate.state.keygroups import key_group_of

if TYPE_CHECKING:
    from tidegate.operators.event_time import EventClock
    from tidegate.operators.kinds.window import WindowOperator
    from tidegate.operators.runtime import Out
    from tidegate.operators.spec import Slot
    from tidegate.state.order import Row
    from tidegate.state.snapshot import Value


class EmittedPanes:
    """Tracks by key group up to which due time results were emitted, by this attempt and by earlier ones.

    What a restored watermark had made due has been emitted or has a timer in the state. A later row must not cause it
    to be emitted again. A rescale may bring together key groups whose watermarks differ. Times are local ms, as all due
    times.
    """

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


class TimedRuntime(WindowRuntime):
    """The base of runtimes with timers."""

    _rows: Buffer
    """Rows that all results of their windows include."""
    _slices: Store
    _fired_max: int | None = None
    """The maximum number of timers that fire in one call; None: no limit of its own."""
    _folded_max = FOLDED_MAX
    """The maximum number of partial results put into the state in one call."""

    def __init__(self, operator: WindowOperator, slot: Slot, slicing: Slicing) -> None:
        super().__init__(operator, slot)
        self._slicing = slicing
        self._timers = self._timed[TIMERS]
        self._key_names = names = [name for name, _ in self._keys]
        self._given = EmittedPanes(
            self._clock, slicing, lambda rows: key_group_of(rows, names, slot.max_parallelism).to_list()
        )
        self._buffers: tuple[tuple[Buffer, Store], ...] = ()
        """The buffers where rows wait, each with the store that they go to."""

    @property
    @override
    def gauges(self) -> Mapping[str, int]:
        return {"open_windows": len(self._timers), "timers": len(self._timers)}

    def _take(self, rows: pl.DataFrame) -> None:
        self._rows.add(rows)

    @override
    def before_snapshot(self) -> None:
        for buffer, store in self._buffers:
            self._fold(buffer.take(), store)
        self._clock.before_snapshot()

    def _relieve(self) -> None:
        for buffer, store in self._buffers:
            if excess := buffer.excess:
                self._fold(buffer.take(excess), store)

    def _fold_due(self, until: int) -> bool:
        """Moves what is due by then into the states. Returns True if there is more."""
        for buffer, store in self._buffers:
            due = buffer.take_due(until)
            if due is not None:
                buffer.put_back(due[self._folded_max :])
                self._fold(due[: self._folded_max], store)
                if due.height > self._folded_max:
                    return True
        return False

    def _set_timers(self, rows: Sequence[Row], dues: pl.Series, last: pl.Series, given: pl.Series | None) -> None:
        """Sets timers for the results that were not emitted yet and are not after the last ones."""
        wanted = dues <= last
        if given is not None:
            wanted &= dues > given
        timers = {(due, *row[1:]) for due, row, yes in zip(dues, rows, wanted, strict=True) if yes}
        if timers:
            self._timers.put_many(list(timers), [()] * len(timers))

    def _fold(self, parts: pl.DataFrame | None, store: Store) -> None:
        """Merges partial results into the state and sets timers for the results that are due next."""
        raise NotImplementedError

    # -- results -------------------------------------------------------------------------------------------------------

    def _fire(self, watermark_ms: int, limit: int, out: Out) -> bool:
        until = self._slicing.floor_of(after_ms(watermark_ms))
        if self._fold_due(until) or self._fire_timers(until, limit, out):
            return True
        self._given.advance(until)
        return self._drop(watermark_ms)

    def _fire_timers(self, until: int, limit: int, out: Out) -> bool:
        """Emits results in the order of their due times. Returns True if there are more."""
        left = limit if self._fired_max is None else min(limit, self._fired_max)
        while left > 0:
            first = self._timers.first_ms
            if first is None or first > until:
                return False
            taken = self._timers.take_due(first, left)
            left -= len(taken) + DUE_COST
            rows = [row for row, _ in taken]
            self._emit(rows, out)
            self._set_next(rows)
        return True

    def _emit_again(self, wanted: pl.DataFrame, out: Out) -> None:
        """Emits the corrected results of these due times and keys, except those whose timer has not fired yet."""
        until = wanted[AT].max()
        if not isinstance(until, int):
            return
        for buffer, store in self._buffers:
            self._fold(buffer.take_due(until), store)
        rows = self._slices.rows_of(wanted)
        pending = self._timers.get_many(rows)
        again = [row for row, timer in zip(rows, pending, strict=True) if timer is None]
        if again:
            self._emit(again, out)

    def _emit(self, rows: Sequence[Row], out: Out) -> None:
        """Emits the results of these due times and keys, ordered by time."""
        raise NotImplementedError

    def _set_next(self, rows: Sequence[Row]) -> None:
        """Sets the timers of the next results if results share slices."""

    def _drop(self, watermark_ms: int) -> bool:
        """Removes what no result can include any more. Returns True if there is more."""
        raise NotImplementedError

    def _note_forgotten(
        self, taken: Sequence[tuple[Row, Value]], due_of: Callable[[pl.Series], pl.Series] | None = None
    ) -> None:
        """Records as closed what an end of time removes and what can therefore no longer be corrected, for a later
        start.

        The results may be from before a restore, or may have been emitted because of a restored watermark alone. In
        these cases they have not been recorded yet. `due_of`: the last due times of the removed entries.
        """
        if taken and self._lateness_ms and self._clock.ending:
            keyed = pl.DataFrame(key_columns([row for row, _ in taken], self._keys))
            dues = keyed[AT] if due_of is None else due_of(keyed[AT])
            self._note_closed(self._slicing.instants_of(dues) - 1 + self._lateness_ms, keyed)


def at_of(rows: pl.DataFrame) -> pl.Series:
    """Returns the times of rows that carry them."""
    return rows[AT]


def first_at(rows: pl.DataFrame) -> int:
    """Returns the earliest of these times."""
    return int(rows[AT].min())  # type: ignore[arg-type]  # Int64
