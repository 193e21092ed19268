"""Calls a step for each row. A row that raises fails alone: what it has written and emitted is undone.

The states are read for the keys of a batch before its first row, and written after its last one. The rows of an output
leave as frames, with the system columns of the rows that have emitted them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Protocol, cast

import polars as pl
from typing_extensions import override

from tidegate.datatypes import DataType
from tidegate.errors import TidegateError
from tidegate.formats.columns import plain_values
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.sizes import cut_frame
from tidegate.ids import StateName
from tidegate.operators.event_time import BEHIND, TIME, WATERMARK, EventClock
from tidegate.operators.keyed.runtime import KeyedRuntime
from tidegate.operators.kinds.python import PythonOperator
from tidegate.operators.kinds.python.running.code import close_code, open_code
from tidegate.operators.kinds.python.running.emitted import RowOut
from tidegate.operators.kinds.python.running.expiry import Removal
from tidegate.operators.kinds.python.running.scope import RunningScope
from tidegate.operators.kinds.python.running.states import open_handle, row_of
from tidegate.operators.kinds.python.running.values import reader_of
from tidegate.operators.runtime import LOWEST, Out, system_columns
from tidegate.operators.spec import Columns, Slot
from tidegate.operators.sweep import SWEPT_AT_ONCE, SWEPT_FOR_NEW
from tidegate.python import Row, Settings
from tidegate.state.base import GroupsOf, Key, KeyedState
from tidegate.state.keygroups import key_groups_of_keys
from tidegate.user_code.failure import describe_failure

Process = Callable[[Row, RowOut], object]


class Handle(Protocol):
    """What gives a step access to a declared state or timer."""

    def load(self, keys: Collection[Key]) -> None:
        """Reads what is needed for the keys of a batch."""

    def flush(self) -> int:
        """Writes what the batch has changed. Returns the number of entries."""


class RowsRuntime(KeyedRuntime[PythonOperator]):
    """Calls `process` of a step, or a function, with one row at a time."""

    def __init__(self, operator: PythonOperator, slot: Slot) -> None:
        """Raises StepFailed."""
        super().__init__(operator, slot)
        kinds = dict(operator.columns)
        self._scope = RunningScope(operator.name, [kinds[key] for key in operator.keys], slot)
        self._emitted = RowOut(operator, self._scope)
        self._rows_max, self._bytes_max = slot.rows_max, slot.bytes_max
        self._now_ms = slot.now_ms
        self._handles: dict[str, Handle] = {}
        self._removals: list[Removal] = []
        self._open_handles(slot)
        self._groups_of: GroupsOf = lambda rows: key_groups_of_keys(
            rows, [kinds[key] for key in operator.keys], slot.max_parallelism
        )
        self._event_clock = self._open_clock(slot)
        ttls = [one.ttl for one in operator.description.states if one.ttl is not None]
        self._needs_clock = any(ttl.processing for ttl in ttls)
        settings = Settings(operator.settings)
        self._code = open_code(operator, self._scope, self._handles, settings)
        self._process: Process = (
            self._code.process
            if operator.description.is_class
            else _make_process(self._code, settings, takes_settings=operator.description.takes_settings)
        )

    def _open_handles(self, slot: Slot) -> None:  # noqa: ARG002  # for timers
        """Makes what gives the step access to its declared states."""
        for one in self.operator.description.states:
            state = cast("KeyedState[Any]", self._states[StateName(one.name)])
            self._handles[one.name] = open_handle(one, state, self._scope)
            if one.ttl is not None:
                self._removals.append(Removal(one.ttl, state))

    def _open_clock(self, slot: Slot) -> EventClock | None:
        """Returns the watermark that survives restarts, if the step has one."""
        if WATERMARK.name not in self._states:
            return None
        clock = EventClock(self.operator.name, slot.own_groups)
        self._states[WATERMARK.name] = clock.state
        self._scope.watermark_of = self._watermark_of
        return clock

    def _watermark_of(self, key: Key) -> int:
        assert self._event_clock is not None
        if self._event_clock.uniform:
            return self._event_clock.watermark_ms
        return self._event_clock.watermark_of(self._groups_of([row_of(key)]))[0]

    @override
    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        self._scope.watermark_ms = max(self._scope.watermark_ms, watermark_ms)
        if self._event_clock is not None:
            self._event_clock.advance(watermark_ms)
        super().on_watermark(watermark_ms, out)

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        scope, emitted, process = self._scope, self._emitted, self._process
        keys = self.keys_of(batch) if self.operator.keys else [None] * batch.height
        self._load(keys)
        if self._needs_clock:
            scope.wall_ms = self._now_ms()
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
                    message = describe_failure(error)
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

    def _send(self, name: str, frame: pl.DataFrame, out: Out) -> None:
        for part in cut_frame(frame, self._rows_max, self._bytes_max):
            if name:
                out.side(name, part)
            else:
                out.emit(part)

    def _flush(self) -> None:
        """Writes what a batch has changed, and removes some of the entries that have ended."""
        written = sum(handle.flush() for handle in self._handles.values())
        if written and self._removals:
            self._remove(SWEPT_FOR_NEW * written)

    @override
    def before_snapshot(self) -> None:
        self._remove(SWEPT_AT_ONCE)
        if self._event_clock is not None:
            self._event_clock.before_snapshot()
        super().before_snapshot()

    def _remove(self, entries: int) -> None:
        if self._removals:
            watermark_ms, wall_ms = self._scope.watermark_ms, self._now_ms() if self._needs_clock else 0
            for one in self._removals:
                one.go_on(entries, watermark_ms, wall_ms)

    @override
    def close(self) -> None:
        close_code(self.operator, self._code)
        super().close()


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
