"""Sessions: windows per key that end after a gap without rows, and merge when a row falls between them.

Two rows exactly one gap apart are in one session. So a session is over once the watermark has reached its end, because
no row as old as that end can follow. The event time of its result is the last millisecond before the end, so the
watermark is passed on less one millisecond.

A row above the watermark of its partition joins every session that it touches: no partition can have closed any of
these. Such rows wait in frames, are reduced to sessions of their own, and are merged into those of the state
`sessions`.

A row below that watermark is behind. It must not join a session that its own partition had already closed, even if the
session is still open here because another partition is slower. The outcome must not depend on the order of arrival. So
the row waits in the state `pending_late` until the operator's watermark has passed that of the partition. By then
everything read before it has arrived, as if all partitions had been one. Only then does it join a session, start one,
or count as late. If sessions are kept longer for late rows (`KeptSessionRuntime`), all of this happens later by that
time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final

import polars as pl
from typing_extensions import override

from tidegate.datatypes import RESERVED, is_reserved
from tidegate.formats.arrow import decode_frame, encode_frame
from tidegate.formats.columns import plain_values, polars_type
from tidegate.ids import StateName
from tidegate.operators.aggregates.contract import Value
from tidegate.operators.keyed import columns_read
from tidegate.operators.kinds.window.running.base import (
    FIRED_MAX,
    FOLDED_MAX,
    WindowRuntime,
    deleted_column,
    emit_deletes,
    emit_results,
    key_columns,
)
from tidegate.operators.kinds.window.running.partial import AT, BYTES_MAX, ROWS_LEAST
from tidegate.operators.kinds.window.settings import (
    EMITTED,
    KEPT_SESSIONS,
    LATE_ROWS,
    PENDING_LATE_ROWS,
    SESSIONS,
    TIMERS,
)
from tidegate.operators.runtime import END_OF_TIME
from tidegate.operators.spec import LATE, render_columns
from tidegate.state.errors import StateUnreadable
from tidegate.state.order import Row

if TYPE_CHECKING:
    from tidegate.operators.kinds.window import WindowOperator
    from tidegate.operators.runtime import Out
    from tidegate.operators.spec import Slot
    from tidegate.state.time_ordered import TimeOrdered


class WaitingRows:
    """Whole rows that wait until it is known if they are late, for the output of late rows: by the instant before which
    all was closed for them, and by key, as in the state `pending_late`.

    They are stored as Arrow IPC with the system columns, so that adding or removing an input column does not change the
    state's shape.
    """

    def __init__(self, operator: WindowOperator, state: TimeOrdered) -> None:
        self._name = operator.name
        late = operator.pruned_columns(LATE)
        read = columns_read(late)
        self._columns = [(name, kind) for name, kind in late if name in read]
        self._state = state

    def add(self, rows: pl.DataFrame, by: Sequence[str]) -> None:
        """Adds rows with their own columns and those of `by`, which are the key of the state."""
        places: defaultdict[Row, list[int]] = defaultdict(list)
        for place, row in enumerate(zip(*(plain_values(rows[name]) for name in by), strict=True)):
            places[row].append(place)
        frame = rows.drop(AT).select(*(name for name, _ in self._columns), pl.col(f"^{RESERVED}.*$"))
        new = {row: encode_frame(frame[chosen]) for row, chosen in places.items()}
        found = self._state.get_many(new)
        chunks = [((*(() if old is None else old[0]), data),) for old, data in zip(found, new.values(), strict=True)]
        self._state.put_many(new, chunks)

    def take(self, rows: Sequence[Row], late: Mapping[Row, set[int]]) -> Iterator[tuple[pl.DataFrame, pl.Series]]:
        """Removes the rows of these places. Yields the late ones, selected by place and event time, with the instant
        before which everything was closed for them.

        Raises StateUnreadable for rows that cannot be converted to the current columns.
        """
        if not len(self._state):
            return
        for row, value in zip(rows, self._state.get_many(rows), strict=True):
            if value is None or not late.get(row) or not self._columns:
                continue
            for data in value[0]:
                frame = self._fit(decode_frame(data))
                frame = frame.filter(pl.col("__tidegate_time").is_in(list(late[row])))
                if frame.height:
                    yield frame, pl.repeat(row[0], frame.height, dtype=pl.Int64, eager=True)
        self._state.delete_many(rows)

    def _fit(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Converts rows to the current columns. New columns are NULL; types change if nothing is lost. If one column is
        new and another is gone, it may have been renamed, and NULL would lose its values, so this raises
        StateUnreadable.
        """
        names = [name for name, _ in self._columns]
        new = [name for name in names if name not in frame.columns]
        gone = [name for name in frame.columns if name not in names and not is_reserved(name)]
        if new and gone:
            remedy = f"keep {gone[0]} in the step until they have been emitted"
            raise self._unfit(frame, f"have no {new[0]}, and {gone[0]} is no longer a column of the step", remedy)
        fitted = []
        for name, kind in self._columns:
            wanted = polars_type(kind)
            if name not in frame.columns:
                fitted.append(pl.repeat(None, frame.height, dtype=wanted, eager=True).alias(name))
            elif (held := frame[name]).dtype != wanted:
                cast = _cast(held, wanted)
                if cast is None:
                    remedy = "start with the old definition, let it catch up, then change it"
                    raise self._unfit(frame, f"cannot have {name} as {kind}", remedy)
                fitted.append(cast)
        return frame.with_columns(fitted)

    def _unfit(self, frame: pl.DataFrame, reason: str, remedy: str) -> StateUnreadable:
        return StateUnreadable(
            f"{frame.height} rows of {self._name} that wait until their sessions are closed {reason} (they have "
            f"{render_columns(frame.schema.items())}): {remedy}",
            operator=self._name,
            state=LATE_ROWS,
        )


