"""first and last, min_by and max_by: the value of the row that is first or last, by arrival or by another column.

Running totals use the order of arrival. Windows use event time; of rows with equal event times, the smallest value is
first and the greatest is last. min_by and max_by ignore rows whose ordering column is NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from tidegate.datatypes import BIGINT, BOOLEAN
from tidegate.expressions.expression import AggregateCall
from tidegate.native.running import TotalFunction
from tidegate.operators.aggregates.contract import (
    TIME,
    Aggregate,
    AggregateField,
    AggregateUse,
    Functions,
    Reduction,
    Value,
    blank,
)
from tidegate.operators.aggregates.values import from_order_key, order_key, plain_key, rank

if TYPE_CHECKING:
    import polars as pl


class Last(Aggregate):
    """The value of the row that arrived last, including NULL."""

    takes_null = True
    picks_value = True
    native_function = TotalFunction.LAST

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        super().__init__(name, call, use)
        self.fields = (AggregateField(call.function, call.type, nullable=True),)

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        return (value,)

    @override
    def result(self, accumulator: Value) -> Any:
        return accumulator[0]


class _Unseen:
    def __repr__(self) -> str:
        return "UNSEEN"


UNSEEN: Final = _Unseen()
"""The zero of `first` if the first row of a key counts. It is never stored in the state."""


class First(Last):
    """The value of the row that arrived first, including NULL. With a filter, `seen` is true once a row has counted."""

    native_function = TotalFunction.FIRST
    begins_late = False
    """The first rows of existing keys have already passed."""

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        super().__init__(name, call, use)
        (first,) = self.fields
        filtered = (first, AggregateField("seen", BOOLEAN, nullable=False, zero=False))
        self.fields = filtered if call.is_filtered else (first._replace(zero=UNSEEN),)

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        if len(accumulator) > 1:
            return accumulator if accumulator[1] else (value, True)
        return (value,) if accumulator[0] is UNSEEN else accumulator


class Picked(Aggregate):
    """The value of the row that is first or last by a column. It may be NULL, which orders before all others."""

    takes_null = True
    picks_value = True

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        super().__init__(name, call, use)
        by = BIGINT if call.function in ("first", "last") else call.others[0].type
        self.fields = (AggregateField("by", by, nullable=True), AggregateField("value", call.type, nullable=True))
        if len(self.arguments) == 1:
            self.arguments = [*self.arguments, TIME]
        self._last = call.function in ("last", "max_by")

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        found, by = value
        return accumulator if by is None else self.merge(accumulator, (by, found))

    @override
    def merge(self, left: Value, right: Value) -> Value:
        if left[0] is None or right[0] is None:
            return left if right[0] is None else right
        one, other = (plain_key(left[0]), rank(left[1])), (plain_key(right[0]), rank(right[1]))
        return left if (one >= other) is self._last else right

    @override
    def result(self, accumulator: Value) -> Any:
        return accumulator[1]

    @override
    def results(self, accumulators: Sequence[Value]) -> list[Any]:
        return [value for _, value in accumulators]

    @override
    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        value, by = self.arguments
        return self._reduction(rows[by], rows[value])

    @override
    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        return self._reduction(*(parts[column] for column in self.columns))

    def _reduction(self, by: pl.Series, value: pl.Series) -> Reduction:
        import polars as pl

        keys = [
            order_key(series, field.type).alias(column)
            for series, field, column in zip((by, value), self.fields, self.columns, strict=True)
        ]
        nulls_last = [not self._last, False]  # a NULL `by` is never picked; a NULL value comes first
        ordered = [pl.col(column).sort_by(self.columns, nulls_last=nulls_last) for column in self.columns]
        return Reduction(keys, [one.last() if self._last else one.first() for one in ordered])

    @override
    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        by, value = (
            from_order_key(grouped[column], field.type) for column, field in zip(self.columns, self.fields, strict=True)
        )
        return [by, blank(value, by.is_null())]


FUNCTIONS: Final[Functions] = {
    "first": {AggregateUse.RUNNING: First, AggregateUse.WINDOW: Picked},
    "last": {AggregateUse.RUNNING: Last, AggregateUse.WINDOW: Picked},
    "min_by": {AggregateUse.WINDOW: Picked},
    "max_by": {AggregateUse.WINDOW: Picked},
}
