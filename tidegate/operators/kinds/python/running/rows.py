"""Calls a step for each row. A row that raises fails alone: what it has written and emitted is undone.

The states are read for the keys of a batch before its first row, and written after its last one. The rows of an output
leave as frames, with the system columns of the rows that have emitted them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import repeat
from operator import attrgetter
from threading import get_ident
from typing import Any, Final, Protocol

import polars as pl
from typing_extensions import override

from tidegate.errors import TidegateError
from tidegate.formats.columns import make_column
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.operators import runtime
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.operators.kinds.python import PythonOperator
from tidegate.operators.kinds.python.running.code import CodeRuntime
from tidegate.operators.kinds.python.running.states import RunningScope, open_handle
from tidegate.operators.runtime import LOWEST, system_columns
from tidegate.operators.spec import Columns, Slot
from tidegate.operators.user_values import RecordConverter, values_of
from tidegate.python import Out, Row, Settings
from tidegate.state.base import Key
from tidegate.user_code.failure import show_value

ROWS_KEPT: Final = 20_000
"""With more rows than this, what has been emitted leaves before the next row is processed."""
ROWS_OF_ONE_MAX: Final = 100_000
"""The number of rows that one row or one timer may emit on an output."""
_LIMIT: Final = ROWS_KEPT + ROWS_OF_ONE_MAX


class EmittedRows:
    """The rows of one output."""

    def __init__(self, declared: Columns, output: Columns, what: str, scope: RunningScope) -> None:
        """`output`: the columns that are read; none if nothing reads the output."""
        remedy = "emit a value of that type, or change the column in the pipeline file"
        self._converter = RecordConverter(declared, what, remedy)
        names = {name for name, _ in output}
        self._columns = [
            (name, kind, attrgetter(f"f{index}")) for index, (name, kind) in enumerate(declared) if name in names
        ]
        self._records: list[Any] = []
        self.rows: list[int] = []
        """The number of the row that has emitted each of them (`RunningScope.row`)."""
        self._what = what
        self._scope = scope

    def add(self, values: Mapping[str, Any]) -> None:
        """Adds what the current row emits. Raises TypeError."""
        record = self._converter.convert(values)
        if not self._columns:
            return
        rows = self.rows
        if len(rows) >= ROWS_KEPT:
            self._scope.emitted_many = True
            if len(rows) >= _LIMIT:
                raise RuntimeError(f"{self._what}: one row may emit at most {ROWS_OF_ONE_MAX} rows")
        self._records.append(record)
        rows.append(self._scope.row)

    def drop(self, row: int) -> None:
        """Drops what a row has emitted. No other row has emitted anything after it."""
        rows = self.rows
        kept = len(rows)
        while kept and rows[kept - 1] == row:
            kept -= 1
        del rows[kept:], self._records[kept:]

    def take(self) -> tuple[list[pl.Series], list[int]]:
        """Returns the columns of all rows, and which row has emitted each."""
        records, rows = self._records, self.rows
        self._records, self.rows = [], []
        return [make_column(name, kind, list(map(read, records))) for name, kind, read in self._columns], rows


class RowOut(Out):
    """What a step emits to."""

    def __init__(self, operator: PythonOperator, scope: RunningScope) -> None:
        self._scope = scope
        self._main = EmittedRows(operator.main, operator.pruned_columns(), "the output", scope)
        self._outputs = {
            "": self._main,
            **{
                name: EmittedRows(columns, operator.pruned_columns(name), f"the output `{name}`", scope)
                for name, columns in operator.others.items()
            },
        }

    @override
    def emit(self, row: Any = None, /, **columns: Any) -> None:
        scope = self._scope
        if scope.thread != get_ident():
            scope.refuse()
        self._main.add(columns if row is None else _join(row, columns))

    @override
    def to(self, output: str, row: Any = None, /, **columns: Any) -> None:
        scope = self._scope
        if scope.thread != get_ident():
            scope.refuse()
        found = self._outputs.get(output) if output else None
        if found is None:
            known = ", ".join(f"`{name}`" for name in self._outputs if name) or "none"
            raise ValueError(f"there is no output {show_value(output)}: declare it under `outputs` (declared: {known})")
        found.add(columns if row is None else _join(row, columns))

    def emit_all(self, found: Any) -> None:
        """Emits what a function has returned: a mapping, several of them, or None."""
        if found is None:
            return
        if isinstance(found, dict | Mapping):  # a dict is recognized faster
            self.emit(found)
        elif isinstance(found, Iterable) and not isinstance(found, str | bytes):
            for one in found:
                self.emit(one)
        else:
            raise TypeError(f"the function returned {show_value(found)}: return a mapping, a list of mappings, or None")

    def drop(self) -> None:
        """Drops what the current row has emitted."""
        for one in self._outputs.values():
            one.drop(self._scope.row)

    def take(self) -> Iterator[tuple[str, list[pl.Series], list[int]]]:
        """Yields the name of each output that has rows, their columns, and which row has emitted each of them."""
        for name, one in self._outputs.items():
            if one.rows:
                yield name, *one.take()


def _join(row: Any, columns: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(row, dict | Mapping):
        raise TypeError(f"{show_value(row)} is not a row: emit a mapping, or the columns as keywords")
    return {**row, **columns} if columns or not isinstance(row, dict) else row


Process = Callable[[Row, RowOut], object]


class Handle(Protocol):
    """What gives a step access to a declared state or timer."""

    def load(self, keys: Collection[Key]) -> None:
        """Reads what is needed for the keys of a batch."""

    def flush(self) -> int:
        """Writes what the batch has changed. Returns the number of entries."""


class RowsRuntime(CodeRuntime):
    """Calls `process` of a step, or a function, with one row at a time."""

    def __init__(self, operator: PythonOperator, slot: Slot) -> None:
        """Raises StepFailed, and UserCodeProblem."""
        super().__init__(operator, slot)
        self._emitted = RowOut(operator, self._scope)
        self._handles: dict[str, Handle] = {}
        self._open_handles(slot)
        code = self._open(self._handles)
        self._process: Process = (
            code.process
            if operator.description.is_class
            else _make_process(code, self._settings, takes_settings=operator.description.takes_settings)
        )

    def _open_handles(self, slot: Slot) -> None:  # noqa: ARG002  # for timers
        """Makes what gives the step access to its declared states."""
        for one in self.operator.description.states:
            self._handles[one.name] = open_handle(one, self._state_of(one.name), self._scope)

    @override
    def process(self, port: int, batch: pl.DataFrame, out: runtime.Out) -> None:
        scope, emitted, process = self._scope, self._emitted, self._process
        keys = self.keys_of(batch) if self.operator.keys else [None] * batch.height
        self._load(keys)
        self._read_clock()
        failures: list[RecordFailure] = []
        first = scope.row + 1
        scope.begin()
        try:
            rows = _rows_of(batch, self.operator.columns)
            for row, key, time_ms, reached_ms in zip(rows, keys, *_times_of(batch), strict=False):
                scope.row += 1
                scope.state_key = key
                scope.time_ms = time_ms
                scope.reached_ms = reached_ms
                try:
                    process(row, emitted)
                except (KeyboardInterrupt, TidegateError):  # of a notebook or test; of a state that cannot be read
                    raise
                except BaseException as error:  # noqa: BLE001  # SystemExit and panics of libraries fail their row, too
                    scope.roll_back()
                    emitted.drop()
                    message = self._describe(error)
                    failures.append(RecordFailure(scope.row - first, FailureKind.PYTHON_FAILED, message))
                else:
                    if scope.undo:
                        scope.undo.clear()
                    if scope.emitted_many:
                        self._hand_on(batch, first, out)
        finally:
            scope.end()
        self._flush()
        if failures:
            out.fail(batch, failures)
        self._hand_on(batch, first, out)

    def _load(self, keys: Iterable[Key]) -> None:
        """Reads the states for the keys of a batch."""
        if self._handles:
            distinct = dict.fromkeys(keys)
            for handle in self._handles.values():
                handle.load(distinct)

    def _hand_on(self, batch: pl.DataFrame, first: int, out: runtime.Out) -> None:
        """Emits what has been collected. `first`: the number of the first row of the batch."""
        self._scope.emitted_many = False
        for name, columns, rows in self._emitted.take():
            system = [batch[name] for name in self._kept(batch)]
            if rows != list(range(first, first + batch.height)):
                places = pl.Series(rows, dtype=pl.Int64) - first
                system = [column.gather(places) for column in system]
            self._send(name, pl.DataFrame([*columns, *system]), out)

    def _kept(self, batch: pl.DataFrame) -> list[str]:
        """Returns the system columns that the emitted rows have."""
        if self.operator.preserves_record():
            return system_columns(batch)
        return [name for name in (TIME, BEHIND) if name in batch.columns]

    def _flush(self) -> None:
        """Writes what a batch has changed, and removes some of the entries that have ended."""
        self._remove_for(sum(handle.flush() for handle in self._handles.values()))


def _make_process(function: Any, settings: Settings, *, takes_settings: bool) -> Process:
    """Returns what processes a row by a function."""
    if takes_settings:
        return lambda row, out: out.emit_all(function(row, settings))
    return lambda row, out: out.emit_all(function(row))


def _rows_of(batch: pl.DataFrame, columns: Columns) -> Iterator[Row]:
    names = [name for name, _ in columns]
    values = zip(*(values_of(batch[name], kind) for name, kind in columns), strict=True)
    rows = map(Row, map(zip, repeat(names), values))
    return rows if TIME not in batch.columns else map(_with_time, rows, batch[TIME].to_list())


def _with_time(row: Row, time_ms: int) -> Row:
    row.time_ms = time_ms
    return row


def _times_of(batch: pl.DataFrame) -> tuple[Iterable[int | None], Iterable[int]]:
    """Returns the event time of each row, and that time or the later watermark of its partition when it was read."""
    if TIME not in batch.columns:
        return repeat(None), repeat(LOWEST)
    return batch[TIME].to_list(), (batch[TIME] + batch[BEHIND]).to_list()
