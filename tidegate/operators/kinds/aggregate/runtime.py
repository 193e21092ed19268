"""Running totals per key: batched state access, and one pass over the rows for each aggregate.

The rows of a batch are numbered by key. The accumulators of these keys are fetched once, in columns, updated, and
stored once. A row that overflows a sum fails as a whole and leaves the state unchanged.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl
from polars.exceptions import PanicException
from typing_extensions import override

from tidegate.config.fields.steps import Ttl
from tidegate.datatypes import BOOLEAN, DataType
from tidegate.errors import TidegateError
from tidegate.expressions.bounds import BATCH_BYTES_MAX
from tidegate.formats.bisection import evaluate_rows, first_line, internal_failure
from tidegate.formats.columns import make_column, plain_values
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.row_kinds import DELETE, INSERT, RETRACTING, ROW_KIND, UPDATE_AFTER, UPDATE_BEFORE
from tidegate.ids import StateName
from tidegate.operators.aggregates.columnar.running import Accumulators, KeyedRows, RunningTotals
from tidegate.operators.aggregates.contract import Aggregate, derive_choice
from tidegate.operators.aggregates.contract import Value as Accumulator
from tidegate.operators.aggregates.values import plain_key
from tidegate.operators.builtin.kafka_source import DELETED
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.operators.kinds.aggregate import GROUPS, AggregateOperator, ChangesOperator
from tidegate.operators.rowwise import without_failed
from tidegate.operators.runtime import (
    END_OF_TIME,
    LOWEST,
    BatchTooLarge,
    OperatorRuntime,
    Out,
    system_columns,
)
from tidegate.operators.spec import Slot
from tidegate.operators.sweep import SWEPT_AT_ONCE, SWEPT_FOR_NEW, Sweep
from tidegate.state.base import KeyedState, NumberedKeys
from tidegate.state.keygroups import key_groups_of_keys
from tidegate.state.order import Row
from tidegate.state.snapshot import Value


def split_lives(
    numbers: Sequence[int],
    times: Sequence[int],
    nows: Sequence[int],
    ends: list[int | None],
    ttl_ms: int,
    *,
    endless: Container[int] = (),
) -> tuple[list[int], list[int]]:
    """Returns the number of each row's life, and the last life of each key.

    `numbers`: the number of each row's key. `times`: the times of the rows. `nows`: the moments at which the rows are
    judged, which are not before their times. `ends`: when each key's total ends; None for a new key and for those of
    `endless`, whose totals were written without a ttl. The function updates `ends`. A key's first life has the key's
    number; each further life has its own number, after those of all keys.

    A key to which nothing is added for the `ttl` starts again. In event time, the row alone decides. Its key starts
    again if the row's own time, or the watermark of its partition when it was read if that was later, is past the last
    time of the key plus the ttl. So batches, restarts and the moment when an entry is really removed make no
    difference: the watermark that removes it is never ahead of a partition's own watermark, unless that partition was
    idle. In processing time, the moment when a batch is processed decides.

    An entry has its end time in the state's expiry slot. An entry written without a ttl has none. The first sweep
    (`operators/sweep.py`) or row that encounters it sets one, as if the key had been updated at that moment.
    """
    last = list(range(len(ends)))
    count = len(ends)
    lives: list[int] = []
    for number, time, now in zip(numbers, times, nows, strict=True):
        end = ends[number]
        if end is None:
            end = now + ttl_ms if number in endless else None  # whatever `time` is: a late row must not end it
        elif now > end:
            last[number] = count
            count += 1
            end = None
        later = time + ttl_ms
        ends[number] = later if end is None or later > end else end
        lives.append(last[number])
    return lives, last


Results = tuple[list[pl.Series], NumberedKeys]
"""Result columns and the keys of the rows."""


class AggregateRuntime(OperatorRuntime):
    """Adds rows to the totals of their keys and emits the results."""

    def __init__(self, operator: AggregateOperator, slot: Slot) -> None:
        kinds = dict(operator.output)
        self._keys = list(operator.keys)
        self._each = operator.emit == "each"
        self._output = [name for name, _ in operator.output]
        self._running = RunningTotals(operator.functions)
        key_types = [kinds[key] for key in self._keys]
        (declaration,) = operator.states(slot.max_parallelism)

        def groups_of(keys: list[tuple[Any, ...]]) -> Sequence[int]:
            return key_groups_of_keys(keys, key_types, slot.max_parallelism)

        self._totals = slot.open_state(operator.name, declaration, groups_of)
        self.states = {declaration.name: self._totals}
        self._ttl = operator.ttl
        self._now_ms = slot.now_ms
        self._sweep = None if operator.ttl is None else Sweep(self._totals, operator.ttl, slot.now_ms)
        self._new = 0
        """New keys for which no sweep has run yet."""
        self._watermark_ms = LOWEST
        """The last watermark other than END_OF_TIME."""

    @override
    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        """Ignores an end of time: nothing expires after it, because another start may bring more rows."""
        if watermark_ms != END_OF_TIME:
            self._watermark_ms = watermark_ms
        out.watermark(watermark_ms)

    @override
    def before_snapshot(self) -> None:
        if self._sweep is not None:
            self._sweep.go_on(SWEPT_AT_ONCE, self._watermark_ms)

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self._add(batch, out)
        if self._new and self._sweep is not None:
            new, self._new = self._new, 0
            self._sweep.go_on(SWEPT_FOR_NEW * new, self._watermark_ms)

    def _add(self, batch: pl.DataFrame, out: Out) -> None:
        """Emits one row per input row (`each`), or the last one per key, in order of occurrence."""
        parts, raising = evaluate_rows(
            batch.height,
            lambda start, end: self._run_all(batch) if end - start == batch.height else self._run(batch[start:end]),
        )
        frame = batch
        if raising:
            failures = [_failure(row, error) for row, error in raising]
            out.fail(batch, failures)
            frame = without_failed(batch, failures)
            if not frame.height:
                return
        columns = zip(*(results for _, (results, _) in parts), strict=True)
        output = self._with_results(frame, [pl.concat(pieces) if len(pieces) > 1 else pieces[0] for pieces in columns])
        if not self._each:
            keys = parts[0][1][1] if len(parts) == 1 else self._number(frame)
            output = output[self._running.last_rows(keys.numbers, keys.count)]
        out.emit(output)

    def _number(self, frame: pl.DataFrame) -> NumberedKeys:
        return self._totals.number_keys([frame[key] for key in self._keys])

    def _run_all(self, batch: pl.DataFrame) -> Results:
        """Runs like `_run`. If a row raises, the batch is processed in parts, which update the state one by one. So a
        batch whose parts might be too large is rejected as a whole first (BatchTooLarge).
        """
        try:
            return self._run(batch)
        except TidegateError:
            raise
        except (Exception, PanicException) as error:
            if batch.height > 1:
                keys = self._number(batch)
                stored = Accumulators(*self._totals.get_columns(keys))
                if self._running.result_bytes_max(KeyedRows(batch, keys.numbers), stored) > BATCH_BYTES_MAX:
                    raise BatchTooLarge(
                        f"results of {batch.height} rows may have more than {BATCH_BYTES_MAX} bytes"
                    ) from error
            raise

    def _run(self, frame: pl.DataFrame) -> Results:
        """Returns result columns and the keys. Updates the state at the very end, all or nothing: an exception has no
        effect. Raises OverflowError, BatchTooLarge.
        """
        keys = self._number(frame)
        stored = Accumulators(*self._totals.get_columns(keys))
        if self._ttl is not None:
            return self._run_lives(frame, keys, stored, self._ttl), keys
        results, columns = self._running.add(KeyedRows(frame, keys.numbers), stored)
        self._totals.put_columns(keys, columns)
        return results, keys

    def _run_lives(self, frame: pl.DataFrame, keys: NumberedKeys, stored: Accumulators, ttl: Ttl) -> list[pl.Series]:
        """Adds the rows to the lives of their keys, and keeps the last one of each key."""
        *columns, expiry = stored.columns
        ends, exist = expiry.to_list(), stored.exist.to_list()
        endless = {key for key, (there, end) in enumerate(zip(exist, ends, strict=True)) if there and end is None}
        moments = self._moments(frame, ttl)
        lives, lasts = split_lives(keys.numbers.to_list(), *moments, ends, ttl.time_ms, endless=endless)
        more = max(lasts, default=-1) + 1 - keys.count
        begun = Accumulators(
            stored.exist.extend_constant(value=False, n=more),
            [column.extend_constant(value=None, n=more) for column in columns],
        )
        rows = KeyedRows(frame, pl.Series(lives, dtype=pl.UInt32))
        results, columns = self._running.add(rows, begun)
        kept = pl.Series(lasts, dtype=pl.UInt32)
        self._totals.put_columns(keys, [*(column[kept] for column in columns), pl.Series(ends, dtype=pl.Int64)])
        self._new += exist.count(False)
        return results

    def _moments(self, frame: pl.DataFrame, ttl: Ttl) -> tuple[list[int], list[int]]:
        """Returns the times of the rows, and the moments at which they are judged."""
        if ttl.processing:
            now = [self._now_ms()] * frame.height
            return now, now
        return frame[TIME].to_list(), (frame[TIME] + frame[BEHIND]).to_list()

    def _with_results(self, frame: pl.DataFrame, results: Sequence[pl.Series]) -> pl.DataFrame:
        by_name = {column.name: column for column in results}
        names = self._output + system_columns(frame)
        return pl.DataFrame([by_name[name] if name in by_name else frame[name] for name in names])


def _failure(row: int, error: BaseException) -> RecordFailure:
    if isinstance(error, OverflowError):
        return RecordFailure(row, FailureKind.ARITHMETIC_OVERFLOW, first_line(error))
    return internal_failure(row, error)


UNKNOWN: Final = "the retracted row was never added to its group, or was already retracted"
INCOMPLETE: Final = "the last row of its group is retracted with other values than it was added with"
_REMEDY: Final = "changes are missing, are duplicated or lack columns: start again with a new snapshot of the table"


_UNCOUNTED: Final = object()
"""Marks the value of a row that an aggregate does not count."""


class _Group:
    """The updates of one group by a batch."""

    __slots__ = ("accumulators", "before", "known", "last", "rows")

    def __init__(self, functions: Sequence[Aggregate], value: Value | None) -> None:
        self.known = value is not None
        self.rows: int = 0 if value is None else value[0]
        self.accumulators: list[Accumulator] = []
        self.before: list[Any] | None = None
        """The total before the batch; None: there was none."""
        self.last = -1
        """The last row of the batch that changed it."""
        place = 1
        for function in functions:
            end = place + len(function.fields)
            self.accumulators.append(function.zero if value is None else value[place:end])
            place = end

    @property
    def value(self) -> Value:
        """The entry of the state."""
        return (self.rows, *(part for accumulator in self.accumulators for part in accumulator))


class _Change(NamedTuple):
    """A row to emit."""

    kind: int
    total: list[Any]
    row: int


class ChangesRuntime(OperatorRuntime):
    """Updates groups and emits the changes of their totals.

    Totals of changes: rows are added to their groups and retracted from them; the results are changes of totals.

    Groups are updated row by row, in order. A row that retracts what its group does not contain fails and changes
    nothing. Each batch emits at most one change per group: it retracts the total before the batch and adds the one
    after it. A group without rows has no entry in the state and emits a delete. So does a group with a total that is
    too large for its type.
    """

    def __init__(self, operator: ChangesOperator, slot: Slot) -> None:
        self._operator = operator
        self._kinds: Mapping[str, DataType] = dict(operator.output)
        self._keys = list(operator.keys)
        key_types = [self._kinds[key] for key in self._keys]
        count = len(self._keys)

        def groups_of(keys: list[tuple[Any, ...]]) -> Sequence[int]:
            return key_groups_of_keys([key[:count] for key in keys], key_types, slot.max_parallelism)

        declarations = operator.states(slot.max_parallelism)
        states: dict[StateName, KeyedState[Any]] = {
            one.name: slot.open_state(operator.name, one, groups_of) for one in declarations
        }
        self.states, self._groups = states, states[GROUPS]
        self._choices = [derive_choice(call) for _, call in operator.aggregates]
        self._functions = operator.functions
        self._zeros = [function.zero for function in self._functions]
        for function in self._functions:
            values = function.declare_values(declarations[0].shape)
            if values is not None:
                function.open_values(states[values.name])
        self._names = [name for name, _ in operator.aggregates]

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        """Raises BatchTooLarge: a large text in the state may be in the totals of many groups."""
        numbers, keys, rows = self._numbered(batch)
        stored = self._groups.get_many(keys)
        groups = [_Group(self._functions, value) for value in stored]
        totals_failed: list[RecordFailure] = []
        for group in groups:
            if group.known:
                group.before, _ = self._total(group)
        if batch.height > 1 and 2 * sum(map(_text_size, groups)) > BATCH_BYTES_MAX:
            raise BatchTooLarge(f"totals of {len(groups)} groups have more than {BATCH_BYTES_MAX} bytes")
        failures = self._move(batch, numbers, groups, rows)
        for index, function in enumerate(self._functions):
            finished = function.finish([group.accumulators[index] for group in groups], rows)
            for group, accumulator in zip(groups, finished, strict=True):
                group.accumulators[index] = accumulator
        changes: list[_Change] = []
        for group in sorted((one for one in groups if one.last >= 0), key=lambda one: one.last):
            after, error = self._total(group) if group.rows else (None, None)
            if error is not None:
                failure = RecordFailure(group.last, FailureKind.ARITHMETIC_OVERFLOW, first_line(error))
                totals_failed.append(failure)
            changes += _changes_of(group, after)
        self._write(keys, groups)
        if failures:
            out.fail(batch, failures)
        if totals_failed:  # their rows are in the state
            out.fail(batch, totals_failed, None)
        if changes:
            out.emit(self._frame(batch, changes))

    def _numbered(self, batch: pl.DataFrame) -> tuple[list[int], list[Any], list[Row]]:
        """Returns the number of each row's key, and the keys, once in the form of the state and once as tuples."""
        columns = [plain_values(batch[key]) for key in self._keys]
        found = list(zip(*columns, strict=True))
        index: dict[Row, int] = {}
        numbers = [index.setdefault(key, len(index)) for key in found]
        rows = list(index)
        return numbers, [key for (key,) in rows] if len(columns) == 1 else rows, rows

    def _move(
        self, batch: pl.DataFrame, numbers: Sequence[int], groups: Sequence[_Group], keys: Sequence[Row]
    ) -> list[RecordFailure]:
        """Adds and retracts rows in order. A row that fails changes nothing."""
        kinds = batch[ROW_KIND].to_list() if ROW_KIND in batch.columns else [INSERT] * batch.height
        values = [self._begin(batch, place, numbers, keys) for place in range(len(self._functions))]
        columns = list(zip(*values, strict=True))
        failures: list[RecordFailure] = []
        for row, (kind, number) in enumerate(zip(kinds, numbers, strict=True)):
            group = groups[number]
            reason = ""
            if kind in RETRACTING:
                reason = self._take(group, columns[row])
            else:
                self._add(group, columns[row])
            if reason:
                failures.append(RecordFailure(row, FailureKind.INCONSISTENT_CHANGE, f"{reason}: {_REMEDY}"))
            else:
                group.last = row
        return failures

    def _begin(self, batch: pl.DataFrame, place: int, numbers: Sequence[int], keys: Sequence[Row]) -> list[Any]:
        """Returns the values of one function, marked for rows that it does not count."""
        function, choice = self._functions[place], self._choices[place]
        mask = [True] * batch.height if choice is None else choice.derive_mask(batch).to_list()
        values = function.read(batch)
        counted = [value if counts else None for value, counts in zip(values, mask, strict=True)]
        found = function.begin(counted, numbers, keys)
        return [
            value if counts and (value is not None or function.takes_null) else _UNCOUNTED
            for value, counts in zip(found, mask, strict=True)
        ]

    def _add(self, group: _Group, values: Sequence[Any]) -> None:
        group.rows += 1
        group.accumulators = [
            accumulator if value is _UNCOUNTED else function.add(accumulator, value)
            for function, accumulator, value in zip(self._functions, group.accumulators, values, strict=True)
        ]

    def _take(self, group: _Group, values: Sequence[Any]) -> str:
        """Retracts a row. Returns why that is impossible; empty on success."""
        if not group.rows:
            return UNKNOWN
        left: list[Accumulator] = []
        for function, accumulator, value in zip(self._functions, group.accumulators, values, strict=True):
            found = accumulator if value is _UNCOUNTED else function.retract(accumulator, value)
            if found is None:
                break
            left.append(found)
        whole = len(left) == len(self._functions)
        if whole and (group.rows > 1 or left == self._zeros):
            group.rows, group.accumulators = group.rows - 1, left
            return ""
        for function, accumulator, value in zip(self._functions, left, values, strict=False):
            if value is not _UNCOUNTED:
                function.add(accumulator, value)  # restores the values that it keeps separately
        return INCOMPLETE if whole else UNKNOWN

    def _total(self, group: _Group) -> tuple[list[Any] | None, OverflowError | None]:
        """Returns the results of a group; None and the error if one is too large for its type."""
        try:
            return [one.result(found) for one, found in zip(self._functions, group.accumulators, strict=True)], None
        except OverflowError as error:
            return None, error

    def _write(self, keys: Sequence[Any], groups: Sequence[_Group]) -> None:
        left = [(key, group.value) for key, group in zip(keys, groups, strict=True) if group.rows]
        self._groups.put_many([key for key, _ in left], [value for _, value in left])
        over = [key for key, group in zip(keys, groups, strict=True) if group.known and not group.rows]
        self._groups.delete_many(over)

    def _frame(self, batch: pl.DataFrame, changes: Sequence[_Change]) -> pl.DataFrame:
        rows = [change.row for change in changes]
        own = [*self._keys, *(name for name in system_columns(batch) if name != ROW_KIND)]
        made = {column.name: column for column in batch[own][rows].get_columns()}
        totals = zip(self._names, zip(*(change.total for change in changes), strict=True), strict=True)
        made |= {name: make_column(name, self._kinds[name], values) for name, values in totals}
        made[DELETED] = make_column(DELETED, BOOLEAN, [change.kind == DELETE for change in changes])
        made[ROW_KIND] = pl.Series(ROW_KIND, [change.kind for change in changes], dtype=pl.Int8)
        names = [name for name, _ in self._operator.output]
        return pl.DataFrame([made[name] for name in (*names, *(one for one in made if one not in names))])


def _text_size(group: _Group) -> int:
    """Returns the size of the texts in the total before a batch."""
    return sum(len(value) for value in group.before or () if isinstance(value, str | bytes))


def _changes_of(group: _Group, after: list[Any] | None) -> list[_Change]:
    """Returns the changes from the old to the new total of a group; none if they are identical to the last bit. -0.0
    and 0.0 differ, since a minimum of totals depends on it.
    """
    before, row = group.before, group.last
    if before is None:
        return [] if after is None else [_Change(INSERT, after, row)]
    if after is None:
        return [_Change(DELETE, before, row)]
    if list(map(plain_key, before)) == list(map(plain_key, after)):
        return []
    return [_Change(UPDATE_BEFORE, before, row), _Change(UPDATE_AFTER, after, row)]
