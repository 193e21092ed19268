"""Sessions that are kept for late rows after their result was emitted (`allowed_lateness`).

A session whose result has to be emitted, or emitted again, has a timer at its end. A session whose current result was
emitted has an entry in `emitted`; it is removed by this entry when nothing can join it any more. So a late row that
joins a session, or merges several, needs no other record: the timer of the resulting session is due at once, or when
the watermark reaches its new end.

Keys and `window_start` identify a result. If a session begins earlier than one that has become part of it, the result
of the latter is first retracted by a row with `_deleted`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import polars as pl
from typing_extensions import override

from tidegate.ids import StateName
from tidegate.operators.aggregates.contract import Value
from tidegate.operators.kinds.window.running.base import FIRED_MAX, FOLDED_MAX
from tidegate.operators.kinds.window.running.changes import Session
from tidegate.operators.kinds.window.running.emission import DELETED, emit_deletes
from tidegate.operators.kinds.window.running.partial import AT
from tidegate.operators.kinds.window.running.sessions import SessionRuntime
from tidegate.operators.kinds.window.running.store import key_columns
from tidegate.operators.kinds.window.states import EMITTED, KEPT_SESSIONS
from tidegate.operators.runtime import END_OF_TIME

if TYPE_CHECKING:
    from tidegate.operators.kinds.window import WindowOperator
    from tidegate.operators.runtime import Out
    from tidegate.operators.spec import Slot
    from tidegate.state.order import Row

TOLD: Final = 2
"""The index in a session of the windows of its emitted results: start and end of each."""


class KeptSessionRuntime(SessionRuntime):
    """Keeps sessions after their result, and corrects the result if late rows change them."""

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
        self._emit_results(due, out, pl.repeat(False, len(due), dtype=pl.Boolean, eager=True).alias(DELETED))

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
