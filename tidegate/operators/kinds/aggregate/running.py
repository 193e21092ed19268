"""Running aggregate functions, with Spark's results (ANSI mode), a column of values at a time.

Each function keeps one *accumulator* per key, an immutable value or None, in a list indexed by the number of the
key in the batch. `run` goes through the rows in order, moves the accumulators and returns the result after each row.
NULLs do not count for sum, min, max, avg and count(x); first and last take them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import localcontext
from itertools import compress
from typing import Any

from tidegate.datatypes import BIGINT, BOOLEAN, DOUBLE, EXACT, DataType, decimal_of_units, units_of
from tidegate.expressions.decimals import derive_sum_type
from tidegate.expressions.decimals import divide_average as divide_decimals
from tidegate.expressions.expression import AggregateCall
from tidegate.operators.aggregation.choosing import derive_choice

Numbers = Sequence[int]
"""For each row the number of its key in the batch."""

Run = Callable[[Numbers, Sequence[Any], list[Any]], list[Any]]


def run_count_all(numbers: Numbers, values: Sequence[Any], counts: list[Any]) -> list[Any]:  # noqa: ARG001  # one signature
    """count(*); `values` is not looked at. New keys begin with 0."""
    results: list[Any] = []
    append = results.append
    for number in numbers:
        counts[number] = count = counts[number] + 1
        append(count)
    return results


def run_count(numbers: Numbers, values: Sequence[Any], counts: list[Any]) -> list[Any]:
    """count(x): rows that are not NULL."""
    results: list[Any] = []
    for number, value in zip(numbers, values, strict=True):
        if value is not None:
            counts[number] += 1
        results.append(counts[number])
    return results


def run_sum(numbers: Numbers, values: Sequence[Any], sums: list[Any]) -> list[Any]:
    """Sum of numbers, exact for integers of any size; NULL until the first value, then from 0 (so -0.0 gives 0.0)."""
    results: list[Any] = []
    append = results.append
    for number, value in zip(numbers, values, strict=True):
        total = sums[number]
        if value is not None:
            sums[number] = total = (0 if total is None else total) + value
        append(total)
    return results


def run_min(numbers: Numbers, values: Sequence[Any], lows: list[Any]) -> list[Any]:
    """Smallest value; NaN is greater than every number (only NaN differs from itself)."""
    results: list[Any] = []
    for number, value in zip(numbers, values, strict=True):
        low = lows[number]
        if value is not None and (low is None or value < low or low != low):  # the last is true for NaN alone
            lows[number] = low = value
        results.append(low)
    return results


def run_max(numbers: Numbers, values: Sequence[Any], highs: list[Any]) -> list[Any]:
    """Greatest value; NaN is greater than every number."""
    results: list[Any] = []
    for number, value in zip(numbers, values, strict=True):
        high = highs[number]
        if value is not None and (high is None or value > high or value != value):  # the last is true for NaN alone
            highs[number] = high = value
        results.append(high)
    return results


def run_last(numbers: Numbers, values: Sequence[Any], lasts: list[Any]) -> list[Any]:
    """The row's own value, NULL included."""
    for number, value in zip(numbers, values, strict=True):
        lasts[number] = value
    return list(values)


def run_first(numbers: Numbers, values: Sequence[Any], firsts: list[Any]) -> list[Any]:
    """The key's first value, NULL included; UNSEEN marks a key without rows."""
    results: list[Any] = []
    for number, value in zip(numbers, values, strict=True):
        first = firsts[number]
        if first is UNSEEN:
            firsts[number] = first = value
        results.append(first)
    return results


def run_first_seen(numbers: Numbers, values: Sequence[Any], firsts: list[Any], seen: list[Any]) -> list[Any]:
    """The same where a key may have rows none of which counts: `seen` says whether one has."""
    results: list[Any] = []
    for number, value in zip(numbers, values, strict=True):
        if not seen[number]:
            firsts[number], seen[number] = value, True
        results.append(firsts[number])
    return results


def divide_average(total: float | None, count: int) -> float | None:
    """The average from a sum of doubles and a count; NULL without values."""
    return None if total is None else total / count


class _Unseen:
    def __repr__(self) -> str:
        return "UNSEEN"


UNSEEN = _Unseen()
"""Accumulator of `first` for a new key; it never gets into the state."""