def _cast(column: pl.Series, wanted: pl.DataType) -> pl.Series | None:
    """Casts a column. Returns None if values would be lost."""
    try:
        cast = column.cast(wanted, strict=False)
        return cast if cast.cast(column.dtype, strict=False).equals(column) else None
    except pl.exceptions.PolarsError:
        return None


Session = tuple[Any, ...]
"""Start and end, then further fields, and the accumulators last."""


class ChangedWindows:
    """Sessions by key, with a record of which ones disappear and which are new."""

    def __init__(self, held: Mapping[Row, list[Session]], merge: Callable[[Session, Session], Session]) -> None:
        """`held`: the sessions of these keys in the state; it is modified."""
        self.held = held
        self.gone: set[Row] = set()
        """Ends and keys of the earlier sessions that no longer exist."""
        self._merge = merge
        self._new: dict[int, Row] = {}
        """Ends and keys of the new sessions, by the identity of each."""

    def join(self, key: Row, new: Session, over_ms: int | None = None) -> bool:
        """Merges a session with those that it touches, except those that ended before `over_ms`.

        Returns False if it touches none and itself ended before `over_ms`.
        """
        sessions = self.held[key]
        touched = [
            one for one in sessions if one[0] <= new[1] and new[0] <= one[1] and (over_ms is None or one[1] >= over_ms)
        ]
        if not touched and over_ms is not None and new[1] < over_ms:
            return False
        for one in touched:
            sessions.remove(one)
            if self._new.pop(id(one), None) is None:
                self.gone.add((one[1], *key))
            new = self._merge(new, one)
        sessions.append(new)
        self._new[id(new)] = (new[1], *key)
        return True

    @property
    def new(self) -> set[Row]:
        """Ends and keys of the new sessions."""
        return set(self._new.values())


ROWS_MAX: Final = 8_000
"""The maximum number of rows that wait to be reduced."""
WAITING_MAX: Final = 2_000
"""The maximum number of sessions that waiting rows may become, since a snapshot must store them in one call."""
_SESSION: Final = "__tidegate_session"
_START: Final = "__tidegate_start"
_START_OF = itemgetter(0)


