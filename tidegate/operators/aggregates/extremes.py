"""min and max, bool_and and bool_or: one value, or NULL if there is none. NaN is above every number.

In windows and over changes, -0.0 is below 0.0 in whatever order the rows arrive. Running totals keep the zero that came
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from tidegate.datatypes import DOUBLE
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
from tidegate.operators.aggregates.counting import COUNT, CountedBooleans
from tidegate.operators.aggregates.values import CountedValues, from_order_key, order_key, plain_from_key, plain_key
from tidegate.state.order import Row

if TYPE_CHECKING:
    import polars as pl


class Extreme(Aggregate):
    """The smallest or the greatest value; false is below true."""

    picks_value = True

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        super().__init__(name, call, use)
        self.fields = (AggregateField(call.function, call.type, nullable=True),)
        self._greatest = call.function in ("max", "bool_or")
        self.native_function = TotalFunction.MAX if self._greatest else TotalFunction.MIN

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        return self.merge(accumulator, (value,))

    @override
    def merge(self, left: Value, right: Value) -> Value:
        (one,), (other,) = left, right
        if one is None or other is None:
            return left if other is None else right
        return left if (plain_key(one) >= plain_key(other)) is self._greatest else right

    @override
    def result(self, accumulator: Value) -> Any:
        return accumulator[0]

    @override
    def results(self, accumulators: Sequence[Value]) -> list[Any]:
        return [value for (value,) in accumulators]

    @override
    def run(self, numbers: Numbers, values: Sequence[Any], columns: list[list[Any]]) -> list[Any]:
        return (run_max if self._greatest else run_min)(numbers, values, columns[0])

    @override
    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        return self._reduction(rows[self.arguments[0]])

    @override
    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        return self._reduction(parts[self.columns[0]])

    def _reduction(self, values: pl.Series) -> Reduction:
        import polars as pl

        (column,) = self.columns
        key = pl.col(column)
        extreme = key.max() if self._greatest else key.min()
        return Reduction([order_key(values, self.call.type).alias(column)], [extreme])

    @override
    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        return [from_order_key(grouped[self.columns[0]], self.call.type)]


def run_min(numbers: Numbers, values: Sequence[Any], lows: list[Any]) -> list[Any]:
    """Returns the smallest value of the key after each row."""
    results: list[Any] = []
    for number, value in zip(numbers, values, strict=True):
        low = lows[number]
        if value is not None and (low is None or value < low or low != low):  # the last only for NaN
            lows[number] = low = value
        results.append(low)
    return results


def run_max(numbers: Numbers, values: Sequence[Any], highs: list[Any]) -> list[Any]:
    """Returns the greatest value of the key after each row."""
    results: list[Any] = []
    for number, value in zip(numbers, values, strict=True):
        high = highs[number]
        if value is not None and (high is None or value > high or value != value):  # the last only for NaN
            highs[number] = high = value
        results.append(high)
    return results


_GONE: Final = object()
"""Marks an extreme that was retracted, until the end of the batch."""


class CountedExtreme(CountedValues):
    """min and max of changes. If the extreme is retracted, the first or last remaining value replaces it."""

    picks_value = True

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        super().__init__(name, call, use)
        self.fields = (AggregateField("extreme", self.kept, nullable=True), COUNT)
        self._greatest = call.function == "max"

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        extreme, count = accumulator
        self.counts[value] += 1
        new = value[1]
        if extreme is None or (extreme is not _GONE and (new > extreme if self._greatest else new < extreme)):
            extreme = new
        return extreme, count + 1

    @override
    def retract(self, accumulator: Value, value: Any) -> Value | None:
        extreme, count = accumulator
        if not self.counts[value]:
            return None
        self.counts[value] -= 1
        if count == 1:
            return self.zero
        gone = not self.counts[value] and value[1] == extreme
        return _GONE if gone else extreme, count - 1

    @override
    def finish(self, accumulators: Sequence[Value], keys: Sequence[Row]) -> Sequence[Value]:
        found = list(super().finish(accumulators, keys))
        gone = [place for place, (extreme, _) in enumerate(found) if extreme is _GONE]
        prefixes = [(*keys[place], self.name) for place in gone]
        for place, group, prefix in zip(gone, self.values.groups_of(prefixes), prefixes, strict=True):
            first = next(iter(self.values.scan(group, prefix, limit=1, backwards=self._greatest)), None)
            found[place] = (None if first is None else first[0][-1], found[place][1])
        return found

    @override
    def result(self, accumulator: Value) -> Any:
        extreme, _ = accumulator
        return plain_from_key(extreme, DOUBLE) if self.floating else extreme


FUNCTIONS: Final[Functions] = {
    function: {AggregateUse.RUNNING: Extreme, AggregateUse.WINDOW: Extreme, AggregateUse.CHANGES: changes}
    for functions, changes in ((("min", "max"), CountedExtreme), (("bool_and", "bool_or"), CountedBooleans))
    for function in functions
}
