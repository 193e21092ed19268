"""The best rows of each key and event time, ranked once: when the watermark passes the time, no further rows follow.

It is made for the results of windows, whose event time is the end of their window less 1 ms. Rows behind the watermark
are late, because their ranking is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import polars as pl
from typing_extensions import override

from tidegate.formats.columns import plain_values
from tidegate.ids import StateName
from tidegate.operators.due_results import DueResultsRuntime
from tidegate.operators.event_time import BEHIND, TIME, EventClock
from tidegate.operators.kinds.keep import RankingOperator
from tidegate.operators.kinds.keep.ranking import Ranking
from tidegate.operators.kinds.keep.running.frames import cut_rows, frame_of, rows_of
from tidegate.operators.lateness import LateRows
from tidegate.operators.runtime import OperatorRuntime, OperatorState, Out
from tidegate.operators.spec import LATE, Slot
from tidegate.state.keygroups import key_groups_of_keys
from tidegate.state.order import Row
from tidegate.state.time_ordered import TimeOrdered

REASON: Final = "late: its ranking was closed"
ROWS_AT_ONCE: Final = 5000
"""The approximate maximum of rows emitted in one call."""
_FIRST_RANKINGS: Final = 16
"""How many rankings are taken from the state before the size of their rows is known."""


class ClosingRuntime(DueResultsRuntime, OperatorRuntime):
    """Collects rankings and emits those that the watermark closes."""

    def __init__(self, operator: RankingOperator, slot: Slot) -> None:
        self._columns = operator.columns
        self._keys = list(operator.keys)
        self._places = operator.places
        types = dict(operator.columns)
        kinds = [types[key] for key in self._keys]
        self._order = operator.order()
        self._rows_max, self._bytes_max = slot.rows_max, slot.bytes_max
        declaration, _ = operator.states(slot.max_parallelism)
        self._groups_of: Callable[[list[Row]], Sequence[int]] = lambda rows: key_groups_of_keys(
            rows, kinds, slot.max_parallelism
        )
        self._state = slot.open_state(operator.name, declaration, self._groups_of)
        self._rankings = TimeOrdered(self._state, slot.own_groups)
        self._at_once_max = max(1, ROWS_AT_ONCE // self._places)
        self._at_once = min(_FIRST_RANKINGS, self._at_once_max)
        """How many rankings are taken in one call: fewer if their rows do not fit into one part, more otherwise."""
        self._clock = EventClock(operator.name, slot.own_groups)
        self._late = LateRows(self._clock, self._keys, slot.max_parallelism, operator.pruned_columns(LATE), REASON)

    @property
    @override
    def late_rows(self) -> int:  # type: ignore[override]  # a count that is kept elsewhere
        return self._late.count

    @property
    @override
    def states(self) -> Mapping[StateName, OperatorState]:
        return {state.declaration.name: state for state in (self._state, self._clock.state)}

    @property
    @override
    def gauges(self) -> Mapping[str, int]:
        return {"open_rankings": len(self._rankings)}

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        late = (batch[BEHIND] > 0) | self._clock.closed(batch[TIME], lambda: self._late.groups_of(batch))
        batch = self._late.put_aside_where(late, batch, out)
        if not batch.height:
            return
        keys = list(zip(batch[TIME].to_list(), *(plain_values(batch[key]) for key in self._keys), strict=True))
        known = dict.fromkeys(keys)
        rankings = {
            key: Ranking(self._order, () if value is None else value[0], self._places)
            for key, value in zip(known, self._rankings.get_many(known), strict=True)
        }
        changed: dict[Row, None] = {}
        for key, row in zip(keys, rows_of(batch, self._columns), strict=True):
            ranking = rankings[key]
            first = self._order.first(row)
            if ranking.admits(first) and ranking.enter(row, first) is not None:
                changed[key] = None
        self._rankings.put_many(changed, [(rankings[key].rows,) for key in changed])

    @override
    def emit_due(self, watermark_ms: int, rows_max: int, out: Out) -> bool:  # its own limit applies, not `rows_max`
        limit = self._at_once
        taken = self._rankings.take_due(watermark_ms, limit)
        if taken:
            if self._clock.ending:
                closed = [key for key, _ in taken]
                self._clock.fired([key[0] for key in closed], self._groups_of([key[1:] for key in closed]))
            rows = [row for _, value in taken for row in value[0]]
            ranks = [rank + 1 for _, value in taken for rank in range(len(value[0]))]
            times = [key[0] for key, value in taken for _ in value[0]]
            parts = list(cut_rows(rows, self._columns, self._rows_max, self._bytes_max))
            self._at_once = min(self._at_once_max, 2 * limit) if len(parts) <= 1 else max(1, limit // len(parts))
            for part in parts:
                frame = frame_of(rows[part], ranks[part], self._columns)
                out.emit(frame.with_columns(pl.Series(TIME, times[part], pl.Int64), pl.lit(0, pl.Int64).alias(BEHIND)))
        return len(taken) == limit
