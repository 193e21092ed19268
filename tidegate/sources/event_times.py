"""The event time of every row (`__time`), and how late it came (`__behind`): see ADR 34.

When the row was read, the watermark of its own partition had passed everything before `__time + __behind`; 0 where it
had not passed the row. With it every operator downstream can say whether a row was late, whatever batches, slots and
restarts lie in between: it is a property of the log.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar

import polars as pl

from tidegate.datatypes import FIRST_MOMENT, LAST_MOMENT, TIMESTAMP
from tidegate.formats.contract import Decoded, Messages
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.operators.kinds.kafka_source import EventTime, SourceOperator

FIRST_MS: Final = FIRST_MOMENT // 1000
LAST_MS: Final = LAST_MOMENT // 1000
"""The years 1 to 9999: what a timestamp column can hold."""
_FLOOR: Final = -(1 << 62)
"""Below every watermark, and far enough from the end of the type to be subtracted from."""

T = TypeVar("T")
Rows = Sequence[int] | None
"""Places of the good records among the messages; None: all are good."""


class Timed(NamedTuple):
    """Good rows with exactly the columns of the source's output, what was refused, and the times of the good rows."""

    decoded: Decoded
    good: Rows
    times: pl.Series


class EventTimes:
    """Of one source."""

    def __init__(self, event_time: EventTime, operator: SourceOperator) -> None:
        self._column = column = event_time.column
        self._per_ms = 1000 if column is not None and dict(operator.columns)[column] == TIMESTAMP else 1
        self._only_read = column is not None and column not in dict(operator.output)

    def read(self, decoded: Decoded, messages: Messages, good: Rows) -> Timed:
        """The times of what was decoded; a record without a usable one is bad."""
        times = self._times(decoded.frame, messages, good)
        frame = decoded.frame.drop(self._column) if self._only_read and self._column else decoded.frame
        bad = _find_bad(times)
        if bad is None:
            return Timed(Decoded(frame, decoded.failures), good, times)
        places = range(len(times)) if good is None else good
        refused = [self._failure(places[index], times[index]) for index in bad.arg_true().to_list()]
        failures = sorted([*decoded.failures, *refused], key=attrgetter("row"))
        left = [place for place, wrong in zip(places, bad.to_list(), strict=True) if not wrong]
        return Timed(Decoded(frame.filter(~bad), failures), left, times.filter(~bad))

    def _times(self, frame: pl.DataFrame, messages: Messages, good: Rows) -> pl.Series:
        if self._column is None:
            return pl.Series("__time", choose(messages.timestamps_ms, good), dtype=pl.Int64)
        moments = frame[self._column].to_physical()
        return (moments if self._per_ms == 1 else moments // self._per_ms).alias("__time")

    def _failure(self, row: int, at_ms: int | None) -> RecordFailure:
        name = "its Kafka timestamp" if self._column is None else f"`{self._column}`"
        if at_ms is not None:
            text = f"the event time, {name}, is before the year 1 or after 9999: {at_ms} ms since 1970"
            return RecordFailure(row, FailureKind.EVENT_TIME_OUT_OF_RANGE, text)
        if self._column is not None:
            return RecordFailure(row, FailureKind.NO_EVENT_TIME, f"the event time, {name}, is NULL")
        text = "the record has no Kafka timestamp, which is its event time while `event_time` names no column"
        return RecordFailure(row, FailureKind.NO_EVENT_TIME, text)


def _find_bad(times: pl.Series) -> pl.Series | None:
    """Where there is none, or one that no calendar has; None where all are good."""
    if not times.null_count() and (times.is_empty() or in_calendar(times.min(), times.max())):
        return None
    return ~times.is_between(FIRST_MS, LAST_MS).fill_null(value=False)


def in_calendar(first: object, last: object) -> bool:
    """Whether all times from one to another are in the years 1 to 9999; not where there are none."""
    return isinstance(first, int) and isinstance(last, int) and first >= FIRST_MS and last <= LAST_MS


def choose(values: Sequence[T], good: Rows) -> Sequence[T]:
    """Those of the good records."""
    return values if good is None else [values[row] for row in good]


def measure_behind(
    times: pl.Series, origins: Sequence[Hashable], marks: dict[Hashable, int], delay_ms: int
) -> pl.Series:
    """`__behind` of rows in offset order within each origin. `marks`: the watermark of each origin, moved by the rows.

    Rows of one origin take 20 ns each, of several 75: a plain loop, since grouping by expressions takes 250 and more.
    """
    lag_ms = delay_ms + 1
    if times.is_empty():
        return pl.Series("__behind", [], dtype=pl.Int64)
    if len(marks) == 1:
        ((origin, mark),) = marks.items()
        start = pl.Series("__behind", [max(mark, _FLOOR)], dtype=pl.Int64)
        reached = pl.concat([start, (times - lag_ms).alias("__behind")]).cum_max()
        marks[origin] = reached[-1]
        return (reached.head(len(times)) + 1 - times).clip(lower_bound=0)
    behind: list[int] = []
    add = behind.append
    for origin, time_ms in zip(origins, times.to_list(), strict=True):
        late_ms = marks[origin] + 1 - time_ms
        if late_ms > 0:
            add(late_ms)
        else:
            add(0)
            if late_ms <= -lag_ms:
                marks[origin] = time_ms - lag_ms
    return pl.Series("__behind", behind, dtype=pl.Int64)
