"""The common part of all windows: accepts rows, sets late ones aside, and holds a watermark until all its results are
emitted.

Subclasses define where accepted rows go and what becomes due. When a watermark makes results due, as many as fit in one
call are emitted at once and the others by `poll`; then the watermark is passed on (W20). Lateness is judged by the new
watermark from the moment it arrives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from typing_extensions import override

from tidegate.ids import StateName
from tidegate.operators.due_results import DueResultsRuntime
from tidegate.operators.event_time import TIME, EventClock
from tidegate.operators.kinds.window.running.emission import EmissionBudget, ResultsOf
from tidegate.operators.kinds.window.running.partial import AT, BYTES_MAX, Aggregates
from tidegate.operators.kinds.window.running.store import key_columns
from tidegate.operators.lateness import LateRows
from tidegate.operators.runtime import END_OF_TIME, OperatorRuntime, OperatorState, Out
from tidegate.operators.spec import LATE
from tidegate.state.base import KeyedState
from tidegate.state.keygroups import key_groups_of_keys
from tidegate.state.time_ordered import TimeOrdered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.operators.kinds.window import WindowOperator
    from tidegate.operators.spec import Slot
    from tidegate.state.order import Row

FIRED_MAX: Final = 1_500
"""The maximum number of results in one call; fewer if they are large."""
FIRED_FIRST: Final = 16
"""The number of results that may be large, before their size is known."""
DUE_COST: Final = 30
"""The cost in results of each further due time in one call: results of one due time cost little, due times cost
more.
"""
FOLDED_MAX: Final = 2_000
"""The maximum number of partial results put into the state in one call, except for a snapshot."""
REASON: Final = "late: its windows were closed"


class WindowRuntime(DueResultsRuntime, OperatorRuntime):
    """The base of all runtimes of windows."""

    def __init__(self, operator: WindowOperator, slot: Slot) -> None:
        kinds = dict(operator.output)
        self._keys = [(key, kinds[key]) for key in operator.keys]
        self._names = [name for name, _ in operator.pruned_columns()]
        self._room = EmissionBudget(slot.rows_max, slot.bytes_max)
        self._aggregates = Aggregates(operator.aggregates)
        self._lateness_ms = operator.allowed_lateness_ms
        self._columns = [*dict.fromkeys([*operator.keys, *operator.arguments]), "__tidegate_time"]
        self._states: dict[StateName, OperatorState] = {}
        self._keyed: dict[StateName, KeyedState[Any]] = {}
        self._timed: dict[StateName, TimeOrdered] = {}
        key_types = [kind for _, kind in self._keys]

        def groups_of(keys: list[Row]) -> Sequence[int]:
            return key_groups_of_keys(keys, key_types, slot.max_parallelism)

        for declaration in operator.states(slot.max_parallelism):
            if declaration.keyed:
                state = slot.open_state(operator.name, declaration, groups_of)
                self._states[declaration.name] = self._keyed[declaration.name] = state
                if declaration.shape.prefix:
                    self._timed[declaration.name] = TimeOrdered(state)
        self._clock = EventClock(operator.name, slot.own_groups)
        self._states[self._clock.state.declaration.name] = self._clock.state
        self._at_once = FIRED_FIRST if self._aggregates.growing else FIRED_MAX
        """The number of results in one call, adapted to the size of the last ones; at most doubled each time."""
        names = [name for name, _ in self._keys]
        self._late = LateRows(self._clock, names, slot.max_parallelism, operator.pruned_columns(LATE), REASON)

    @property
    @override
    def late_rows(self) -> int:  # type: ignore[override]  # a count that is kept elsewhere
        return self._late.count

    @property
    @override
    def states(self) -> Mapping[StateName, OperatorState]:
        return self._states

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        closed = None if self._late.leaves_open(batch, self._open_from(batch)) else self._late.closed_by(batch)
        if closed is None:
            self._take(batch[self._columns])
        else:
            self._take_lagging(batch, closed, out)
        self._relieve()

    @override
    def emit_due(self, watermark_ms: int, rows_max: int, out: Out) -> bool:
        if self._fire_some(watermark_ms, min(rows_max, FIRED_MAX), out):
            return True
        if watermark_ms == END_OF_TIME and self._lateness_ms:
            self._clock.ended(self._lateness_ms)
        return False

    def _fire_some(self, watermark_ms: int, limit: int, out: Out) -> bool:
        """Runs `_fire` with a limit that fits in memory, since a group may keep megabytes of values."""
        aggregates = self._aggregates
        made, weight = aggregates.made, aggregates.weight
        more = self._fire(watermark_ms, min(limit, self._at_once), out)
        made, weight = aggregates.made - made, aggregates.weight - weight
        if made:
            self._at_once = max(1, min(FIRED_MAX, 2 * self._at_once, BYTES_MAX * made // max(1, weight)))
        return more

    def _results_of(self, parts: pl.DataFrame) -> ResultsOf:
        """Returns the function that computes results from partial results."""
        return lambda start, end: self._aggregates.results_of(parts[start:end])

    def _note_closed(self, times: pl.Series, keyed: pl.DataFrame) -> None:
        """Records emitted results: `times` are the last instants of what closes with them, and `keyed` has their
        keys.
        """
        if self._clock.ending:
            self._clock.fired(times.to_list(), self._late.groups_of(keyed))

    def _note_closed_rows(self, rows: Sequence[Row]) -> None:
        """Records the same for rows of a time and a key."""
        if self._clock.ending:
            keyed = pl.DataFrame(key_columns(rows, self._keys))
            self._note_closed(keyed[AT], keyed)

    def _open_from(self, batch: pl.DataFrame) -> int:
        """Returns an instant: if everything from it on is open, no row of the batch is late for anything."""
        return int(batch[TIME].min())  # type: ignore[arg-type]  # Int64

    # -- implemented by subclasses -------------------------------------------------------------------------------------

    @property
    @override
    def gauges(self) -> Mapping[str, int]:
        raise NotImplementedError

    def _take(self, rows: pl.DataFrame) -> None:
        """Accepts rows, none of which is behind."""
        raise NotImplementedError

    def _take_lagging(self, batch: pl.DataFrame, closed: pl.Series, out: Out) -> None:
        """Accepts rows, some of which are behind; `closed` is as in `LateRows.closed_by`."""
        raise NotImplementedError

    def _relieve(self) -> None:
        """Moves into the state what exceeds the limits outside it."""
        raise NotImplementedError

    def _fire(self, watermark_ms: int, limit: int, out: Out) -> bool:
        """Emits what a watermark makes due, about `limit` results. Returns True if there is more."""
        raise NotImplementedError
