"""count(*) and count(x), and counts of true and false values, from which bool_and and bool_or of changes follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from tidegate.datatypes import BIGINT
from tidegate.expressions.expression import AggregateCall
from tidegate.native.running import TotalFunction
from tidegate.operators.aggregates.contract import (
    Aggregate,
    AggregateField,
    AggregateUse,
    Functions,
    Numbers,
    Reduction,
    Value,
)

if TYPE_CHECKING:
    import polars as pl

COUNT: Final = AggregateField("count", BIGINT, nullable=False, zero=0)


class Count(Aggregate):
    """The number of rows, or of rows whose argument is not NULL."""

    fields = (COUNT,)
    native_function = TotalFunction.COUNT

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        super().__init__(name, call, use)
        self._rows = self.takes_null = call.argument is None
        if use is AggregateUse.CHANGES:
            self.encoding = "rows" if self._rows else "values"

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        return (accumulator[0] + 1,)

    @override
    def retract(self, accumulator: Value, value: Any) -> Value | None:
        return (accumulator[0] - 1,) if accumulator[0] else None

    @override
    def merge(self, left: Value, right: Value) -> Value:
        return (left[0] + right[0],)

    @override
    def result(self, accumulator: Value) -> Any:
        return accumulator[0]

    @override
    def results(self, accumulators: Sequence[Value]) -> list[Any]:
        return [count for (count,) in accumulators]

    @override
    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        import polars as pl

        (column,) = self.columns
        if self._rows:
            return Reduction([], [pl.len().cast(pl.Int64).alias(column)])
        return Reduction([], []).counting(rows[self.arguments[0]], column)

    @override
    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        return Reduction([], []).adding(self.columns[0])

    @override
    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        return [grouped[self.columns[0]]]


def run_count(numbers: Numbers, values: Sequence[Any], counts: list[Any]) -> list[Any]:
    """Returns the number of non-NULL values of the key after each row."""
    results: list[Any] = []
    for number, value in zip(numbers, values, strict=True):
        if value is not None:
            counts[number] += 1
        results.append(counts[number])
    return results


class CountedBooleans(Aggregate):
    """bool_and and bool_or of changes: how many values are true, and how many false."""

    fields = (
        AggregateField("true", BIGINT, nullable=False, zero=0),
        AggregateField("false", BIGINT, nullable=False, zero=0),
    )
    picks_value = True
    encoding = "values"

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        true, false = accumulator
        return (true + 1, false) if value else (true, false + 1)

    @override
    def retract(self, accumulator: Value, value: Any) -> Value | None:
        true, false = accumulator
        if not (true if value else false):
            return None
        return (true - 1, false) if value else (true, false - 1)

    @override
    def result(self, accumulator: Value) -> Any:
        true, false = accumulator
        if not (true or false):
            return None
        return not false if self.call.function == "bool_and" else bool(true)


FUNCTIONS: Final[Functions] = {"count": dict.fromkeys(AggregateUse, Count)}
