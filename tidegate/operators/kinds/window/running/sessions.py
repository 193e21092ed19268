"""Sessions: windows per key that end when nothing comes, and merge when something comes between them.

A row that is above the watermark of its partition joins whatever it touches: no session that it touches can have been
closed by any partition. Such rows wait in frames, are reduced to sessions of their own, and merged into those of the
state `sessions`.

A row below that watermark, a *laggard*, must not join a session that its own partition had closed, although here it may
be open still, since another partition is slower. Whether it does must not depend on which came first. So it waits in
the state `laggards` until the watermark has passed that of its partition, when everything is here that had been read
before it, as if all partitions had been one. Only then it joins, begins a session, or is late.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from tidegate.formats.columns import plain_values
from tidegate.operators.aggregation.contract import Value
from tidegate.operators.kinds.window.running.base import FOLDED_MAX, WindowRuntime
from tidegate.operators.kinds.window.running.emission import emit_results
from tidegate.operators.kinds.window.running.partial import AT, BYTES_MAX, PARTS_MAX
from tidegate.operators.kinds.window.running.store import key_columns
from tidegate.operators.kinds.window.states import LAGGARDS, SESSIONS, TIMERS
from tidegate.operators.runtime import END_OF_TIME

if TYPE_CHECKING:
    from tidegate.operators.kinds.window import WindowOperator
    from tidegate.operators.runtime import Out
    from tidegate.operators.spec import Slot
    from tidegate.state.order import Row

_SESSION: Final = "__session"
_START: Final = "__start"
_START_OF = itemgetter(0)

Session = tuple[Any, ...]
"""Start and end, then the accumulators."""


class SessionRuntime(WindowRuntime):
    """See the module."""

    def __init__(self, operator: WindowOperator, slot: Slot) -> None:
        super().__init__(operator, slot)
        self._gap_ms = operator.window.size_ms
        self._sessions = self._keyed[SESSIONS]
        self._timers = self._timed[TIMERS]
        self._laggards = self._timed[LAGGARDS]
        self._rows: list[pl.DataFrame] = []
        self._height = 0
        self._size = 0
        self._first_ms: int | None = None
        """No row that waits is older."""
        self._reduced: list[tuple[Row, Session]] = []
        """Sessions of their own that rows were reduced to, on their way into the state."""
        self._key_names = [name for name, _ in self._keys]

    @property
    def gauges(self) -> Mapping[str, int]:
        """See OperatorRuntime."""
        return {"open_windows": len(self._timers), "timers": len(self._timers) + len(self._laggards)}

    def before_snapshot(self) -> None:
        """See OperatorRuntime."""
        self._fold(None)
        self._clock.before_snapshot()

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _take(self, rows: pl.DataFrame) -> None:
        first_ms = int(rows["__time"].min())  # type: ignore[arg-type]  # Int64
        self._first_ms = first_ms if self._first_ms is None else min(first_ms, self._first_ms)
        self._rows.append(rows)
        self._height += rows.height
        self._size += int(rows.estimated_size())

    def _take_lagging(self, batch: pl.DataFrame, closed: pl.Series, out: Out) -> None:  # noqa: ARG002  # late ones are found later
        lagging = closed > batch["__time"]
        if not lagging.all():
            self._take(batch.filter(~lagging).select(self._columns))
        rows = batch.select(self._columns).with_columns(closed.alias(AT)).filter(lagging)
        counts = rows.group_by(AT, "__time", *self._key_names).agg(pl.len().cast(pl.Int64).alias(_SESSION))
        parts = self._aggregates.reduce_rows(rows, [AT, "__time", *self._key_names])
        parts = parts.join(counts, on=[AT, "__time", *self._key_names], how="left", nulls_equal=True)
        columns = [parts[AT].to_list(), *(plain_values(parts[name]) for name in self._key_names)]
        held: defaultdict[Row, list[tuple[Any, ...]]] = defaultdict(list)
        values = self._aggregates.values_of(parts)
        for row, time, count, value in zip(
            zip(*columns, strict=True), parts["__time"], parts[_SESSION], values, strict=True
        ):
            held[row].append((time, count, *value))
        found = self._laggards.get_many(held)
        both = [(*(() if old is None else old[0]), *new) for old, new in zip(found, held.values(), strict=True)]
        self._laggards.put_many(held, [(one,) for one in both])

    def _relieve(self) -> None:
        if self._height > PARTS_MAX or self._size > BYTES_MAX or len(self._reduced) > FOLDED_MAX:
            self._fold(FOLDED_MAX)

    def _reduce(self) -> None:
        """Rows that wait to sessions of their own."""
        if not self._rows:
            return
        rows = pl.concat(self._rows).sort([*self._key_names, "__time"])
        self._rows, self._height, self._size, self._first_ms = [], 0, 0, None
        times = rows["__time"]
        new = times - times.shift(1) >= self._gap_ms
        for name in self._key_names:
            new |= rows[name].ne_missing(rows[name].shift(1))
        new = new.fill_null(value=True)
        new[0] = True
        numbers = new.cum_sum().alias(_SESSION)
        parts = self._aggregates.reduce_rows(rows.with_columns(numbers), [_SESSION]).sort(_SESSION)
        heads = rows.filter(new)
        last = times.filter(new.shift(-1, fill_value=True))
        keys = zip(*(plain_values(heads[name]) for name in self._key_names), strict=True)
        values = self._aggregates.values_of(parts)
        own = zip(heads["__time"], (last + self._gap_ms).to_list(), values, strict=True)
        self._reduced += [(key, (start, end, *value)) for key, (start, end, value) in zip(keys, own, strict=True)]

    def _fold(self, limit: int | None) -> bool:
        """Sessions into the state, some of them or all; True when some are left."""
        self._reduce()
        taken, self._reduced = (self._reduced, []) if limit is None else (self._reduced[:limit], self._reduced[limit:])
        if taken:
            by_key: defaultdict[Row, list[Session]] = defaultdict(list)
            for key, session in taken:
                by_key[key].append(session)
            changes = _Changes(self, list(by_key))
            for key, sessions in by_key.items():
                for one in sessions:
                    changes.join(key, one, closed_ms=None)
            changes.keep()
        return bool(self._reduced)

    # -- results -------------------------------------------------------------------------------------------------------

    def _fire(self, watermark_ms: int, limit: int, out: Out) -> bool:
        until = min(watermark_ms, END_OF_TIME - 1) + 1
        nothing_new = self._first_ms is None or self._first_ms + self._gap_ms > until
        first = self._timers.first_ms
        waiting = self._laggards.first_ms
        if nothing_new and (first is None or first > until) and (waiting is None or waiting > watermark_ms):
            return False
        if self._fold(FOLDED_MAX) or self._settle(watermark_ms):
            return True
        taken = [row for row, _ in self._timers.take_due(until, limit)]
        if taken:
            self._emit(taken, out)
        return len(taken) == limit

    def _settle(self, watermark_ms: int) -> bool:
        """Laggards of which all is here that came before them; True when there are more."""
        taken = self._laggards.take_due(watermark_ms, FOLDED_MAX)
        if not taken:
            return False
        changes = _Changes(self, list(dict.fromkeys(row[1:] for row, _ in taken)))
        for (closed_ms, *key), (laggards,) in taken:
            for time, count, *value in sorted(laggards, key=_START_OF, reverse=True):
                if not changes.join(tuple(key), (time, time + self._gap_ms, *value), closed_ms):
                    self.late_rows += count
        changes.keep()
        return len(taken) == FOLDED_MAX

    def _emit(self, rows: Sequence[Row], out: Out) -> None:
        """The sessions of these ends and keys, which are due and go."""
        keys = list(dict.fromkeys(row[1:] for row in rows))
        held = dict(zip(keys, self.sessions_of(keys), strict=True))
        due: list[tuple[Row, Session]] = []
        for row in rows:
            [session] = [one for one in held[row[1:]] if one[1] == row[0]]
            held[row[1:]].remove(session)
            due.append((row, session))
        self.put_sessions(held)
        values: list[Value] = [session[2:] for _, session in due]
        starts = pl.Series(_START, [session[0] for _, session in due], dtype=pl.Int64)
        columns = [*key_columns([row for row, _ in due], self._keys), starts, *self._aggregates.columns_of(values)]
        parts = pl.DataFrame(columns).sort([AT, *self._key_names])
        self._clock.fired(int(parts[AT][-1]) - 1)
        emit_results(parts, parts[_START], parts[AT], self._results_of(parts), self._names, out)

    # -- state ---------------------------------------------------------------------------------------------------------

    def sessions_of(self, keys: Sequence[Row]) -> list[list[Session]]:
        """The open sessions of each key."""
        found = self._sessions.get_many(self._as_keys(keys))
        return [[] if value is None else list(value[0]) for value in found]

    def put_sessions(self, held: Mapping[Row, Sequence[Session]]) -> None:
        """The open sessions of keys; none: the key is forgotten."""
        kept = {key: sessions for key, sessions in held.items() if sessions}
        self._sessions.put_many(self._as_keys(list(kept)), [(tuple(sessions),) for sessions in kept.values()])
        self._sessions.delete_many(self._as_keys([key for key, sessions in held.items() if not sessions]))

    def move_timers(self, gone: set[Row], new: set[Row]) -> None:
        """The ends of sessions have changed."""
        self._timers.delete_many(list(gone - new))
        added = list(new - gone)
        self._timers.put_many(added, [()] * len(added))

    def merge(self, left: Session, right: Session) -> Session:
        """One session of two."""
        return min(left[0], right[0]), max(left[1], right[1]), *self._aggregates.merge(left[2:], right[2:])

    def _as_keys(self, rows: Sequence[Row]) -> list[Any]:
        return [row[0] for row in rows] if len(self._keys) == 1 else list(rows)


class _Changes:
    """The sessions of some keys while they change."""

    def __init__(self, runtime: SessionRuntime, keys: Sequence[Row]) -> None:
        self._runtime = runtime
        self._held = dict(zip(keys, runtime.sessions_of(keys), strict=True))
        self._before = self._ends()

    def join(self, key: Row, new: Session, closed_ms: int | None) -> bool:
        """Merge a session with those that it touches; one that ended at or before `closed_ms` is closed for it.

        False when it cannot join any and is over itself.
        """
        sessions = self._held[key]
        touched = [
            one for one in sessions if one[0] < new[1] and new[0] < one[1] and (closed_ms is None or one[1] > closed_ms)
        ]
        if not touched and closed_ms is not None and new[1] <= closed_ms:
            return False
        for one in touched:
            sessions.remove(one)
            new = self._runtime.merge(new, one)
        sessions.append(new)
        return True

    def keep(self) -> None:
        """Into the state."""
        self._runtime.put_sessions(self._held)
        self._runtime.move_timers(self._before, self._ends())

    def _ends(self) -> set[Row]:
        return {(session[1], *key) for key, sessions in self._held.items() for session in sessions}
