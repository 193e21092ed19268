"""The common part of all windows: accepts rows, sets late ones aside, and holds a watermark until all its results are
emitted.

Subclasses define where accepted rows go and what becomes due. When a watermark makes results due, as many as fit in one
call are emitted at once and the others by `poll`; then the watermark is passed on (W20). Lateness is judged by the new
watermark from the moment it arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from typing_extensions import override

from tidegate.datatypes import FIRST_MOMENT, LAST_MOMENT, DataType
from tidegate.formats.bisection import evaluate_rows, first_line, internal_failure
from tidegate.formats.columns import TIMESTAMP, make_column, plain_values, polars_type
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.ids import StateName
from tidegate.operators.aggregates.contract import AggregateTooLarge, Value
from tidegate.operators.event_time import TIME, DueResultsRuntime, EventClock
from tidegate.operators.kinds.window import DELETED, END, START
from tidegate.operators.kinds.window.running.partial import AT, BYTES_MAX, Aggregates
from tidegate.operators.lateness import LateRows
from tidegate.operators.rowwise import without_failed
from tidegate.operators.runtime import END_OF_TIME, OperatorState, Out
from tidegate.operators.spec import LATE, Columns
from tidegate.state.base import KeyedState
from tidegate.state.keygroups import key_groups_of_keys
from tidegate.state.order import Row
from tidegate.state.time_ordered import Timed, TimeOrdered

if TYPE_CHECKING:
    from tidegate.operators.kinds.window import WindowOperator
    from tidegate.operators.spec import Slot

ResultsOf = Callable[[int, int], list[pl.Series]]
"""Computes the result columns of a range of rows. Raises as Aggregate.results does."""


_NOTHING: Final = pl.Series("__tidegate_behind", [0], dtype=pl.Int64)


def emit_results(
    keyed: pl.DataFrame,
    starts_ms: pl.Series,
    ends_ms: pl.Series,
    results_of: ResultsOf,
    names: Sequence[str],
    out: Out,
    slot: Slot,
) -> None:
    """Emits results in the order of their keys. `starts_ms` and `ends_ms` are instants; `names` are the output columns.

    A result whose aggregate cannot be computed (a sum that overflows) fails alone, and so does one whose window does
    not fit in a timestamp. Results that keep values may be large, so they are emitted in parts that fit.
    """
    frame = keyed.hstack(_times_of(starts_ms, ends_ms))
    whole, raising = evaluate_rows(frame.height, results_of)
    if raising:
        failures = [derive_failure(row, error) for row, error in raising]
        out.fail(frame, failures, None)
        frame = without_failed(frame, failures)
        if not frame.height:
            return
    results = [pl.concat(pieces) for pieces in zip(*(columns for _, columns in whole), strict=True)]
    columns = {column.name: column for column in (*frame.get_columns(), *results)}
    whole_frame = pl.DataFrame([columns[name] for name in (*names, "__tidegate_time", "__tidegate_behind")])
    inside = _in_calendar(whole_frame)
    if inside is not None:
        failures = [_outside(row, whole_frame) for row in (~inside).arg_true()]
        out.fail(whole_frame, failures, None)
        whole_frame = whole_frame.filter(inside)
    for part in slot.cut(whole_frame):
        out.emit(part)


def derive_failure(row: int, error: BaseException) -> RecordFailure:
    """Returns the failure of a row whose results raised `error`."""
    if isinstance(error, OverflowError):
        return RecordFailure(row, FailureKind.ARITHMETIC_OVERFLOW, first_line(error))
    if isinstance(error, AggregateTooLarge):
        return RecordFailure(row, FailureKind.RESULT_TOO_LARGE, first_line(error))
    return internal_failure(row, error)


def emit_deletes(keyed: pl.DataFrame, starts_ms: pl.Series, ends_ms: pl.Series, output: Columns, out: Out) -> None:
    """Emits rows that retract the results of these keys and windows, without values."""
    made = {column.name: column for column in (*keyed.get_columns(), *_times_of(starts_ms, ends_ms))}
    made[DELETED] = deleted_column(keyed.height, deleted=True)
    columns = [
        made[name] if name in made else pl.Series(name, [None] * keyed.height, dtype=polars_type(kind))
        for name, kind in output
    ]
    frame = pl.DataFrame([*columns, made["__tidegate_time"], made["__tidegate_behind"]])
    inside = _in_calendar(frame)
    out.emit(frame if inside is None else frame.filter(inside))


def deleted_column(height: int, *, deleted: bool) -> pl.Series:
    """Returns the column that marks results as deleted or not; `pl.repeat` costs a third of a small emission."""
    return pl.Series(DELETED, [deleted]).new_from_index(0, height)


def _in_calendar(frame: pl.DataFrame) -> pl.Series | None:
    """Returns which windows are within the years 1 to 9999; None if all are."""
    starts, ends = frame[START].cast(pl.Int64), frame[END].cast(pl.Int64)
    inside = (starts >= FIRST_MOMENT) & (ends <= LAST_MOMENT)
    return None if inside.all() else inside


def _outside(row: int, frame: pl.DataFrame) -> RecordFailure:
    start_ms, end_ms = (frame[name].to_physical()[row] // 1000 for name in (START, END))
    text = f"the window begins before the year 1 or ends after 9999: from {start_ms} to {end_ms} ms since 1970"
    return RecordFailure(row, FailureKind.EVENT_TIME_OUT_OF_RANGE, text)


def _times_of(starts_ms: pl.Series, ends_ms: pl.Series) -> list[pl.Series]:
    """Returns the window columns and the event time of their results."""
    moment = pl.Datetime("ms", "UTC")
    return [
        starts_ms.cast(moment).cast(TIMESTAMP).alias(START),
        ends_ms.cast(moment).cast(TIMESTAMP).alias(END),
        (ends_ms - 1).alias("__tidegate_time"),
        _NOTHING.new_from_index(0, len(ends_ms)),
    ]


class Store:
    """Partial results in state. The first column of a frame of them is `AT`, followed by the keys and the parts."""

    def __init__(self, state: TimeOrdered, aggregates: Aggregates, keys: Sequence[tuple[str, DataType]]) -> None:
        self.state = state
        self._aggregates = aggregates
        self._keys = keys

    def __len__(self) -> int:
        """Returns the number of entries."""
        return len(self.state)

    def add(self, parts: pl.DataFrame) -> list[Row]:
        """Merges partial results, one per time and key, into the state. Returns their times and keys."""
        rows = self.rows_of(parts)
        self.merge(rows, self._aggregates.values_of(parts))
        return rows

    def merge(self, rows: Sequence[Row], values: Sequence[Value | None]) -> list[Value | None]:
        """Merges values that are not None into the entries of these times and keys. Returns the resulting entries."""
        merged: list[Value | None] = []
        for old, new in zip(self.state.get_many(rows), values, strict=True):
            merged.append(old if new is None else new if old is None else self._aggregates.merge(old, new))
        changed = [(row, whole) for row, whole, new in zip(rows, merged, values, strict=True) if new is not None]
        if changed:
            self.state.put_many(*map(list, zip(*changed, strict=True)))
        return merged

    def rows_of(self, frame: pl.DataFrame) -> list[Row]:
        """Returns times and keys in the form of the state."""
        columns = [frame[AT].to_list(), *(plain_values(frame[name]) for name, _ in self._keys)]
        return list(zip(*columns, strict=True))

    def frame_of(self, rows: Sequence[Row], values: Sequence[Value]) -> pl.DataFrame:
        """Returns entries as a frame."""
        return pl.DataFrame([*key_columns(rows, self._keys), *self._aggregates.columns_of(values)])

    def take_due(self, until: int, limit: int) -> pl.DataFrame | None:
        """Removes and returns entries whose time is not after `until`, in the order of their times."""
        taken: list[Timed] = self.state.take_due(until, limit)
        if not taken:
            return None
        rows, values = zip(*taken, strict=True)
        return self.frame_of(rows, values)


def key_columns(rows: Sequence[Row], keys: Sequence[tuple[str, DataType]]) -> list[pl.Series]:
    """Returns times and keys as columns."""
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * (1 + len(keys))
    times = pl.Series(AT, columns[0], dtype=pl.Int64)
    named = zip(keys, columns[1:], strict=True)
    return [times, *(make_column(name, kind, values) for (name, kind), values in named)]


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


class WindowRuntime(DueResultsRuntime):
    """The base of all runtimes of windows."""

    def __init__(self, operator: WindowOperator, slot: Slot) -> None:
        kinds = dict(operator.output)
        self._keys = [(key, kinds[key]) for key in operator.keys]
        self._names = [name for name, _ in operator.pruned_columns()]
        self._slot = slot
        self._aggregates = Aggregates(operator.aggregates)
        self._lateness_ms = operator.allowed_lateness_ms
        self._columns = [*dict.fromkeys([*operator.keys, *operator.arguments]), "__tidegate_time"]
        self.states: dict[StateName, OperatorState] = {}
        self._keyed: dict[StateName, KeyedState[Any]] = {}
        self._timed: dict[StateName, TimeOrdered] = {}
        key_types = [kind for _, kind in self._keys]

        def groups_of(keys: list[Row]) -> Sequence[int]:
            return key_groups_of_keys(keys, key_types, slot.max_parallelism)

        for declaration in operator.states(slot.max_parallelism):
            if declaration.keyed:
                state = slot.open_state(operator.name, declaration, groups_of)
                self.states[declaration.name] = self._keyed[declaration.name] = state
                if declaration.shape.prefix:
                    self._timed[declaration.name] = TimeOrdered(state)
        self._clock = EventClock(operator.name, slot.own_groups)
        self.states[self._clock.state.declaration.name] = self._clock.state
        self._at_once = FIRED_FIRST if self._aggregates.growing else FIRED_MAX
        """The number of results in one call, adapted to the size of the last ones; at most doubled each time."""
        names = [name for name, _ in self._keys]
        self._late = LateRows(self._clock, names, slot.max_parallelism, operator.pruned_columns(LATE), REASON)

    @property
    @override
    def late_rows(self) -> int:  # type: ignore[override]  # a count that is kept elsewhere
        return self._late.count

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
