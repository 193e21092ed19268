"""Early results of sessions: at each multiple of the interval, for the sessions that are open and have a new row.

An early result includes exactly the rows that are older than its due time. So a row waits until no early result is due
before the first one that includes it. It waits outside the sessions, by that due time, in frames and in the state
`ahead`. A row behind the watermark of its partition waits until the operator's watermark has passed that watermark, and
so counts for the due time after it.

A watermark that passes several due times is processed as if it had stopped at each of them. Sessions that have ended by
then are closed first.

The windows of emitted results are kept with a session, as for corrections by late rows (`KeptSessionRuntime`). If the
start of the session has changed by its next result, the old result is retracted.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar, Final

import polars as pl
from typing_extensions import override

from tidegate.ids import StateName
from tidegate.operators.aggregates.contract import Value
from tidegate.operators.kinds.window.running.base import FOLDED_MAX
from tidegate.operators.kinds.window.running.partial import AT, BYTES_MAX, ROWS_LEAST
from tidegate.operators.kinds.window.running.sessions import (
    TOLD,
    ChangedWindows,
    KeptSessionRuntime,
    Session,
    derive_room,
)
from tidegate.operators.kinds.window.settings import AHEAD, EARLY, EARLY_SESSIONS
from tidegate.operators.runtime import END_OF_TIME

if TYPE_CHECKING:
    from tidegate.operators.kinds.window import WindowOperator
    from tidegate.operators.runtime import Out
    from tidegate.operators.spec import Slot
    from tidegate.state.order import Row

DUE_COST: Final = 150
"""The cost in results of each due time in one call: rows join, sessions close, and results are emitted for each. After
a backlog, a barrier waits for one call for each batch before it.
"""
_FRESH: Final = 3
"""The index in a session of the flag for rows that no result includes yet."""


class EarlySessionRuntime(KeptSessionRuntime):
    """Emits early results of open sessions and retracts those that are replaced."""

    STATE: ClassVar[StateName] = EARLY_SESSIONS
    HEAD: ClassVar[int] = 4

    def __init__(self, operator: WindowOperator, slot: Slot) -> None:
        super().__init__(operator, slot)
        self._early_ms = operator.window.early_ms
        self._dues = self._timed[EARLY]
        self._ahead = self._timed[AHEAD]
        self._due: int | None = None
        """The next due time: rows that it includes may join. None before the first watermark."""
        self._younger: list[pl.DataFrame] = []
        """Rows that it does not include, with the first due time that does."""
        self._younger_first: int | None = None
        self._younger_height = 0
        self._younger_max = ROWS_LEAST

    @override
    def before_snapshot(self) -> None:
        self._put_ahead()
        super().before_snapshot()

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _take(self, rows: pl.DataFrame) -> None:
        self._place(rows, rows["__tidegate_time"])

    def _take_open(self, rows: pl.DataFrame, closed: pl.Series) -> None:
        self._place(rows, rows.select(pl.max_horizontal("__tidegate_time", closed)).to_series())

    def _place(self, rows: pl.DataFrame, reached: pl.Series) -> None:
        """Accepts rows that the first due time after `reached` includes."""
        dues = reached - reached % self._early_ms + self._early_ms
        if self._due is not None:
            now = dues <= self._due
            if now.any():
                super()._take(rows.filter(now))
            rows, dues = rows.filter(~now), dues.filter(~now)
        if rows.height:
            self._keep_younger(rows.with_columns(dues.alias(AT)))

    def _keep_younger(self, rows: pl.DataFrame) -> None:
        first = int(rows[AT].min())  # type: ignore[arg-type]  # Int64
        self._younger_first = first if self._younger_first is None else min(first, self._younger_first)
        self._younger.append(rows)
        self._younger_height += rows.height

    def _take_younger(self) -> pl.DataFrame:
        whole = pl.concat(self._younger)
        self._younger, self._younger_first, self._younger_height = [], None, 0
        return whole

    def _relieve(self) -> None:
        super()._relieve()
        size = sum(int(one.estimated_size()) for one in self._younger)
        if self._younger_height > self._younger_max or size > BYTES_MAX:
            self._put_ahead()

    def _put_ahead(self) -> None:
        """Moves younger rows into the state, as sessions of their due time."""
        if not self._younger:
            return
        rows = self._take_younger()
        found = self._own_sessions(rows, [AT, *self._key_names])
        self._younger_max = derive_room(rows.height, len(found))
        places = list(dict.fromkeys(place for place, *_ in found))
        old = zip(places, self._ahead.get_many(places), strict=True)
        changes = ChangedWindows(
            {place: [] if value is None else list(value[0]) for place, value in old}, self._merge_own
        )
        for place, start, end, value in found:
            changes.join(place, (start, end, *value))
        self._ahead.put_many(changes.held, [(tuple(sessions),) for sessions in changes.held.values()])

    def _merge_own(self, left: Session, right: Session) -> Session:
        return min(left[0], right[0]), max(left[1], right[1]), *self._aggregates.merge(left[2:], right[2:])

    # -- results -------------------------------------------------------------------------------------------------------

    def _fire(self, watermark_ms: int, limit: int, out: Out) -> bool:
        left = limit
        while (due := self._next_due(watermark_ms)) is not None:
            before = self._result_count
            if left <= 0 or self._reach(due) or super()._fire(due - 1, left, out) or self._fold(FOLDED_MAX):
                return True
            if self._give_early(due, left, out):
                return True
            left -= self._result_count - before + DUE_COST
        if watermark_ms != END_OF_TIME and self._reach(self._due_after(watermark_ms + 1)):
            return True
        return super()._fire(watermark_ms, limit, out)

    def _due_after(self, time_ms: int) -> int:
        return time_ms - time_ms % self._early_ms + self._early_ms

    def _next_due(self, watermark_ms: int) -> int | None:
        """Returns the first due time that the watermark passes and that may have a result."""
        firsts = [self._dues.first_ms, self._ahead.first_ms, self._younger_first]
        if self._pending_late_rows.first_ms is not None:
            firsts.append(self._due_after(self._pending_late_rows.first_ms))
        if self._rows or self._reduced:
            firsts.append(self._due)
        due = min((one for one in firsts if one is not None), default=None)
        return due if due is not None and due - 1 <= watermark_ms else None

    def _reach(self, due: int) -> bool:
        """Lets the rows of this due time join from now on. Returns True if more rows have waited for it."""
        self._due = due if self._due is None else max(due, self._due)
        if self._younger_first is not None and self._younger_first <= due:
            rows = self._take_younger()
            now = rows[AT] <= due
            super()._take(rows.filter(now).drop(AT))
            if not now.all():
                self._keep_younger(rows.filter(~now))
        taken = self._ahead.take_due(due, FOLDED_MAX)
        by_key: dict[Row, list[Session]] = {}
        for row, (sessions,) in taken:
            by_key.setdefault(row[1:], []).extend(self._begin(start, end, tuple(v)) for start, end, *v in sessions)
        if by_key:
            self._join(by_key)
        return len(taken) == FOLDED_MAX

    def _give_early(self, due: int, limit: int, out: Out) -> bool:
        """Emits the results of one due time. Returns True if there are more."""
        taken = [row[1:] for row, _ in self._dues.take_due(due, limit)]
        held = self._sessions_of(taken)
        fresh = [
            ((one[1], *key), one) for key, sessions in held.items() for one in sessions if one[_FRESH] and one[1] >= due
        ]
        if fresh:
            self._note_closed_rows([(due - 1, *row[1:]) for row, _ in fresh])
            self._give(fresh, held, out)
        return len(taken) == limit

    # -- state ---------------------------------------------------------------------------------------------------------

    def _begin(self, start: int, end: int, value: Value) -> Session:
        return (start, end, (), True, *value)

    def _merge(self, left: Session, right: Session) -> Session:
        told: tuple[Any, ...] = (*left[TOLD], *right[TOLD])
        merged = self._aggregates.merge(left[self.HEAD :], right[self.HEAD :])
        return min(left[0], right[0]), max(left[1], right[1]), told, True, *merged

    def _as_told(self, session: Session) -> Session:
        return (*session[:TOLD], (session[:TOLD],), False, *session[self.HEAD :])

    def _move(self, gone: set[Row], new: Collection[Row]) -> None:
        super()._move(gone, new)
        assert self._due is not None, "nothing joins before the first watermark"
        dues = list({(self._due, *row[1:]) for row in new})
        self._dues.put_many(dues, [()] * len(dues))
