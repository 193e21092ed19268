"""Keeps the arrivals of each key and a timer for its next result, and emits the results that the watermark reaches.

A timer may be earlier than the next result: rows that only postpone it do not move the timer. When it is due, the next
result is derived again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import polars as pl
from typing_extensions import override

from tidegate.formats.columns import TIMESTAMP, make_column
from tidegate.ids import StateName
from tidegate.operators.event_time import BEHIND, TIME, DueResultsRuntime
from tidegate.operators.kinds.quiet import LAST_AT, QUIET, REPEATS, TIMERS, QuietOperator
from tidegate.operators.lateness import LAST_MS, LateKeyedRuntime
from tidegate.operators.runtime import Out
from tidegate.operators.spec import Slot
from tidegate.state.base import Key, KeyedState
from tidegate.state.order import Row
from tidegate.state.snapshot import Value
from tidegate.state.time_ordered import TimeOrdered


class Arrivals(NamedTuple):
    """What is known about a key, from the event times of its rows.

    A key is quiet at an instant if the last row up to then is at least `for` older. Whether it is, is known once the
    watermark reaches the instant: every row up to there has arrived, and rows after it may have arrived as well. So the
    times of these rows are kept, and a result depends only on the rows, not on the order of their arrival.

    Of three times within `for`, the middle one is not needed: no row between them can make a difference. So at most two
    times per `for` are kept, however many rows arrive.
    """

    times: tuple[int, ...]
    """Event times of its rows, ascending. No result is due before the first one."""
    absences: int = 0
    """How often it has been declared quiet since the first one."""

    @property
    def waits_for_row(self) -> bool:
        """True if only another row can change that it is quiet."""
        return self.absences > 0 and len(self.times) == 1


class Result(NamedTuple):
    """A change of a key, or a repeated absence."""

    at_ms: int
    quiet: bool
    last_ms: int
    """The time of the last row before."""


class Silence(NamedTuple):
    """The settings of the step."""

    for_ms: int
    repeat_ms: int | None

    def add(self, arrivals: Arrivals, times: Iterable[int]) -> Arrivals:
        """Returns the arrivals with further rows, none of them earlier than what the watermark has passed."""
        kept = [*arrivals.times]
        for time in times:
            place = bisect_left(kept, time)
            if place < len(kept) and kept[place] == time:
                continue
            kept.insert(place, time)
            fixed = 1 if arrivals.absences else 0  # the time of the last row before the absence, and its successor
            for middle in (place + 1, place, place - 1):
                if fixed < middle < len(kept) - 1 and kept[middle + 1] - kept[middle - 1] <= self.for_ms:
                    del kept[middle]
        return Arrivals(tuple(kept), arrivals.absences)

    def derive_next(self, arrivals: Arrivals) -> Result | None:
        """Returns the next result if no further row arrives; None if there is none."""
        last, *rest = arrivals.times
        if not arrivals.absences:
            for time in rest:
                if time - last > self.for_ms:
                    break
                last = time
            return _within_calendar(Result(last + self.for_ms, quiet=True, last_ms=last))
        again = None
        if self.repeat_ms is not None:
            again = last + self.for_ms + arrivals.absences * self.repeat_ms
        if rest and (again is None or rest[0] <= again):
            return Result(rest[0], quiet=False, last_ms=last)
        return None if again is None else _within_calendar(Result(again, quiet=True, last_ms=last))

    def apply(self, arrivals: Arrivals, result: Result) -> Arrivals:
        """Returns the arrivals after their next result, which the watermark has reached."""
        if result.quiet:
            first = arrivals.times.index(result.last_ms)
            return Arrivals(arrivals.times[first:], arrivals.absences + 1)
        return Arrivals(arrivals.times[1:])

    def forget(self, arrivals: Arrivals, reached_ms: int) -> Arrivals:
        """Returns the arrivals without times that no result needs, now that no row up to an instant can follow."""
        times = arrivals.times
        if arrivals.absences:
            return arrivals
        first = 0
        while first + 1 < len(times) and times[first + 1] <= min(reached_ms, times[first] + self.for_ms):
            first += 1
        return Arrivals(times[first:])


def _within_calendar(result: Result) -> Result | None:
    return result if result.at_ms <= LAST_MS else None


RESULTS_AT_ONCE: Final = 2000
"""The maximum number of timers that fire in one call, and of results that they give."""


class QuietRuntime(DueResultsRuntime, LateKeyedRuntime[QuietOperator]):
    """Detects absence. Results of one watermark are in order of time within each call."""

    REASON = "late: the result of its key for this time has been decided"

    def __init__(self, operator: QuietOperator, slot: Slot) -> None:
        super().__init__(operator, slot)
        self._silence = Silence(operator.for_ms, operator.repeat_ms)
        self._timers = _Timers(
            {
                name: TimeOrdered(cast("KeyedState[Any]", self.states[name]), slot.own_groups)
                for name in (TIMERS, REPEATS)
            }
        )
        self._slot = slot

    @property
    @override
    def gauges(self) -> Mapping[str, int]:
        return {"timers": len(self._timers)}

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        batch = self.take_on_time(batch, out)
        if not batch.height:
            return
        times: dict[Key, set[int]] = {}
        for key, time in zip(self.keys_of(batch), batch[TIME].to_list(), strict=True):
            times.setdefault(key, set()).add(time)
        new: dict[Key, Value] = {}
        for key, value in self.look_up(list(times)).items():
            before = None if value is None else Arrivals(value[0], value[1])
            after = self._silence.add(before or Arrivals(()), sorted(times[key]))
            if before != after:
                new[key] = self._reschedule(key, value, after)
        self._put(new)

    # -- timers --------------------------------------------------------------------------------------------------------

    def _reschedule(self, key: Key, value: Value | None, arrivals: Arrivals) -> Value:
        """Moves the timer of a key if its next result may be earlier, and returns the value for the state."""
        timer_ms = None if value is None else value[2]
        place = None if timer_ms is None else _place_of(Arrivals(value[0], value[1]))  # type: ignore[index]  # as above
        due = self._silence.derive_next(arrivals)
        if due is not None and timer_ms is not None and place == _place_of(arrivals) and timer_ms <= due.at_ms:
            return (arrivals.times, arrivals.absences, timer_ms)
        if timer_ms is not None:
            assert place is not None
            self._timers.remove(place, (timer_ms, *self._row_of(key)))
        return self._schedule(key, arrivals, due)

    def _schedule(self, key: Key, arrivals: Arrivals, due: Result | None) -> Value:
        """Sets the timer of a key that has none, and returns the value for the state."""
        if due is None:
            return (arrivals.times, arrivals.absences, None)
        self._timers.put(_place_of(arrivals), (due.at_ms, *self._row_of(key)))
        return (arrivals.times, arrivals.absences, due.at_ms)

    def _row_of(self, key: Key) -> Row:
        return (key,) if len(self.operator.keys) == 1 else key

    def _put(self, new: Mapping[Key, Value]) -> None:
        self.state.put_many(new, new.values())
        self._timers.write()

    # -- results -------------------------------------------------------------------------------------------------------

    @override
    def emit_due(self, watermark_ms: int, rows_max: int, out: Out) -> bool:  # its own limit applies, not `rows_max`
        places = (TIMERS,) if self._clock.ending else (TIMERS, REPEATS)
        taken = self._timers.take_due(places, watermark_ms, RESULTS_AT_ONCE)
        if not taken:
            return False
        self._fire(taken, places, watermark_ms, out)
        return self._timers.has_due(places, watermark_ms)

    def _fire(self, taken: Sequence[Row], places: Sequence[StateName], watermark_ms: int, out: Out) -> None:
        """Emits the next results of each timer, and sets the timer of the one after them.

        After a jump of the watermark, which a clock can make, thousands of repeats are due for a single key. One in
        each call would be a batch each, so the keys share `RESULTS_AT_ONCE`.
        """
        results_max = max(1, RESULTS_AT_ONCE // len(taken))
        keys = [row[1] if len(row) == 2 else row[1:] for row in taken]
        results: list[tuple[Result, Row]] = []
        new: dict[Key, Value] = {}
        for key, value in zip(keys, self.state.get_many(keys), strict=True):
            assert value is not None, "a timer has arrivals"
            arrivals = self._silence.forget(Arrivals(value[0], value[1]), watermark_ms)
            row = self._row_of(key)
            due = self._silence.derive_next(arrivals)
            for _ in range(results_max):
                if due is None or due.at_ms > watermark_ms or _place_of(arrivals) not in places:
                    break
                results.append((due, row))
                arrivals = self._silence.forget(self._silence.apply(arrivals, due), watermark_ms)
                due = self._silence.derive_next(arrivals)
            new[key] = self._schedule(key, arrivals, due)
        self._put(new)
        if self._clock.ending:
            self._clock.fired([one.at_ms for one, _ in results], self.groups_of([row for _, row in results]))
        results.sort(key=_time_of)
        self._emit(results, out)

    def _emit(self, results: Sequence[tuple[Result, Row]], out: Out) -> None:
        if not results:
            return
        found, rows = zip(*results, strict=True)
        operator = self.operator
        kinds = dict(operator.columns)
        columns = {
            key: make_column(key, kinds[key], list(values))
            for key, values in zip(operator.keys, zip(*rows, strict=True), strict=True)
        }
        columns[QUIET] = pl.Series(QUIET, [one.quiet for one in found], dtype=pl.Boolean)
        last_ms = pl.Series(LAST_AT, [one.last_ms for one in found], dtype=pl.Int64)
        columns[LAST_AT] = (last_ms * 1000).cast(TIMESTAMP)
        frame = pl.DataFrame(
            [
                *(columns[name] for name in self._output),
                pl.Series(TIME, [one.at_ms for one in found], dtype=pl.Int64),
                pl.Series(BEHIND, [0] * len(found), dtype=pl.Int64),
            ]
        )
        for part in self._slot.cut(frame):
            out.emit(part)


def _place_of(arrivals: Arrivals) -> StateName:
    """Returns the state that the timer of a key is in."""
    return REPEATS if arrivals.waits_for_row else TIMERS


def _time_of(result: tuple[Result, Row]) -> int:
    return result[0].at_ms


class _Timers:
    """The timers of both states. Changes are collected and written together."""

    def __init__(self, states: Mapping[StateName, TimeOrdered]) -> None:
        self._states = states
        self._removed: dict[StateName, list[Row]] = {name: [] for name in states}
        self._new: dict[StateName, list[Row]] = {name: [] for name in states}

    def __len__(self) -> int:
        return sum(map(len, self._states.values()))

    def put(self, place: StateName, row: Row) -> None:
        """Sets a timer."""
        self._new[place].append(row)

    def remove(self, place: StateName, row: Row) -> None:
        """Removes a timer."""
        self._removed[place].append(row)

    def write(self) -> None:
        """Writes the collected changes: at most one of each kind per key."""
        for name, state in self._states.items():
            if self._removed[name]:
                state.delete_many(self._removed[name])
                self._removed[name] = []
            if self._new[name]:
                state.put_many(self._new[name], [()] * len(self._new[name]))
                self._new[name] = []

    def take_due(self, places: Sequence[StateName], until_ms: int, limit: int) -> list[Row]:
        """Removes and returns at most `limit` timers."""
        taken: list[Row] = []
        for state in (self._states[place] for place in places):
            if len(taken) < limit:
                taken += [row for row, _ in state.take_due(until_ms, limit - len(taken))]
        return taken

    def has_due(self, places: Sequence[StateName], until_ms: int) -> bool:
        """Returns whether a timer is due."""
        firsts = [self._states[place].first_ms for place in places]
        return any(first is not None and first <= until_ms for first in firsts)