class Aggregate:
    """One aggregate function of a step: its accumulators and how to run over them.

    `parts` are the stored accumulators (name suffix, type, nullable); avg has two, and first where not all rows count.
    """

    def __init__(self, name: str, call: AggregateCall) -> None:
        self.name = name
        self.result = call.type
        self.argument = getattr(call.argument, "name", None)
        self.choice = derive_choice(call)
        self._function = call.function
        self.parts, self.initial = _parts_of(call)
        self._run = _run_of(call)

    @property
    def begins_late(self) -> bool:
        """Whether it may be added where keys are already: the first row of these has passed."""
        return self._function != "first"

    def run(
        self,
        numbers: Numbers,
        values: Sequence[Any] | None,
        accumulators: list[list[Any]],
        mask: Sequence[bool] | None = None,
    ) -> list[Any]:
        """Results after each row; moves `accumulators`, one list per part. `values` is None for count(*).

        `mask`: whether each row counts; after one that does not the result is what it was.
        """
        if mask is None:
            return self._run_all(numbers, values, accumulators)
        results = self._results_of(accumulators)
        counted = None if values is None else list(compress(values, mask))
        moved = iter(self._run_all(list(compress(numbers, mask)), counted, accumulators))
        found: list[Any] = []
        for number, counts in zip(numbers, mask, strict=True):
            if counts:
                results[number] = next(moved)
            found.append(results[number])
        return found

    def _run_all(self, numbers: Numbers, values: Sequence[Any] | None, accumulators: list[list[Any]]) -> list[Any]:
        if self._function == "first" and len(self.parts) > 1:
            return run_first_seen(numbers, values or (), *accumulators)
        if self.result.kind == "decimal" and self._function in ("sum", "avg"):
            assert values is not None
            return self._run_decimals(numbers, values, accumulators)
        if self._function == "avg":
            assert values is not None
            totals = run_sum(numbers, [None if v is None else float(v) for v in values], accumulators[0])
            return self._averages(totals, run_count(numbers, values, accumulators[1]))
        return self._run(numbers, () if values is None else values, accumulators[0])

    def _run_decimals(self, numbers: Numbers, values: Sequence[Any], accumulators: list[list[Any]]) -> list[Any]:
        """Sum and avg of decimals. Raises OverflowError; a sum that overflows by itself is found with its column."""
        with localcontext(EXACT):
            totals = run_sum(numbers, values, accumulators[0])
        if self._function == "sum":
            return totals
        return self._averages(totals, run_count(numbers, values, accumulators[1]))

    def _results_of(self, accumulators: list[list[Any]]) -> list[Any]:
        """The results of accumulators, one per key."""
        return self._averages(*accumulators) if self._function == "avg" else list(accumulators[0])

    def _averages(self, totals: Sequence[Any], counts: Sequence[int]) -> list[Any]:
        """Averages of sums and counts. Raises OverflowError for a sum of decimals that leaves its type."""
        if self.result.kind != "decimal":
            return list(map(divide_average, totals, counts))
        kind = self.parts[0][1]
        limit = decimal_of_units(10**kind.precision, kind.scale)
        if any(total is not None and total.copy_abs() >= limit for total in totals):
            raise OverflowError(f"a sum leaves the range of {kind}")
        return [
            None if total is None else divide_decimals(units_of(total, kind.scale), kind.scale, count, self.result)
            for total, count in zip(totals, counts, strict=True)
        ]


def _parts_of(call: AggregateCall) -> tuple[list[tuple[str, DataType, bool]], list[Any]]:
    match call.function:
        case "count":
            return [("count", BIGINT, False)], [0]
        case "avg" if call.type.kind == "decimal" and call.argument is not None:
            return [("sum", derive_sum_type(call.argument.type), True), ("count", BIGINT, False)], [None, 0]
        case "avg":
            return [("sum", DOUBLE, True), ("count", BIGINT, False)], [None, 0]
        case "first" if call.is_filtered:
            return [("first", call.type, True), ("seen", BOOLEAN, False)], [None, False]
        case "first":
            return [("first", call.type, True)], [UNSEEN]
        case "sum" | "min" | "max" | "last" | "bool_and" | "bool_or":
            return [(call.function, call.type, True)], [None]
    raise ValueError(f"unknown aggregate function {call.function!r}")


def _run_of(call: AggregateCall) -> Run:
    if call.function == "count":
        return run_count_all if call.argument is None else run_count
    runs = {"sum": run_sum, "min": run_min, "max": run_max, "first": run_first, "last": run_last, "avg": run_sum}
    runs |= {"bool_and": run_min, "bool_or": run_max}  # false is below true
    return runs[call.function]
