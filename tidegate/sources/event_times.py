"""The event time of every row (`__tidegate_time`), and how late it came (`__tidegate_behind`): see ADR 34.

When the row was read, the watermark of its own partition had passed everything before `__tidegate_time +
__tidegate_behind`; 0 if it had not passed the row. From this, every downstream operator can decide whether a row was
late, independently of batches, slots and restarts: lateness is a property of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar

import polars as pl

from tidegate.config.fields.units import render_duration
from tidegate.datatypes import FIRST_MOMENT, LAST_MOMENT, TIMESTAMP
from tidegate.expressions.compiled import compile_projection
from tidegate.formats.contract import Decoded, Messages
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.operators.builtin.kafka_source import EventTime, SourceOperator
from tidegate.operators.rowwise import Apply, apply_to_rows

FIRST_MS: Final = FIRST_MOMENT // 1000
LAST_MS: Final = LAST_MOMENT // 1000
"""The years 1 to 9999: the range of a timestamp column."""
YEAR_1971_MS: Final = 31_536_000_000
"""Earlier times are mostly numbers in another unit than declared, or defaults of a producer."""

T = TypeVar("T")
Rows = Sequence[int] | None
"""Indices of the good records among the messages; None if all are good."""


class Timed(NamedTuple):
    """Good rows with exactly the source's output columns, the failures, and the event times of the good rows."""

    decoded: Decoded
    good: Rows
    times: pl.Series


class EventTimes:
    """The event times of one source."""

    def __init__(self, event_time: EventTime, operator: SourceOperator) -> None:
        self._text = event_time.text
        self._column = event_time.column
        computed, columns = event_time.expression, dict(operator.columns)
        self._compute = None if computed is None else compile_projection([("__tidegate_time", computed)]).apply
        kind = columns.get(self._column or "") if computed is None else computed.type
        self._per_ms = 1000 if kind == TIMESTAMP else 1
        self._ahead_ms = event_time.ahead_ms
        self._only_read = sorted(event_time.reads - dict(operator.pruned_columns()).keys())
        self.before_1971 = 0
        """Good rows so far with an event time before 1971."""

    def read(self, decoded: Decoded, messages: Messages, good: Rows) -> Timed:
        """Reads the event times of decoded rows; a record without a usable one is bad."""
        if self._compute is None:
            found = self._judge(decoded, self._times(decoded.frame, messages, good), messages, good)
        else:
            found = self._judge(*self._computed(self._compute, decoded, messages, good))
        first = found.times.min()
        if isinstance(first, int) and first < YEAR_1971_MS:
            self.before_1971 += int((found.times < YEAR_1971_MS).sum())
        return found

    def _judge(self, decoded: Decoded, times: pl.Series, messages: Messages, good: Rows) -> Timed:
        """Removes rows without a usable time, and columns that were read only to compute it."""
        frame = decoded.frame
        if self._only_read:
            frame = frame.clone()  # copies no data; `drop` is a query, which costs as much as decoding twenty records
            for name in self._only_read:
                frame.drop_in_place(name)
        bad = self._find_bad(times, messages, good)
        if bad is None:
            return Timed(Decoded(frame, decoded.failures), good, times)
        places = range(len(times)) if good is None else good
        stamps = messages.timestamps_ms
        refused = [
            self._failure(places[index], times[index], stamps[places[index]]) for index in bad.arg_true().to_list()
        ]
        failures = sorted([*decoded.failures, *refused], key=attrgetter("row"))
        left = [place for place, wrong in zip(places, bad.to_list(), strict=True) if not wrong]
        return Timed(Decoded(frame.filter(~bad), failures), left, times.filter(~bad))

    def _computed(
        self, compute: Apply, decoded: Decoded, messages: Messages, good: Rows
    ) -> tuple[Decoded, pl.Series, Messages, Rows]:
        """Computes the times by the expression, without the rows for which it fails."""
        frame = decoded.frame
        made, failed = apply_to_rows(frame, compute)
        times = self._in_ms(made["__tidegate_time"])
        if not failed:
            return decoded, times, messages, good
        places = range(frame.height) if good is None else good
        failures = [RecordFailure(places[one.row], one.kind, f"the event time: {one.message}") for one in failed]
        wrong = {one.row for one in failed}
        left = [index for index in range(frame.height) if index not in wrong]
        failures = sorted([*decoded.failures, *failures], key=attrgetter("row"))
        return Decoded(frame[left], failures), times, messages, [places[index] for index in left]

    def _times(self, frame: pl.DataFrame, messages: Messages, good: Rows) -> pl.Series:
        if self._column is None:
            return pl.Series("__tidegate_time", choose(messages.timestamps_ms, good), dtype=pl.Int64)
        return self._in_ms(frame[self._column])

    def _in_ms(self, moments: pl.Series) -> pl.Series:
        if self._per_ms == 1:
            return moments.alias("__tidegate_time")
        return (moments.cast(pl.Int64) // self._per_ms).alias("__tidegate_time")

    def _find_bad(self, times: pl.Series, messages: Messages, good: Rows) -> pl.Series | None:
        """Returns None if all are good."""
        bad = _find_bad(times)
        if self._ahead_ms is None:
            return bad
        latest = pl.Series(choose(messages.timestamps_ms, good), dtype=pl.Int64) + self._ahead_ms
        ahead = (times > latest).fill_null(value=False)
        if bad is not None:
            return bad | ahead
        return ahead if ahead.any() else None

    def _failure(self, row: int, at_ms: int | None, stamp_ms: int | None) -> RecordFailure:
        name = f"`{self._text}`" if self._text else "its Kafka timestamp"
        if at_ms is not None and in_calendar(at_ms, at_ms) and stamp_ms is not None and self._ahead_ms is not None:
            text = (
                f"the event time, {name}, is {render_duration(at_ms - stamp_ms)} after the record's Kafka timestamp: "
                f"`watermark.ahead` is {render_duration(self._ahead_ms)}"
            )
            return RecordFailure(row, FailureKind.EVENT_TIME_OUT_OF_RANGE, text)
        if at_ms is not None:
            text = f"the event time, {name}, is before the year 1 or after 9999: {at_ms} ms since 1970"
            return RecordFailure(row, FailureKind.EVENT_TIME_OUT_OF_RANGE, text)
        if self._text:
            return RecordFailure(row, FailureKind.NO_EVENT_TIME, f"the event time, {name}, is NULL")
        text = "the record has no Kafka timestamp, and the source sets no `event_time`"
        return RecordFailure(row, FailureKind.NO_EVENT_TIME, text)


def _find_bad(times: pl.Series) -> pl.Series | None:
    """Returns where the time is NULL or outside the calendar; None if all are good."""
    if not times.null_count() and (times.is_empty() or in_calendar(times.min(), times.max())):
        return None
    return ~times.is_between(FIRST_MS, LAST_MS).fill_null(value=False)


def in_calendar(first: object, last: object) -> bool:
    """Returns whether all times between two bounds lie in the years 1 to 9999; False if there are no times."""
    return isinstance(first, int) and isinstance(last, int) and first >= FIRST_MS and last <= LAST_MS


def choose(values: Sequence[T], good: Rows) -> Sequence[T]:
    """Returns the values of the good records."""
    return values if good is None else [values[row] for row in good]
