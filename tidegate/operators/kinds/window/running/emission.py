"""Results as rows: keys, window, aggregates, and the event time that they have downstream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import polars as pl

from tidegate.datatypes import FIRST_MOMENT, LAST_MOMENT
from tidegate.formats.bisection import evaluate_rows, first_line, internal_failure
from tidegate.formats.columns import TIMESTAMP, polars_type
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.sizes import cut_frame
from tidegate.operators.aggregates.contract import AggregateTooLarge
from tidegate.operators.runtime import Out
from tidegate.operators.spec import Columns

START: Final = "window_start"
END: Final = "window_end"
DELETED: Final = "_deleted"
"""The column that marks a result as deleted."""

ResultsOf = Callable[[int, int], list[pl.Series]]
"""Computes the result columns of a range of rows. Raises as Aggregate.results does."""


class EmissionBudget(NamedTuple):
    """What the operators downstream in the vertex take at a time (see `Slot`)."""

    rows_max: int
    bytes_max: int

    def cut(self, frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Yields the rows in parts, at least one in each."""
        return cut_frame(frame, self.rows_max, self.bytes_max)


_NOTHING: Final = pl.Series("__tidegate_behind", [0], dtype=pl.Int64)


def emit_results(
    keyed: pl.DataFrame,
    starts_ms: pl.Series,
    ends_ms: pl.Series,
    results_of: ResultsOf,
    names: Sequence[str],
    out: Out,
    room: EmissionBudget,
) -> None:
    """Emits results in the order of their keys. `starts_ms` and `ends_ms` are instants; `names` are the output columns.

    A result whose aggregate cannot be computed (a sum that overflows) fails alone, and so does one whose window does
    not fit in a timestamp. Results that keep values may be large, so they are emitted in parts that fit.
    """
    frame = keyed.hstack(_times_of(starts_ms, ends_ms))
    whole, raising = evaluate_rows(frame.height, results_of)
    if raising:
        out.fail(frame, [derive_failure(row, error) for row, error in raising], None)
        bad = {row for row, _ in raising}
        frame = frame[[row for row in range(frame.height) if row not in bad]]
        if not frame.height:
            return
    results = [pl.concat(pieces) for pieces in zip(*(columns for _, columns in whole), strict=True)]
    columns = {column.name: column for column in (*frame.get_columns(), *results)}
    whole_frame = pl.DataFrame([columns[name] for name in (*names, "__tidegate_time", "__tidegate_behind")])
    inside = _in_calendar(whole_frame)
    if inside is not None:
        failures = [_outside(row, whole_frame) for row in (~inside).arg_true()]
        out.fail(whole_frame, failures, None)
        whole_frame = whole_frame.filter(inside)
    for part in room.cut(whole_frame):
        out.emit(part)


def derive_failure(row: int, error: BaseException) -> RecordFailure:
    """Returns the failure of a row whose results raised `error`."""
    if isinstance(error, OverflowError):
        return RecordFailure(row, FailureKind.ARITHMETIC_OVERFLOW, first_line(error))
    if isinstance(error, AggregateTooLarge):
        return RecordFailure(row, FailureKind.RESULT_TOO_LARGE, first_line(error))
    return internal_failure(row, error)


def emit_deletes(keyed: pl.DataFrame, starts_ms: pl.Series, ends_ms: pl.Series, output: Columns, out: Out) -> None:
    """Emits rows that retract the results of these keys and windows, without values."""
    made = {column.name: column for column in (*keyed.get_columns(), *_times_of(starts_ms, ends_ms))}
    made[DELETED] = pl.repeat(True, keyed.height, dtype=pl.Boolean, eager=True).alias(DELETED)
    columns = [
        made[name] if name in made else pl.Series(name, [None] * keyed.height, dtype=polars_type(kind))
        for name, kind in output
    ]
    frame = pl.DataFrame([*columns, made["__tidegate_time"], made["__tidegate_behind"]])
    inside = _in_calendar(frame)
    out.emit(frame if inside is None else frame.filter(inside))


def _in_calendar(frame: pl.DataFrame) -> pl.Series | None:
    """Returns which windows are within the years 1 to 9999; None if all are."""
    starts, ends = frame[START].cast(pl.Int64), frame[END].cast(pl.Int64)
    inside = (starts >= FIRST_MOMENT) & (ends <= LAST_MOMENT)
    return None if inside.all() else inside


def _outside(row: int, frame: pl.DataFrame) -> RecordFailure:
    start_ms, end_ms = (frame[name].to_physical()[row] // 1000 for name in (START, END))
    text = f"the window begins before the year 1 or ends after 9999: from {start_ms} to {end_ms} ms since 1970"
    return RecordFailure(row, FailureKind.EVENT_TIME_OUT_OF_RANGE, text)


def _times_of(starts_ms: pl.Series, ends_ms: pl.Series) -> list[pl.Series]:
    """Returns the window columns and the event time of their results."""
    moment = pl.Datetime("ms", "UTC")
    return [
        starts_ms.cast(moment).cast(TIMESTAMP).alias(START),
        ends_ms.cast(moment).cast(TIMESTAMP).alias(END),
        (ends_ms - 1).alias("__tidegate_time"),
        _NOTHING.new_from_index(0, len(ends_ms)),
    ]
