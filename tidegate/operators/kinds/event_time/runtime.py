"""Computes the event time of rows and how late they are, and answers watermarks that arrive with its own (W23)."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, Final

import polars as pl
from typing_extensions import override

from tidegate.config.fields.records import Idle
from tidegate.config.fields.units import render_duration
from tidegate.datatypes import TIMESTAMP
from tidegate.expressions.compiled import compile_projection
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.operators.kinds.event_time import MARKS, PARTITION, TIMES, TOPIC, EventTimeOperator
from tidegate.operators.lateness import FIRST_MS, LAST_MS, measure_behind
from tidegate.operators.rowwise import apply_to_rows, without_failed
from tidegate.operators.runtime import END_OF_TIME, LOWEST, OperatorRuntime, Out, system_columns
from tidegate.operators.spec import Slot
from tidegate.state.operator_list import OperatorList

PAIRS_MAX: Final = 1000
"""The maximum number of pairs. Beyond it every second one is dropped: the watermark then follows in larger steps."""
_BEFORE: Final = itemgetter(0)

Pair = tuple[int, int]
"""The event time of a row before the step, and after it."""


class EventTimeProgress:
    """The watermark of an `event_time` step: the pairs of times of one subtask, ascending in both.

    Rows have an event time before the step, and another one after it. The watermarks that arrive say how complete the
    rows are by the former: when one arrives, all rows up to it are here. The highest new time of these rows, less the
    delay, is the watermark of the step. So it does not depend on how far one partition has been read ahead of another,
    and it needs no idleness of its own.

    Rows after the watermark wait for it as pairs of both times. A pair matters only if its new time is higher than that
    of every pair before it.
    """

    def __init__(self, lag_ms: int) -> None:
        """`lag_ms`: how far the watermark is behind the highest time."""
        self._lag_ms = lag_ms
        self._pairs: list[Pair] = []

    @property
    def pairs(self) -> Sequence[Pair]:
        """What a restart needs: the pair that the watermark is of, and those after it."""
        return self._pairs

    def add(self, pairs: Iterable[Pair]) -> None:
        """Adds rows, in any order."""
        kept = self._pairs
        for before_ms, time_ms in pairs:
            if not kept or (kept[-1][0] < before_ms and kept[-1][1] < time_ms):
                kept.append((before_ms, time_ms))
                continue
            place = bisect_right(kept, before_ms, key=_BEFORE)
            if place and kept[place - 1][1] >= time_ms:
                continue
            end = place
            while end < len(kept) and kept[end][1] <= time_ms:
                end += 1
            if place and kept[place - 1][0] == before_ms:
                place -= 1
            kept[place:end] = [(before_ms, time_ms)]
        while len(kept) > PAIRS_MAX:
            kept[:-1] = kept[:-1:2]

    def reach(self, watermark_ms: int) -> int:
        """Returns the step's watermark at a watermark that has arrived; LOWEST if no row has come up to there.

        Rows of the next instant count as well. They may not be complete, but those that follow are not before them.
        """
        passed = bisect_right(self._pairs, watermark_ms + 1, key=_BEFORE)
        if not passed:
            return LOWEST
        del self._pairs[: passed - 1]
        return self._pairs[0][1] - self._lag_ms


logger = logging.getLogger(__name__)

CLOCK_INTERVAL_MS: Final = 1000
"""How often the watermark follows the clock."""

Origin = tuple[str, int]
"""Topic, empty if there is only one, and partition."""


class EventTimeRuntime(OperatorRuntime):
    """One subtask. Its own watermark begins at the lowest in every attempt, as those that arrive do."""

    def __init__(self, operator: EventTimeOperator, slot: Slot) -> None:  # noqa: ARG002  # as all are opened
        self._operator = operator
        self._output = [name for name, _ in operator.pruned_columns()]
        self._compute = compile_projection([(TIME, operator.expression)]).apply
        self._per_ms = 1000 if operator.expression.type == TIMESTAMP else 1
        self._lag_ms = operator.delay_ms + 1
        self._follows_clock = operator.idle is Idle.WALL_CLOCK
        self._times = OperatorList[Any](operator.name, TIMES)
        self._marks = OperatorList[Any](operator.name, MARKS)
        self.states = {state.declaration.name: state for state in (self._times, self._marks)}
        self._progress = EventTimeProgress(self._lag_ms)
        self._watermarks: dict[Origin, int] = {}
        """By partition of the source."""
        self._restored = False
        self._input_ms = LOWEST
        """The watermark that has arrived."""
        self._sent_ms = LOWEST
        self._input_idle = False
        self._resumed = False
        """Active again, and no watermark has arrived since: the next one is waited for (ADR 52), so that it is answered
        even if the own watermark is still the same.
        """
        self._clock_at_ms = 0

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self._restore()
        made, failures = apply_to_rows(batch, self._compute)
        failures = [RecordFailure(one.row, one.kind, f"the event time: {one.message}") for one in failures]
        good = without_failed(batch, failures) if failures else batch
        times = self._in_ms(made[TIME])
        bad = ~times.is_between(FIRST_MS, LAST_MS).fill_null(value=False)
        if self._operator.ahead_ms is not None:
            bad |= (times - good[TIME] > self._operator.ahead_ms).fill_null(value=False)
        if bad.any():
            places = _good_places(batch.height, failures)
            failures += [
                self._failure(places[index], times[index], good[TIME][index]) for index in bad.arg_true().to_list()
            ]
            good, times = good.filter(~bad), times.filter(~bad)
        if failures:
            out.fail(batch, sorted(failures, key=lambda one: one.row))
        if good.height:
            self._progress.add(_pairs(good[TIME], times))
            timed = good.select(*self._output, *system_columns(good)).with_columns(
                times.alias(TIME), self._behind(good, times)
            )
            out.emit(timed)
            self._advance(out)

    @override
    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        self._restore()
        if watermark_ms == END_OF_TIME:
            out.watermark(END_OF_TIME)
            return
        self._input_ms = watermark_ms
        if not self._advance(out) and self._resumed and self._sent_ms != LOWEST:
            out.watermark(self._sent_ms)
        self._resumed = False

    @override
    def on_status(self, idle: bool, out: Out) -> None:
        """Is idle while the input is, so that its watermark is not waited for (W06), unless it follows the clock."""
        self._input_idle, self._resumed = idle, not idle
        if not self._follows_clock:
            out.status(idle)

    @override
    def on_time(self, now_ms: int, out: Out) -> bool:
        self._clock_at_ms = now_ms + CLOCK_INTERVAL_MS
        self._sent_ms = max(self._sent_ms, now_ms - self._lag_ms)
        out.watermark(self._sent_ms)
        return False

    @property
    @override
    def next_deadline_ms(self) -> int | None:
        return self._clock_at_ms if self._follows_clock and self._input_idle else None

    @override
    def before_snapshot(self) -> None:
        self._restore()
        written = self._operator.written
        for state, values in (
            (self._times, tuple((written, *pair) for pair in self._progress.pairs)),
            (self._marks, tuple((written, *origin, mark) for origin, mark in sorted(self._watermarks.items()))),
        ):
            if values != state.values:
                state.replace(values)

    def _advance(self, out: Out) -> bool:
        """Sends its own watermark if it has grown. Returns whether it has."""
        if self._input_ms == LOWEST:
            return False
        own_ms = self._progress.reach(self._input_ms)
        if own_ms <= self._sent_ms:
            return False
        self._sent_ms = own_ms
        out.watermark(own_ms)
        return True

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _in_ms(self, moments: pl.Series) -> pl.Series:
        return moments if self._per_ms == 1 else moments.cast(pl.Int64) // self._per_ms

    def _failure(self, row: int, at_ms: int | None, before_ms: int) -> RecordFailure:
        name = f"`{self._operator.written}`"
        if at_ms is None:
            return RecordFailure(row, FailureKind.NO_EVENT_TIME, f"the event time, {name}, is NULL")
        if FIRST_MS <= at_ms <= LAST_MS and self._operator.ahead_ms is not None:
            text = (
                f"the event time, {name}, is {render_duration(at_ms - before_ms)} after the one that the record had "
                f"before: `watermark.ahead` is {render_duration(self._operator.ahead_ms)}"
            )
        else:
            text = f"the event time, {name}, is before the year 1 or after 9999: {at_ms} ms since 1970"
        return RecordFailure(row, FailureKind.EVENT_TIME_OUT_OF_RANGE, text)

    def _behind(self, rows: pl.DataFrame, times: pl.Series) -> pl.Series:
        """Returns by how much the watermark of its partition had passed each row; 0 where partitions have no order."""
        by = self._operator.partition
        if not by:
            return pl.repeat(0, rows.height, dtype=pl.Int64, eager=True).alias(BEHIND)
        distinct = rows.select(*by).unique()
        parts = self._origins_of(distinct)
        place_of = {part: place for place, part in enumerate(parts)}
        places = [0] * rows.height if len(parts) == 1 else [place_of[part] for part in self._origins_of(rows)]
        marks = [self._watermarks.get(part, LOWEST) for part in parts]
        behind = measure_behind(times, places, marks, self._operator.delay_ms)
        self._watermarks.update(zip(parts, marks, strict=True))
        return behind

    def _origins_of(self, rows: pl.DataFrame) -> list[Origin]:
        """Returns the partition of each row."""
        topics = rows[TOPIC].to_list() if TOPIC in self._operator.partition else [""] * rows.height
        return list(zip(topics, rows[PARTITION].to_list(), strict=True))

    def _restore(self) -> None:
        """Reads the states once. Times of another expression are of no use."""
        if self._restored:
            return
        self._restored = True
        written = self._operator.written
        others = {text for text, *_ in (*self._times.values, *self._marks.values)} - {written}
        if others:
            logger.warning(
                "step %s: its event time is now %s and was %s: its watermarks start anew",
                self._operator.name,
                written,
                ", ".join(sorted(others)),
            )
        self._progress.add((before, time) for text, before, time in self._times.values if text == written)
        for text, topic, partition, mark in self._marks.values:
            if text == written:
                origin = (topic, partition)
                self._watermarks[origin] = max(mark, self._watermarks.get(origin, LOWEST))


def _good_places(height: int, failures: Sequence[RecordFailure]) -> Sequence[int]:
    """Returns the places of the rows that have not failed."""
    failed = {one.row for one in failures}
    return range(height) if not failed else [place for place in range(height) if place not in failed]


def _pairs(before: pl.Series, times: pl.Series) -> list[tuple[int, int]]:
    """Returns the pairs of a batch that matter, in order."""
    found = (
        pl.DataFrame([before.alias("before"), times.alias("time")])
        .group_by("before")
        .agg(pl.col("time").max())
        .sort("before")
        .filter(pl.col("time") > pl.col("time").cum_max().shift(1).fill_null(LOWEST))
    )
    return list(zip(found["before"].to_list(), found["time"].to_list(), strict=True))
