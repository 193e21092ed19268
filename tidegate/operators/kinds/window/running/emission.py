"""Results as rows: keys, window, aggregates, and the event time that they have downstream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import polars as pl

from tidegate.formats.bisection import evaluate_rows
from tidegate.formats.columns import TIMESTAMP
from tidegate.operators.aggregation.contract import derive_failure
from tidegate.operators.runtime import Out

START: Final = "window_start"
END: Final = "window_end"

ResultsOf = Callable[[int, int], list[pl.Series]]
"""The result columns of some of the rows. Raises as MergeableAggregate.results."""


def emit_results(
    keyed: pl.DataFrame,
    starts_ms: pl.Series,
    ends_ms: pl.Series,
    results_of: ResultsOf,
    names: Sequence[str],
    out: Out,
) -> None:
    """Results in the order of their keys. `starts_ms` and `ends_ms` are instants; `names` the columns.

    One whose aggregate has no result (a sum that overflows) fails alone.
    """
    moment = pl.Datetime("ms", "UTC")
    frame = keyed.hstack(
        [
            starts_ms.cast(moment).cast(TIMESTAMP).alias(START),
            ends_ms.cast(moment).cast(TIMESTAMP).alias(END),
            (ends_ms - 1).alias("__time"),
            pl.zeros(keyed.height, pl.Int64, eager=True).alias("__behind"),
        ]
    )
    whole, raising = evaluate_rows(frame.height, results_of)
    if raising:
        out.fail(frame, [derive_failure(row, error) for row, error in raising])
        bad = {row for row, _ in raising}
        frame = frame[[row for row in range(frame.height) if row not in bad]]
        if not frame.height:
            return
    results = [pl.concat(pieces) for pieces in zip(*(columns for _, columns in whole), strict=True)]
    columns = {column.name: column for column in (*frame.get_columns(), *results)}
    out.emit(pl.DataFrame([columns[name] for name in (*names, "__time", "__behind")]))
