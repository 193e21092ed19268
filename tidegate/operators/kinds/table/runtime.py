"""The runtimes of `table`: its rows, and their changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

import polars as pl
from typing_extensions import override

from tidegate.expressions.bounds import BATCH_BYTES_MAX
from tidegate.formats.columns import make_column
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.row_kinds import DELETE, INSERT, ROW_KIND, UPDATE_AFTER, UPDATE_BEFORE
from tidegate.operators.builtin.kafka_source import DELETED
from tidegate.operators.builtin.upsert.runtime import mark_retracted
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.operators.keyed.runtime import KeyedRuntime
from tidegate.operators.kinds.table import TableOperator, TableRowsOperator
from tidegate.operators.latest_rows.runtime import FIRST, LatestRows, RowChange
from tidegate.operators.runtime import OperatorRuntime, Out, system_columns
from tidegate.operators.spec import Slot
from tidegate.state.base import Key
from tidegate.state.snapshot import Value


class TableRowsRuntime(OperatorRuntime):
    """Checks keys and marks rows that delete theirs.

    The row before an update deletes its key unless the row after it has the same one, as in a topic of upserts.
    """

    def __init__(self, operator: TableRowsOperator, slot: Slot) -> None:  # noqa: ARG002  # as all are opened
        self._keys = list(operator.keys)
        self._output = [name for name, _ in operator.pruned_columns()]

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        lacking = reduce(or_, (batch[key].is_null() for key in self._keys))
        if lacking.any():
            out.fail(batch, [self._failure(batch, row) for row in lacking.arg_true().to_list()])
            batch = batch.filter(~lacking)
        deleted = batch[DELETED].fill_null(value=False) if DELETED in batch.columns else pl.lit(value=False)
        marked = mark_retracted(batch.with_columns(deleted.alias(DELETED)), self._keys, DELETED)
        out.emit(marked[self._output + system_columns(marked)])

    def _failure(self, batch: pl.DataFrame, row: int) -> RecordFailure:
        names = ", ".join(f"`{key}`" for key in self._keys if batch[key][row] is None)
        return RecordFailure(row, FailureKind.NULL_KEY, f"{names} of the table's key is NULL: no row has such a key")


class _Row(NamedTuple):
    """A row to emit."""

    kind: int
    key: Key
    value: Value
    place: int
    """The row of the batch that caused it."""


class TableRuntime(KeyedRuntime[TableOperator]):
    """The rows of the keys of one subtask."""

    def __init__(self, operator: TableOperator, slot: Slot) -> None:
        super().__init__(operator, slot)
        self._kinds = dict(operator.output_columns())
        self._places = {name: index for index, name in enumerate(operator.held_columns(), FIRST)}
        self._row = slice(FIRST, FIRST + len(operator.held))
        """The columns of a value."""
        self._rows = LatestRows(self.state, operator.keys, operator.held, operator.place, operator.ttl)

    @property
    @override
    def gauges(self) -> Mapping[str, int]:
        return {"table_rows": len(self._rows)}

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        """Raises BatchTooLarge: rows of the state may be larger than those that replace them."""
        changes, failures = self._rows.apply(batch, BATCH_BYTES_MAX)
        if failures:
            out.fail(batch, failures)
        changed = sorted(filter(self._is_visible, changes), key=lambda one: one.row)
        rows = [row for change in changed for row in _rows_of(change)]
        if rows:
            out.emit(self._frame(batch, rows))

    @override
    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        ended = self._rows.advance(watermark_ms)
        if ended:
            out.emit(self._ended(ended))
        out.watermark(watermark_ms)

    def _ended(self, changes: Sequence[RowChange]) -> pl.DataFrame:
        """Returns the deletes of rows that have ended; their event time is that end."""
        rows = [row for change in changes for row in _rows_of(change)]
        times = pl.Series(TIME, [row.value[-1] for row in rows], dtype=pl.Int64)
        behind = pl.zeros(len(rows), dtype=pl.Int64, eager=True).alias(BEHIND)
        columns = (self._column(name, rows) for name in self._output)
        return pl.DataFrame([*columns, times, behind, self._row_kinds(rows)])

    def _row_kinds(self, rows: Sequence[_Row]) -> pl.Series:
        return pl.Series(ROW_KIND, [row.kind for row in rows], dtype=pl.Int8)

    def _is_visible(self, change: RowChange) -> bool:
        """Returns False if only the place of the row is another one."""
        before, after = change.before, change.after
        return before is None or after is None or not self._rows.are_equal(before[self._row], after[self._row])

    def _frame(self, batch: pl.DataFrame, rows: Sequence[_Row]) -> pl.DataFrame:
        engine = [name for name in system_columns(batch) if name != ROW_KIND]
        carried = batch[engine][[row.place for row in rows]]
        columns = (self._column(name, rows) for name in self._output)
        return pl.DataFrame([*columns, *carried.get_columns(), self._row_kinds(rows)])

    def _column(self, name: str, rows: Sequence[_Row]) -> pl.Series:
        return make_column(name, self._kinds[name], self._values(name, rows))

    def _values(self, name: str, rows: Sequence[_Row]) -> list[Any]:
        if name == DELETED:
            return [row.kind == DELETE for row in rows]
        if name in self._places:
            place = self._places[name]
            return [row.value[place] for row in rows]
        if len(self.operator.keys) == 1:
            return [row.key for row in rows]
        place = self.operator.keys.index(name)
        return [row.key[place] for row in rows]


def _rows_of(change: RowChange) -> list[_Row]:
    """Returns the rows that say what has changed."""
    key, before, after, place = change
    if before is None:
        return [] if after is None else [_Row(INSERT, key, after, place)]
    if after is None:
        return [_Row(DELETE, key, before, place)]
    return [_Row(UPDATE_BEFORE, key, before, place), _Row(UPDATE_AFTER, key, after, place)]
