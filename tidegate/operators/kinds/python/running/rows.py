"""Calls a step for each row. A row that raises fails alone: what it has written and emitted is undone.

The states are read for the keys of a batch before its first row, and written after its last one. The rows of an output
leave as frames, with the system columns of the rows that have emitted them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, cast

import polars as pl
from typing_extensions import override

from tidegate.datatypes import DataType
from tidegate.errors import AttemptFailed
from tidegate.formats.columns import plain_values
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.sizes import cut_frame
from tidegate.ids import StateName
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.operators.keyed.runtime import KeyedRuntime
from tidegate.operators.kinds.python import PythonOperator
from tidegate.operators.kinds.python.running.emitted import RowOut
from tidegate.operators.kinds.python.running.scope import RunningScope
from tidegate.operators.kinds.python.running.states import StateHandle, ValueHandle
from tidegate.operators.kinds.python.running.values import reader_of
from tidegate.operators.runtime import Out, system_columns
from tidegate.operators.spec import Columns, Slot
from tidegate.python import Row, Settings, Step
from tidegate.python.step import bind
from tidegate.state.base import Key, KeyedState
from tidegate.user_code.failure import describe_failure
from tidegate.user_code.modules import load
from tidegate.user_code.running import RUNNING

logger = logging.getLogger(__name__)

CLOSE_S: Final = 10.0
"""How long `close` of a step may take."""
Process = Callable[[Row, RowOut], object]


class StepFailed(AttemptFailed):
    """A step cannot be created, or its `open` raises."""

    code = "python-step-failed"


class RowsRuntime(KeyedRuntime[PythonOperator]):
    """Calls `process` of a step, or a function, with one row at a time."""

    def __init__(self, operator: PythonOperator, slot: Slot) -> None:
        """Raises StepFailed."""
        super().__init__(operator, slot)
        kinds = dict(operator.columns)
        self._scope = RunningScope(operator.name, [kinds[key] for key in operator.keys], slot.now_ms)
        self._emitted = RowOut(operator, self._scope)
        self._rows_max, self._bytes_max = slot.rows_max, slot.bytes_max
        self._handles: dict[str, StateHandle] = {
            one.name: ValueHandle(one, cast("KeyedState[Any]", self._states[StateName(one.name)]), self._scope)
            for one in operator.description.states
        }
        self._step, self._process = self._open_code()

    def _open_code(self) -> tuple[Step | None, Process]:
        """Loads the user's code and returns the step, if it is one, and what processes a row."""
        operator = self.operator
        settings = Settings(operator.settings)
        RUNNING.enter(operator.name)
        try:
            found: Any = load(operator.reference)
            if not operator.description.is_class:
                return None, _make_process(found, settings, takes_settings=operator.description.takes_settings)
            step = found()
            bind(step, self._scope, self._handles)
            step.open(settings)
        except BaseException as error:
            failure = describe_failure(error)
            raise StepFailed(f"step {operator.name}: {operator.reference} cannot be opened: {failure}") from error
        finally:
            RUNNING.leave()
        return step, step.process

    @override
    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        self._scope.watermark_ms = max(self._scope.watermark_ms, watermark_ms)
        super().on_watermark(watermark_ms, out)

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        scope, emitted, process = self._scope, self._emitted, self._process
        keys = self.keys_of(batch) if self.operator.keys else [None] * batch.height
        self._load(keys)
        failures: list[RecordFailure] = []
        first = scope.row + 1
        scope.begin()
        try:
            for row, key in zip(_rows_of(batch, self.operator.columns), keys, strict=True):
                scope.row += 1
                scope.state_key = key
                try:
                    process(row, emitted)
                except BaseException as error:  # noqa: BLE001  # SystemExit and panics of libraries fail their row, too
                    scope.roll_back()
                    emitted.drop()
                    message = describe_failure(error)
                    failures.append(RecordFailure(scope.row - first, FailureKind.PYTHON_FAILED, message))
                else:
                    if scope.undo:
                        scope.undo.clear()
                    if scope.emitted_many:
                        self._hand_on(batch, first, out)
        finally:
            scope.end()
        for handle in self._handles.values():
            handle.flush()
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

    def _send(self, name: str, frame: pl.DataFrame, out: Out) -> None:
        for part in cut_frame(frame, self._rows_max, self._bytes_max):
            if name:
                out.side(name, part)
            else:
                out.emit(part)

    @override
    def close(self) -> None:
        if self._step is not None and "close" in self.operator.description.methods:
            close_step(self.operator.name, self._step)
        super().close()


def close_step(name: str, step: Step) -> None:
    """Calls `close` of a step, and waits for it for a bounded time."""

    def run() -> None:
        try:
            step.close()
        except BaseException as error:  # noqa: BLE001  # of the user's code: the attempt ends anyway
            logger.warning("`close` of step %s has failed: %s", name, describe_failure(error))

    thread = threading.Thread(target=run, name=f"close of {name}", daemon=True)
    thread.start()
    thread.join(CLOSE_S)
    if thread.is_alive():
        logger.warning("`close` of step %s has not ended after %g s, and is left behind", name, CLOSE_S)


def _make_process(function: Any, settings: Settings, *, takes_settings: bool) -> Process:
    """Returns what processes a row by a function."""
    if takes_settings:
        return lambda row, out: out.emit_all(function(row, settings))
    return lambda row, out: out.emit_all(function(row))


def _rows_of(batch: pl.DataFrame, columns: Columns) -> Iterator[Row]:
    names = [name for name, _ in columns]
    values = [_values_of(batch[name], kind) for name, kind in columns]
    rows = zip(*values, strict=True)
    if TIME not in batch.columns:
        for found in rows:
            yield Row(zip(names, found, strict=True))
        return
    for found, time_ms in zip(rows, batch[TIME].to_list(), strict=True):
        row = Row(zip(names, found, strict=True))
        row.time_ms = time_ms
        yield row


def _values_of(column: pl.Series, kind: DataType) -> Sequence[Any]:
    """Returns the values of a column as a user's code gets them."""
    read = reader_of(kind)
    values = plain_values(column)
    return values if read is None else [None if value is None else read(value) for value in values]
