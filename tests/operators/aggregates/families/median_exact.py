"""`median_exact(x)`: an aggregate as docs/extending.md describes it, for one test."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any, Final

from typing_extensions import override

from tidegate.datatypes import DOUBLE, DataType
from tidegate.expressions.aggregates import AggregateFunction, as_double, declare_aggregate, one_argument
from tidegate.operators.aggregates.contract import Aggregate, AggregateField, AggregateUse, Functions, Value

FUNCTION: Final = AggregateFunction("median_exact", one_argument(as_double, "median_exact"), running=True)
declare_aggregate(FUNCTION)


class Median(Aggregate):
    """Keeps all values, sorted."""

    fields = (AggregateField("sorted", DataType("array", element=DOUBLE), nullable=False, zero=()),)
    keeps_values = True

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        kept = list(accumulator[0])
        insort(kept, value)
        return (tuple(kept),)

    @override
    def retract(self, accumulator: Value, value: Any) -> Value | None:
        (kept,) = accumulator
        place = bisect_left(kept, value)
        if place == len(kept) or kept[place] != value:
            return None
        return ((*kept[:place], *kept[place + 1 :]),)

    @override
    def merge(self, left: Value, right: Value) -> Value:
        return (tuple(sorted((*left[0], *right[0]))),)

    @override
    def result(self, accumulator: Value) -> Any:
        (kept,) = accumulator
        middle = len(kept) // 2
        if not kept:
            return None
        return kept[middle] if len(kept) % 2 else (kept[middle - 1] + kept[middle]) / 2


FUNCTIONS: Final[Functions] = {"median_exact": dict.fromkeys(AggregateUse, Median)}