def derive_room(rows: int, sessions: int) -> int:
    """Returns how many rows may wait, by the number of sessions that such rows have become."""
    return min(ROWS_MAX, max(ROWS_LEAST, WAITING_MAX * rows // sessions))


class SessionRuntime(WindowRuntime):
    """Merges rows into sessions and emits each session once, when it is over."""

    STATE: ClassVar[StateName] = SESSIONS
    HEAD: ClassVar[int] = 2
    """The number of fields before the accumulators of a session: start and end."""

    def __init__(self, operator: WindowOperator, slot: Slot) -> None:
        super().__init__(operator, slot)
        self._gap_ms = operator.window.size_ms
        self._sessions = self._keyed[self.STATE]
        self._timers = self._timed[TIMERS]
        self._pending_late_rows = self._timed[PENDING_LATE_ROWS]
        self._waiting = WaitingRows(operator, self._timed[LATE_ROWS])
        self._rows: list[pl.DataFrame] = []
        self._height = 0
        self._height_max = ROWS_LEAST
        self._size = 0
        self._first_ms: int | None = None
        """A lower bound of the times of waiting rows."""
        self._reduced: list[tuple[Row, Session]] = []
        """Sessions to which rows were reduced, before they are merged into the state."""
        self._key_names = [name for name, _ in self._keys]
        self._result_count = 0
        """Results so far."""

    @property
    @override
    def gauges(self) -> Mapping[str, int]:
        return {"open_windows": len(self._timers), "timers": len(self._timers) + len(self._pending_late_rows)}

    @override
    def before_snapshot(self) -> None:
        self._fold(None)
        self._clock.before_snapshot()

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _take(self, rows: pl.DataFrame) -> None:
        first_ms = int(rows["__tidegate_time"].min())  # type: ignore[arg-type]  # Int64
        self._first_ms = first_ms if self._first_ms is None else min(first_ms, self._first_ms)
        self._rows.append(rows)
        self._height += rows.height
        self._size += int(rows.estimated_size())

    def _take_open(self, rows: pl.DataFrame, closed: pl.Series) -> None:  # noqa: ARG002  # used for early results
        """Accepts rows that may at once join whatever they touch; `closed` is as in `LateRows.closed_by`."""
        self._take(rows)

    def _take_lagging(self, batch: pl.DataFrame, closed: pl.Series, out: Out) -> None:  # noqa: ARG002  # late rows are found later
        lagging = closed - self._lateness_ms > batch["__tidegate_time"]
        if not lagging.all():
            self._take_open(batch.filter(~lagging).select(self._columns), closed.filter(~lagging))
        if not lagging.any():
            return
        whole = batch.with_columns(closed.alias(AT)).filter(lagging)
        by = [AT, *self._key_names]
        if self._late.wanted:
            self._waiting.add(whole, by)
        rows = whole.select(*self._columns, AT)
        counts = rows.group_by(*by, "__tidegate_time").agg(pl.len().cast(pl.Int64).alias(_SESSION))
        parts = self._aggregates.reduce_rows(rows, [*by, "__tidegate_time"])
        parts = parts.join(counts, on=[*by, "__tidegate_time"], how="left", nulls_equal=True)
        columns = [parts[AT].to_list(), *(plain_values(parts[name]) for name in self._key_names)]
        held: defaultdict[Row, list[tuple[Any, ...]]] = defaultdict(list)
        values = self._aggregates.values_of(parts)
        for row, time, count, value in zip(
            zip(*columns, strict=True), parts["__tidegate_time"], parts[_SESSION], values, strict=True
        ):
            held[row].append((time, count, *value))
        found = self._pending_late_rows.get_many(held)
        both = [(*(() if old is None else old[0]), *new) for old, new in zip(found, held.values(), strict=True)]
        self._pending_late_rows.put_many(held, [(one,) for one in both])

    def _relieve(self) -> None:
        if self._height > self._height_max or self._size > BYTES_MAX:
            self._fold(None)

    def _reduce(self) -> None:
        """Reduces waiting rows to sessions of their own."""
        if not self._rows:
            return
        rows = pl.concat(self._rows)
        self._rows, self._height, self._size = [], 0, 0
        found = self._own_sessions(rows, self._key_names)
        # A snapshot must store the sessions of the next rows in one call.
        self._height_max = derive_room(rows.height, len(found))
        self._reduced += [(key, self._begin(start, end, value)) for key, start, end, value in found]

    def _own_sessions(self, rows: pl.DataFrame, by: Sequence[str]) -> list[tuple[Row, int, int, Value]]:
        """Returns the sessions of the rows of each `by` on their own: start, end and accumulators, in order."""
        rows = rows.sort([*by, "__tidegate_time"])
        times = rows["__tidegate_time"]
        new = times - times.shift(1) > self._gap_ms
        for name in by:
            new |= rows[name].ne_missing(rows[name].shift(1))
        new = new.fill_null(value=True)
        new[0] = True
        numbers = new.cum_sum().alias(_SESSION)
        parts = self._aggregates.reduce_rows(rows.with_columns(numbers), [_SESSION]).sort(_SESSION)
        heads = rows.filter(new)
        ends = times.filter(new.shift(-1, fill_value=True)) + self._gap_ms
        keys = zip(*(plain_values(heads[name]) for name in by), strict=True)
        values = self._aggregates.values_of(parts)
        return list(zip(keys, heads["__tidegate_time"].to_list(), ends.to_list(), values, strict=True))

    def _fold(self, limit: int | None) -> bool:
        """Merges sessions into the state, up to `limit` or all. Returns True if some are left.

        Newer rows are reduced only when none is left, since their sessions may touch the remaining ones of their key.
        """
        if not self._reduced:
            self._reduce()
        taken, self._reduced = (self._reduced, []) if limit is None else (self._reduced[:limit], self._reduced[limit:])
        if taken:
            by_key: dict[Row, list[Session]] = {}
            for key, session in taken:
                by_key.setdefault(key, []).append(session)
            self._join(by_key)
        if self._reduced or self._rows:
            return limit is not None or self._fold(None)
        self._first_ms = None
        return False

    def _join(self, by_key: Mapping[Row, list[Session]]) -> None:
        """Merges new sessions into the state. None of them touches another one of its key."""
        held = self._sessions_of(list(by_key))
        new = {key: by_key[key] for key, sessions in held.items() if not sessions}
        if new:
            self._put_sessions(new)
            self._move(set(), [(one[1], *key) for key, sessions in new.items() for one in sessions])
        if len(new) < len(held):
            changes = ChangedWindows({key: sessions for key, sessions in held.items() if sessions}, self._merge)
            for key in changes.held:
                for one in by_key[key]:
                    changes.join(key, one)
            self._keep(changes)

    # -- results -------------------------------------------------------------------------------------------------------

    @override
    def passed_on(self, watermark_ms: int) -> int:
        return watermark_ms if watermark_ms == END_OF_TIME else watermark_ms - 1

    def _fire(self, watermark_ms: int, limit: int, out: Out) -> bool:
        until = min(watermark_ms, END_OF_TIME - 1)
        if not self._has_due(until):
            return False
        if self._fold(FOLDED_MAX // 2) or self._settle(watermark_ms, out):
            return True
        taken = [row for row, _ in self._timers.take_due(until, limit)]
        if taken:
            self._emit(taken, out)
        return len(taken) == limit

    def _has_due(self, until: int) -> bool:
        """Returns True if a watermark may require work."""
        first = (self._timers.first_ms, self._pending_late_rows.first_ms)
        due = self._first_ms is not None and self._first_ms + self._gap_ms <= until
        return due or any(one is not None and one <= until for one in first)

    def _settle(self, watermark_ms: int, out: Out) -> bool:
        """Decides rows that were behind once all rows read before them have arrived. Returns True if there are more."""
        taken = self._pending_late_rows.take_due(watermark_ms, FOLDED_MAX)
        if not taken:
            return False
        changes = self._changes(list(dict.fromkeys(row[1:] for row, _ in taken)))
        late: defaultdict[Row, set[int]] = defaultdict(set)
        for row, (late_rows,) in taken:
            over_ms = row[0] - self._lateness_ms
            for time, count, *value in sorted(late_rows, key=_START_OF, reverse=True):
                own = self._begin(time, time + self._gap_ms, tuple(value))
                if not changes.join(row[1:], own, over_ms):
                    self._late.count += count
                    late[row].add(time)
        self._keep(changes)
        for frame, closed in self._waiting.take([row for row, _ in taken], late):
            self._late.show(frame, closed, out)
        return len(taken) == FOLDED_MAX

    def _emit(self, rows: Sequence[Row], out: Out) -> None:
        """Emits and removes the sessions of these ends and keys."""
        held = self._sessions_of(list(dict.fromkeys(row[1:] for row in rows)))
        due: list[tuple[Row, Session]] = []
        for row in rows:
            [session] = [one for one in held[row[1:]] if one[1] == row[0]]
            held[row[1:]].remove(session)
            due.append((row, session))
        self._put_sessions(held)
        self._note_closed_rows(rows)
        self._emit_results(due, out)

    def _emit_results(self, due: Sequence[tuple[Row, Session]], out: Out, *more: pl.Series) -> None:
        """Emits the results of sessions, listed with their ends and keys; `more` are columns that all of them have."""
        self._result_count += len(due)
        values: list[Value] = [session[self.HEAD :] for _, session in due]
        starts = pl.Series(_START, [session[0] for _, session in due], dtype=pl.Int64)
        columns = [*key_columns([row for row, _ in due], self._keys), starts, *self._aggregates.columns_of(values)]
        parts = pl.DataFrame([*columns, *more]).sort([AT, *self._key_names])
        emit_results(parts, parts[_START], parts[AT], self._results_of(parts), self._names, out, self._slot)

    # -- state ---------------------------------------------------------------------------------------------------------

    def _begin(self, start: int, end: int, value: Value) -> Session:
        """Returns a new session."""
        return (start, end, *value)

    def _merge(self, left: Session, right: Session) -> Session:
        """Merges two sessions into one."""
        return min(left[0], right[0]), max(left[1], right[1]), *self._aggregates.merge(left[2:], right[2:])

    def _changes(self, keys: Sequence[Row]) -> ChangedWindows:
        return ChangedWindows(self._sessions_of(keys), self._merge)

    def _keep(self, changes: ChangedWindows) -> None:
        """Stores the changed sessions."""
        self._put_sessions(changes.held)
        self._move(changes.gone, changes.new)

    def _move(self, gone: set[Row], new: Collection[Row]) -> None:
        """Replaces the timers of sessions that no longer exist with those of new ones."""
        if gone:
            self._timers.delete_many(list(gone.difference(new)))
        added = [row for row in new if row not in gone]
        self._timers.put_many(added, [()] * len(added))

    def _sessions_of(self, keys: Sequence[Row]) -> dict[Row, list[Session]]:
        """Returns the sessions of each key."""
        found = self._sessions.get_many(self._as_keys(keys))
        return {key: [] if value is None else list(value[0]) for key, value in zip(keys, found, strict=True)}

    def _put_sessions(self, held: Mapping[Row, Sequence[Session]]) -> None:
        """Stores the sessions of keys. Removes a key that has none."""
        kept = {key: sessions for key, sessions in held.items() if sessions}
        self._sessions.put_many(self._as_keys(list(kept)), [(tuple(sessions),) for sessions in kept.values()])
        if len(kept) < len(held):
            self._sessions.delete_many(self._as_keys([key for key, sessions in held.items() if not sessions]))

    def _as_keys(self, rows: Sequence[Row]) -> list[Any]:
        return [row[0] for row in rows] if len(self._keys) == 1 else list(rows)


TOLD: Final = 2
"""The index in a session of the windows of its emitted results: start and end of each."""


class KeptSessionRuntime(SessionRuntime):
    """Keeps sessions after their result (`allowed_lateness`), and corrects the result if late rows change them.

    A session whose result has to be emitted, or emitted again, has a timer at its end. A session whose current result
    was emitted has an entry in `emitted`; it is removed by this entry when nothing can join it any more. So a late row
    that joins a session, or merges several, needs no other record: the timer of the resulting session is due at once,
    or when the watermark reaches its new end.

    Keys and `window_start` identify a result. If a session begins earlier than one that has become part of it, the
    result of the latter is first retracted by a row with `_deleted`.
    """

    STATE: ClassVar[StateName] = KEPT_SESSIONS
    HEAD: ClassVar[int] = 3

    def __init__(self, operator: WindowOperator, slot: Slot) -> None:
        super().__init__(operator, slot)
        self._output = operator.pruned_columns()
        self._given = self._timed[EMITTED]
        self._correcting = False
        """True if rows have arrived that may change emitted results."""

    @property
    @override
    def gauges(self) -> Mapping[str, int]:
        sessions = len(self._timers) + len(self._given)
        return {"open_windows": sessions, "timers": sessions + len(self._pending_late_rows)}

    @property
    @override
    def settled(self) -> bool:
        return super().settled and not self._correcting

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        super().process(port, batch, out)
        self._correct(FIRED_MAX, out)

    @override
    def poll(self, rows_max: int, out: Out) -> bool:
        return super().poll(rows_max, out) or self._correct(min(rows_max, FIRED_MAX), out)

    def _correct(self, limit: int, out: Out) -> bool:
        """Emits again the results that such rows have changed. Returns True if there was anything to do."""
        if not self._correcting or self._pending_ms is not None:
            return False
        self._correcting = self._fire_some(self._clock.watermark_ms, limit, out)
        return True

    def _take(self, rows: pl.DataFrame) -> None:
        super()._take(rows)
        assert self._first_ms is not None
        self._correcting = self._correcting or self._first_ms <= self._clock.watermark_ms

    # -- results -------------------------------------------------------------------------------------------------------

    def _fire(self, watermark_ms: int, limit: int, out: Out) -> bool:
        more = super()._fire(watermark_ms, limit, out) or self._forget(watermark_ms)
        self._correcting = self._correcting and more
        return more

    def _has_due(self, until: int) -> bool:
        return super()._has_due(until) or (self._first_ms is not None and self._first_ms <= until)

    def _forget(self, watermark_ms: int) -> bool:
        """Removes sessions that nothing can join any more. Returns True if there are more."""
        until = min(watermark_ms, END_OF_TIME - 1) - self._lateness_ms
        first = self._given.first_ms
        if first is None or first > until:
            return False
        taken = {row for row, _ in self._given.take_due(until, FOLDED_MAX)}
        self._note_closed_rows([(end + self._lateness_ms, *key) for end, *key in taken])
        held = self._sessions_of(list({row[1:] for row in taken}))
        kept = {key: [one for one in sessions if (one[1], *key) not in taken] for key, sessions in held.items()}
        self._put_sessions(kept)
        return len(taken) == FOLDED_MAX

    def _emit(self, rows: Sequence[Row], out: Out) -> None:
        """Emits the sessions of these ends and keys, which stay in the state."""
        held = self._sessions_of(list(dict.fromkeys(row[1:] for row in rows)))
        due = [(row, next(one for one in held[row[1:]] if one[1] == row[0])) for row in rows]
        self._given.put_many(rows, [()] * len(rows))
        self._note_closed_rows(rows)
        self._give(due, held, out)

    def _give(self, due: Sequence[tuple[Row, Session]], held: Mapping[Row, list[Session]], out: Out) -> None:
        """Emits the results of sessions, listed with their ends and keys, after retracting those that they replace."""
        back: list[tuple[Row, int]] = []
        for row, session in due:
            back += [((end, *row[1:]), start) for start, end in sorted(session[TOLD]) if start != session[0]]
            sessions = held[row[1:]]
            sessions[sessions.index(session)] = self._as_told(session)
        self._put_sessions(held)
        if back:
            keyed = pl.DataFrame(key_columns([row for row, _ in back], self._keys))
            starts = pl.Series([start for _, start in back], dtype=pl.Int64)
            emit_deletes(keyed, starts, keyed[AT], self._output, out)
        self._emit_results(due, out, deleted_column(len(due), deleted=False))

    def _as_told(self, session: Session) -> Session:
        """Returns the session with its current result marked as emitted."""
        return (*session[:TOLD], (session[:TOLD],), *session[self.HEAD :])

    # -- state ---------------------------------------------------------------------------------------------------------

    def _begin(self, start: int, end: int, value: Value) -> Session:
        return (start, end, (), *value)

    def _merge(self, left: Session, right: Session) -> Session:
        told: tuple[Any, ...] = (*left[TOLD], *right[TOLD])
        merged = self._aggregates.merge(left[self.HEAD :], right[self.HEAD :])
        return min(left[0], right[0]), max(left[1], right[1]), told, *merged

    def _move(self, gone: set[Row], new: Collection[Row]) -> None:
        if gone:
            self._given.delete_many(list(gone))
            self._timers.delete_many(list(gone.difference(new)))
        self._timers.put_many(new, [()] * len(new))
