"""Totals of changes: rows are added to their groups and retracted from them; the results are changes of totals.

Groups are updated row by row, in order. A row that retracts what its group does not contain fails and changes nothing.
Each batch emits at most one change per group: it retracts the total before the batch and adds the one after it. A group
without rows has no entry in the state and emits a delete. So does a group with a total that is too large for its type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl
from typing_extensions import override

from tidegate.datatypes import BOOLEAN, DataType
from tidegate.expressions.bounds import BATCH_BYTES_MAX
from tidegate.formats.bisection import first_line
from tidegate.formats.columns import make_column, plain_values
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.row_kinds import DELETE, INSERT, RETRACTING, ROW_KIND, UPDATE_AFTER, UPDATE_BEFORE
from tidegate.ids import StateName
from tidegate.operators.aggregates.contract import Aggregate
from tidegate.operators.aggregates.contract import Value as Accumulator
from tidegate.operators.aggregates.filtering import derive_choice
from tidegate.operators.aggregates.values import plain_key
from tidegate.operators.builtin.kafka_source import DELETED
from tidegate.operators.kinds.aggregate import GROUPS, ChangesOperator
from tidegate.operators.runtime import BatchTooLarge, OperatorRuntime, OperatorState, Out, Runtime, system_columns
from tidegate.operators.spec import Slot
from tidegate.state.base import KeyedState
from tidegate.state.keygroups import key_groups_of_keys
from tidegate.state.order import Row
from tidegate.state.snapshot import Value

UNKNOWN: Final = "the row that is taken back was never added to its group, or was taken back already"
INCOMPLETE: Final = "the last row of its group is taken back with other values than it was added with"
_REMEDY: Final = "changes are missing, came twice or lack columns: begin again with a new snapshot of the table"


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


class ChangesRuntime(Runtime, OperatorRuntime):
    """Updates groups and emits the changes of their totals."""

    def __init__(self, operator: ChangesOperator, slot: Slot) -> None:
        self._operator = operator
        self._kinds: Mapping[str, DataType] = dict(operator.output)
        self._keys = list(operator.keys)
        key_types = [self._kinds[key] for key in self._keys]
        count = len(self._keys)

        def groups_of(keys: list[tuple[Any, ...]]) -> Sequence[int]:
            return key_groups_of_keys([key[:count] for key in keys], key_types, slot.max_parallelism)

        declarations = operator.states(slot.max_parallelism)
        self._states: dict[StateName, KeyedState[Any]] = {
            one.name: slot.open_state(operator.name, one, groups_of) for one in declarations
        }
        self._groups = self._states[GROUPS]
        self._choices = [derive_choice(call) for _, call in operator.aggregates]
        self._functions = operator.functions
        self._zeros = [function.zero for function in self._functions]
        for function in self._functions:
            values = function.declare_values(declarations[0].shape)
            if values is not None:
                function.open_values(self._states[values.name])
        self._names = [name for name, _ in operator.aggregates]

    @property
    @override
    def states(self) -> Mapping[StateName, OperatorState]:
        return dict(self._states)

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
