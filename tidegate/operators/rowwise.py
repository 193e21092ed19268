"""Operators that process each row on its own: a function of a batch, with failed rows reported individually.

Imported only where operators run, because it imports Polars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import starmap

import polars as pl
from typing_extensions import override

from tidegate.formats.bisection import evaluate_rows, internal_failure
from tidegate.formats.failures import RecordFailure, gather_failures
from tidegate.operators.runtime import OperatorRuntime, Out

Apply = Callable[[pl.DataFrame], tuple[pl.DataFrame, list[RecordFailure]]]
"""Maps rows to rows, in order, and to the failed rows by index."""


class RowWise(OperatorRuntime):
    """The runtime of filter and select: applies `apply` to every batch. A row that makes it raise fails by itself."""

    def __init__(self, apply: Apply) -> None:
        self._apply = apply

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        result, failures = apply_to_rows(batch, self._apply)
        if failures:
            out.fail(batch, failures)
        out.emit(result)


def without_failed(frame: pl.DataFrame, failures: Iterable[RecordFailure]) -> pl.DataFrame:
    """Returns the rows that have not failed."""
    failed = {one.row for one in failures}
    return frame[[row for row in range(frame.height) if row not in failed]]


def apply_to_rows(frame: pl.DataFrame, apply: Apply) -> tuple[pl.DataFrame, list[RecordFailure]]:
    """Applies `apply` to a frame. Rows that make it raise are added to the failures."""
    parts, raising = evaluate_rows(
        frame.height, lambda start, end: apply(frame if end - start == frame.height else frame[start:end])
    )
    if not raising and len(parts) == 1:
        return parts[0][1]
    failures = gather_failures(starmap(internal_failure, raising), ((start, found) for start, (_, found) in parts))
    kept = [result for _, (result, _) in parts] or [apply(frame.clear())[0]]
    return pl.concat(kept), failures
