"""Calls a step for each row. A row that raises fails alone: what it has written and emitted is undone.

The states are read for the keys of a batch before its first row, and written after its last one. The rows of an output
leave as frames, with the system columns of the rows that have emitted them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Protocol

import polars as pl
from typing_extensions import override

from tidegate.datatypes import DataType
from tidegate.errors import TidegateError
from tidegate.formats.columns import plain_values
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.operators.kinds.python import PythonOperator
from tidegate.operators.kinds.python.running.code import CodeRuntime
from tidegate.operators.kinds.python.running.emitted import RowOut
from tidegate.operators.kinds.python.running.states import open_handle
from tidegate.operators.kinds.python.running.values import reader_of
from tidegate.operators.runtime import LOWEST, Out, system_columns
from tidegate.operators.spec import Columns, Slot
from tidegate.python import Row, Settings
from tidegate.state.base import Key

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
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
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

    def _hand_on(self, batch: pl.DataFrame, first: int, out: Out) -> None:
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
    values = zip(*(_values_of(batch[name], kind) for name, kind in columns), strict=True)
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


def _values_of(column: pl.Series, kind: DataType) -> Sequence[Any]:
    """Returns the values of a column as a user's code gets them."""
    read = reader_of(kind)
    values = plain_values(column)
    return values if read is None else [None if value is None else read(value) for value in values]
