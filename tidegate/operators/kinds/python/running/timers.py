"""Timers of a step: set by its code, fired in the order of their times, in parts that a barrier may interrupt.

A timer is an entry of the state with its name, and an entry of the queue of its clock, in the order of time. Code that
only postpones a timer does not move its entry in the queue: when that entry is due, it is put back at the new time.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, cast

import polars as pl
from typing_extensions import override

from tidegate.errors import TidegateError
from tidegate.formats.columns import make_column
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.ids import StateName
from tidegate.operators.event_time import BEHIND, TIME, TIMER, DueResultsRuntime
from tidegate.operators.kinds.python import CLOCK_TIMERS, EVENT_TIMERS, HELD_TIMERS, PythonOperator
from tidegate.operators.kinds.python.running.rows import RowsRuntime
from tidegate.operators.kinds.python.running.states import RunningScope, row_of
from tidegate.operators.runtime import END_OF_TIME, LOWEST, Out
from tidegate.operators.spec import Requirement, Slot
from tidegate.operators.user_values import EPOCH, micros_of
from tidegate.python import Step, Timer
from tidegate.state.base import Key, KeyedState
from tidegate.state.order import Row
from tidegate.state.time_ordered import TimeOrdered
from tidegate.user_code.describe import DeclaredTimer
from tidegate.user_code.failure import show_value

FIRED_AT_ONCE: Final = 500
"""The maximum number of timers that fire in one call."""
FIRING_MS: Final = 50
"""No further timer fires in a call that has lasted so long."""


class SetTimer(NamedTuple):
    """A timer that is set."""

    at_ms: int
    row_ms: int | None
    """The event time of the row that has set it, if rows have one."""
    held: bool
    """Whether it was set while the timers of an end of time fired: then only a watermark makes it due."""


class TimerHandle(Timer):
    """The timers of one name."""

    def __init__(
        self,
        declared: DeclaredTimer,
        state: KeyedState[Any],
        queues: Mapping[StateName, TimeOrdered],
        scope: RunningScope,
    ) -> None:
        self.clock = "clock" if declared.clock else "event-time"
        self._name = declared.name
        self._state = state
        self._queues = queues
        self._scope = scope
        self._set: dict[Key, SetTimer | None] = {}
        self._put = self._set.__setitem__
        self._queued: dict[Key, tuple[StateName, int] | None] = {}
        """The queue that holds the timer of a key, and the time there."""
        self._written: dict[Key, None] = {}
        self._touched = -1

    def load(self, keys: Collection[Key]) -> None:
        """Reads the timers of all keys of a batch."""
        for key, found in zip(keys, self._state.get_many(keys), strict=True):
            if found is None:
                self._set[key] = self._queued[key] = None
            else:
                at_ms, queued_ms, row_ms, held = found
                self._set[key] = SetTimer(at_ms, row_ms, held)
                self._queued[key] = (self._place_of(held=held), queued_ms)

    def flush(self) -> int:
        """Writes what has changed. Returns the number of timers."""
        new: dict[Key, tuple[Any, ...]] = {}
        gone: list[Key] = []
        removed: dict[StateName, list[Row]] = {}
        added: dict[StateName, list[Row]] = {}
        for key in self._written:
            timer, queued = self._set[key], self._queued[key]
            place = None if timer is None else self._place_of(held=timer.held)
            keeps = timer is not None and queued is not None and queued[0] == place and queued[1] <= timer.at_ms
            if queued is not None and not keeps:
                removed.setdefault(queued[0], []).append((queued[1], *row_of(key), self._name))
            if timer is None:
                gone.append(key)
                continue
            if not keeps:
                assert place is not None
                queued = (place, timer.at_ms)
                added.setdefault(place, []).append((timer.at_ms, *row_of(key), self._name))
            assert queued is not None
            new[key] = (timer.at_ms, queued[1], timer.row_ms, timer.held)
        for place, rows in removed.items():
            self._queues[place].delete_many(rows)
        for place, rows in added.items():
            self._queues[place].put_many(rows, [()] * len(rows))
        if new:
            self._state.put_many(new, new.values())
        if gone:
            self._state.delete_many(gone)
        count = len(self._written)
        for one in (self._set, self._queued, self._written):
            one.clear()
        return count

    # -- for the step --------------------------------------------------------------------------------------------------

    @override
    def set(self, at: dt.datetime) -> None:
        if not isinstance(at, dt.datetime):
            raise TypeError(f"the timer `{self._name}` is set to {show_value(at)}: give a datetime with an offset")
        if at.tzinfo is None:
            raise TypeError(
                f"the timer `{self._name}` is set to {show_value(at)}, which has no offset: give one in UTC"
            )
        scope = self._scope
        at_ms = -(-micros_of(at) // 1000)
        self._write(SetTimer(at_ms, scope.time_ms, scope.ending and self.clock != "clock"))
        if scope.rescheduled is not None:
            scope.rescheduled.append((self._name, scope.state_key))
        elif at_ms <= scope.watermark_ms and self.clock != "clock":
            scope.past_due = True

    @override
    def clear(self) -> None:
        self._write(None)

    @override
    def get(self) -> dt.datetime | None:
        self._scope.check()
        found = self._set[self._scope.state_key]
        return None if found is None else EPOCH + dt.timedelta(milliseconds=found.at_ms)

    def _write(self, timer: SetTimer | None) -> None:
        scope = self._scope
        scope.check()
        key = scope.state_key
        if self._touched != scope.row:
            self._touched = scope.row
            scope.undo.append((self._put, key, self._set[key]))
            self._written[key] = None
        self._set[key] = timer

    # -- for the runtime -----------------------------------------------------------------------------------------------

    def taken(self, place: StateName, at_ms: int, key: Key) -> SetTimer | None:
        """Notes that an entry has been taken from a queue, and returns the timer that it stands for."""
        if self._queued[key] != (place, at_ms):
            return None
        self._queued[key] = None
        self._written[key] = None
        return self._set[key]

    def fires(self, key: Key, at_ms: int) -> SetTimer | None:
        """Returns the timer of a key if it is still set to this time, and removes it."""
        found = self._set[key]
        if found is None or found.at_ms != at_ms:
            return None
        self._set[key] = None
        return found

    def peek(self, key: Key) -> SetTimer | None:
        """Returns the timer of a key."""
        return self._set[key]

    def _place_of(self, *, held: bool) -> StateName:
        return CLOCK_TIMERS if self.clock == "clock" else HELD_TIMERS if held else EVENT_TIMERS


class TimersRuntime(DueResultsRuntime, RowsRuntime):
    """Calls `process` for rows and `on_timer` for timers."""

    def __init__(self, operator: PythonOperator, slot: Slot) -> None:
        """Raises StepFailed."""
        self._timers: dict[str, TimerHandle] = {}
        self._queues: dict[StateName, TimeOrdered] = {}
        super().__init__(operator, slot)
        assert self._event_clock is not None, "a step with timers has one"
        self._clock = self._event_clock
        self._next_clock_ms: int | None = None
        self._knows_next = False
        self._results_timed = operator.timed or Requirement.EVENT_TIME in operator.planned.carries

    @override
    def _open_handles(self, slot: Slot) -> None:
        super()._open_handles(slot)
        for place in (EVENT_TIMERS, HELD_TIMERS, CLOCK_TIMERS):
            if place in self.states:
                state = cast("KeyedState[Any]", self.states[place])
                self._queues[place] = TimeOrdered(state, slot.own_groups)
        for one in self.operator.description.timers:
            state = cast("KeyedState[Any]", self.states[StateName(one.name)])
            self._timers[one.name] = TimerHandle(one, state, self._queues, self._scope)
        self._handles.update(self._timers)

    @property
    @override
    def gauges(self) -> Mapping[str, int]:
        return {"timers": sum(map(len, self._queues.values()))}

    @property
    @override
    def settled(self) -> bool:
        return not self._scope.past_due and super().settled

    @property
    @override
    def next_deadline_ms(self) -> int | None:
        if not self._knows_next:
            queue = self._queues.get(CLOCK_TIMERS)
            self._next_clock_ms = None if queue is None else queue.first_ms
            self._knows_next = True
        return self._next_clock_ms

    @override
    def advance(self, watermark_ms: int) -> None:
        super().advance(watermark_ms)
        self._scope.watermark_ms = max(self._scope.watermark_ms, watermark_ms)

    @override
    def before_snapshot(self) -> None:
        RowsRuntime.before_snapshot(self)

    @override
    def emit_due(self, watermark_ms: int, rows_max: int, out: Out) -> bool:  # its own limit applies, not `rows_max`
        ending = self._clock.ending
        return self._fire((EVENT_TIMERS,) if ending else (EVENT_TIMERS, HELD_TIMERS), watermark_ms, out, ending=ending)

    @override
    def on_time(self, now_ms: int, out: Out) -> bool:
        return self._fire((CLOCK_TIMERS,), now_ms, out)

    @override
    def poll(self, rows_max: int, out: Out) -> bool:
        """Fires timers that were set to a time that the watermark has passed already."""
        if self._scope.past_due and self._pending_ms is None:
            self._scope.past_due = self.emit_due(self._clock.watermark_ms, rows_max, out)
            return True
        return super().poll(rows_max, out)

    @override
    def _flush(self) -> None:
        super()._flush()
        self._knows_next = False

    # -- firing --------------------------------------------------------------------------------------------------------

    def _fire(self, places: Sequence[StateName], until_ms: int, out: Out, *, ending: bool = False) -> bool:
        """Fires timers that are due, in the order of their times. Returns True if more are due."""
        queues = [(place, self._queues[place]) for place in places if place in self._queues]
        taken: list[tuple[int, StateName, Row, str]] = []
        end_ms = until_ms + 1
        for place, queue in queues:
            rows = [row for row, _ in queue.take_due(until_ms, FIRED_AT_ONCE)]
            taken += [(row[0], place, row[1:-1], row[-1]) for row in rows if row[-1] in self._timers]  # or given up
            if len(rows) == FIRED_AT_ONCE:  # there may be more at the time of the last one
                end_ms = min(end_ms, rows[-1][0])
        if taken:
            self._load([_key_of(row) for _, _, row, _ in taken])
            due = _DueTimers(self._timers, end_ms)
            for at_ms, place, row, name in taken:
                due.add_taken(at_ms, place, name, _key_of(row))
            self._call(due, out, ending=ending)
        return any((first := queue.first_ms) is not None and first <= until_ms for _, queue in queues)

    def _call(self, due: _DueTimers, out: Out, *, ending: bool) -> None:
        """Calls `on_timer` for each of the timers, and for those that it sets meanwhile and that are due as well."""
        scope, emitted = self._scope, self._emitted
        scope.wall_ms = self._now_ms()
        failed: list[_FailedTimer] = []
        times: list[int] = []
        fired: list[tuple[int, Row]] = []
        first = scope.row + 1
        rescheduled: list[tuple[str, Key]] = []
        scope.begin()
        scope.ending, scope.rescheduled = ending, rescheduled
        try:
            while len(times) < FIRED_AT_ONCE and (one := due.take()) is not None:
                at_ms, name, key, timer = one
                scope.row += 1
                scope.state_key = key
                scope.time_ms = self._time_of_result(at_ms, timer, clock=self._timers[name].clock == "clock")
                scope.reached_ms = LOWEST if scope.time_ms is None else scope.time_ms
                times.append(scope.time_ms or 0)
                fired.append((at_ms, row_of(key)))
                try:
                    self._call_timer(name, at_ms)
                except (KeyboardInterrupt, TidegateError):  # as for rows
                    raise
                except BaseException as error:  # noqa: BLE001  # as for rows
                    scope.roll_back()
                    rescheduled.clear()
                    emitted.drop()
                    failed.append(_FailedTimer(key, name, at_ms, self._describe(error)))
                    continue
                scope.undo.clear()
                for other, other_key in rescheduled:
                    due.add_again(other, other_key, self._timers[name].clock)
                rescheduled.clear()
                if scope.emitted_many:
                    self._emit_results(times, first, out)
                if self._now_ms() - scope.wall_ms >= FIRING_MS:
                    break
        finally:
            scope.ending, scope.rescheduled = False, None
            scope.end()
        self._flush()
        if ending and fired:
            self._clock.fired([at_ms for at_ms, _ in fired], self._groups_of([row for _, row in fired]))
        if failed:
            self._fail(failed, out)
        self._emit_results(times, first, out)

    def _call_timer(self, name: str, at_ms: int) -> None:
        cast("Step", self._code).on_timer(name, EPOCH + dt.timedelta(milliseconds=at_ms), self._emitted)

    def _time_of_result(self, at_ms: int, timer: SetTimer, *, clock: bool) -> int | None:
        """Returns the event time of what a timer emits; None if rows have none."""
        if not self._results_timed:
            return None
        if not clock:
            return at_ms
        watermark_ms = self._scope.watermark_ms
        reached_ms = LOWEST if watermark_ms in (LOWEST, END_OF_TIME) else watermark_ms + 1
        return max(reached_ms, 0 if timer.row_ms is None else timer.row_ms)

    def _emit_results(self, times: Sequence[int], first: int, out: Out) -> None:
        """Emits what timers have emitted. `first`: the number of the first of them."""
        self._scope.emitted_many = False
        for name, columns, rows in self._emitted.take():
            if self._results_timed:
                columns.append(pl.Series(TIME, [times[row - first] for row in rows], dtype=pl.Int64))
                columns.append(pl.Series(BEHIND, [0] * len(rows), dtype=pl.Int64))
            self._send(name, pl.DataFrame(columns), out)

    def _fail(self, failed: Sequence[_FailedTimer], out: Out) -> None:
        """Reports timers whose call has raised as rows of their keys."""
        kinds = dict(self.operator.columns)
        values = zip(*(row_of(one.key) for one in failed), strict=True)
        keys = [
            make_column(name, kinds[name], list(column))
            for name, column in zip(self.operator.keys, values, strict=True)
        ]
        frame = pl.DataFrame([*keys, pl.Series(TIMER, [one.name for one in failed], dtype=pl.String)])
        told = [f"timer `{one.name}` of {_instant(one.at_ms)}: {one.message}" for one in failed]
        failures = [RecordFailure(place, FailureKind.PYTHON_FAILED, text) for place, text in enumerate(told)]
        out.fail(frame, failures, None)


class _FailedTimer(NamedTuple):
    key: Key
    name: str
    at_ms: int
    message: str


class _DueTimers:
    """Timers that fire in a call, in the order of their times; those of one key and time, in the order of their names.

    Timers that are set to a time from `end_ms` on do not fire in this call, because the queue may have others of that
    time that come before them. They go back to the queue.
    """

    def __init__(self, handles: Mapping[str, TimerHandle], end_ms: int) -> None:
        self._handles = handles
        self._end_ms = end_ms
        self._heap: list[tuple[int, str, int, Key]] = []
        self._count = 0

    def add_taken(self, at_ms: int, place: StateName, name: str, key: Key) -> None:
        """Adds the timer for which an entry of a queue was taken. It may have been postponed since."""
        timer = self._handles[name].taken(place, at_ms, key)
        if timer is not None and (timer.at_ms < self._end_ms or timer.at_ms == at_ms == self._end_ms):
            self._add(timer.at_ms, name, key)

    def add_again(self, name: str, key: Key, clock: str) -> None:
        """Adds a timer that the step has just set, if it is due as well."""
        handle = self._handles[name]
        timer = handle.peek(key)
        if timer is not None and handle.clock == clock and not timer.held and timer.at_ms < self._end_ms:
            self._add(timer.at_ms, name, key)

    def _add(self, at_ms: int, name: str, key: Key) -> None:
        self._count += 1
        heappush(self._heap, (at_ms, name, self._count, key))

    def take(self) -> tuple[int, str, Key, SetTimer] | None:
        """Removes and returns the next timer that is still set to its time."""
        while self._heap:
            at_ms, name, _, key = heappop(self._heap)
            timer = self._handles[name].fires(key, at_ms)
            if timer is not None:
                return at_ms, name, key, timer
        return None


def _key_of(row: Row) -> Key:
    return row[0] if len(row) == 1 else row


def _instant(at_ms: int) -> str:
    return (EPOCH + dt.timedelta(milliseconds=at_ms)).isoformat()
