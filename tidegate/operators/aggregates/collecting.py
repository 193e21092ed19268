"""count(distinct x), collect_set and collect_list: accumulators that keep the values themselves, as ordered keys
(`values.py`).

The size of a group is bounded, counting all its rows. A group above the bound has NULL for its parts, in whatever order
the rows arrived, and has no result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from tidegate.datatypes import BIGINT, DataType
from tidegate.expressions.expression import AggregateCall
from tidegate.expressions.typing_rules import INTEGRAL
from tidegate.operators.aggregates.contract import (
    TIME,
    Aggregate,
    AggregateField,
    AggregateTooLarge,
    AggregateUse,
    Functions,
    Reduction,
    Value,
    argument_type,
    blank,
)
from tidegate.operators.aggregates.counting import COUNT
from tidegate.operators.aggregates.values import (
    FLOATING,
    CountedValues,
    equal_key,
    kept_key,
    key_type,
    order_key,
    plain_from_key,
    plain_key,
)

if TYPE_CHECKING:
    import polars as pl

VALUES_MAX: Final = 100_000
BYTES_MAX: Final = 4 << 20
"""The maximum size of the values that a group may keep."""
BIGINTS: Final = DataType("array", element=BIGINT)
TOO_MANY: Final = f"a group has more than {VALUES_MAX:,} values, or {BYTES_MAX >> 20} MiB of them"


class Distinct(Aggregate):
    """count(distinct) and collect_set: keeps the distinct non-NULL values, sorted. Returns them or their number."""

    keeps_values = True

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        super().__init__(name, call, use)
        self._kind = argument_type(call)
        self.fields = (
            AggregateField("values", DataType("array", element=key_type(self._kind)), nullable=True, zero=()),
        )
        self.encoding = kind_of_keys(self._kind)
        self._collect = call.function == "collect_set"
        (self._column,) = self.columns

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        return self.merge(accumulator, ((kept_key(value + 0.0 if isinstance(value, float) else value, self._kind),),))

    @override
    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        import polars as pl

        keys = equal_key(rows[self.arguments[0]], self._kind)
        return self._reduction([keys.alias(self._column)], pl.col(self._column))

    @override
    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        import polars as pl

        return self._reduction([], pl.col(self._column).explode(), pl.col(self._column).null_count())

    def _reduction(self, columns: list[pl.Series], keys: pl.Expr, lost: pl.Expr | None = None) -> Reduction:
        import polars as pl

        lost = pl.lit(0, pl.UInt32) if lost is None else lost
        kept = keys.drop_nulls().unique().sort().implode()
        return Reduction(columns, [kept, lost.alias(f"{self._column}.lost")])

    @override
    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        lists = grouped[self._column]
        return [blank(lists, _too_large(lists) | (grouped[f"{self._column}.lost"] > 0))]

    @override
    def merge(self, left: Value, right: Value) -> Value:
        (one,), (other,) = left, right
        if one is None or other is None:
            return (None,)
        both = tuple(sorted({*one, *other}))
        return (both if is_small(both) else None,)

    @override
    def result(self, accumulator: Value) -> Any:
        (keys,) = accumulator
        if keys is None:
            raise AggregateTooLarge(TOO_MANY)
        return values_of(keys, self._kind) if self._collect else len(keys)


class CountedDistinct(CountedValues):
    """count(distinct) of changes. Both zeros count as one value, and so do all NaNs, as in a key."""

    fields = (AggregateField("distinct", BIGINT, nullable=False, zero=0), COUNT)

    @override
    def key_of(self, value: float) -> Any:
        return plain_key(value + 0.0)

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        distinct, count = accumulator
        self.counts[value] += 1
        return distinct + (self.counts[value] == 1), count + 1

    @override
    def retract(self, accumulator: Value, value: Any) -> Value | None:
        distinct, count = accumulator
        if not self.counts[value]:
            return None
        self.counts[value] -= 1
        return distinct - (not self.counts[value]), count - 1

    @override
    def result(self, accumulator: Value) -> Any:
        return accumulator[0]


class Listed(Aggregate):
    """collect_list: all values that are not NULL, ordered by event time, then by value."""

    keeps_values = True

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        super().__init__(name, call, use)
        self._kind = argument_type(call)
        values = DataType("array", element=key_type(self._kind))
        self.fields = tuple(
            AggregateField(suffix, kind, nullable=True, zero=())
            for suffix, kind in (("times", BIGINTS), ("values", values))
        )
        self.encoding = kind_of_keys(self._kind)
        self.arguments = [*self.arguments, TIME]

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        found, time = value
        return self.merge(accumulator, ((time,), (kept_key(found, self._kind),)))

    @override
    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        import polars as pl

        values = rows[self.arguments[0]]
        times, keys = self.columns
        known = values.is_not_null()
        added = [
            blank(rows[TIME], ~known).alias(times),
            order_key(values, self._kind).alias(keys),
        ]
        return self._reduction(added, pl.col, pl.lit(0, pl.UInt32))

    @override
    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        import polars as pl

        return self._reduction([], lambda column: pl.col(column).explode(), pl.col(self.columns[0]).null_count())

    def _reduction(self, added: list[pl.Series], read: Callable[[str], pl.Expr], lost: pl.Expr) -> Reduction:
        order = [read(column) for column in self.columns]
        lists = [read(column).sort_by(order).drop_nulls().implode().alias(column) for column in self.columns]
        return Reduction(added, [*lists, lost.alias(f"{self.columns[0]}.lost")])

    @override
    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        times, keys = (grouped[column] for column in self.columns)
        lost = _too_large(keys) | (grouped[f"{self.columns[0]}.lost"] > 0)
        return [blank(times, lost), blank(keys, lost)]

    @override
    def merge(self, left: Value, right: Value) -> Value:
        if left[0] is None or right[0] is None:
            return None, None
        both = sorted(chain(zip(*left, strict=True), zip(*right, strict=True)))
        times, keys = zip(*both, strict=True) if both else ((), ())
        return (times, keys) if is_small(keys) else (None, None)

    @override
    def result(self, accumulator: Value) -> Any:
        _, keys = accumulator
        if keys is None:
            raise AggregateTooLarge(TOO_MANY)
        return values_of(keys, self._kind)


def values_of(keys: Sequence[Any], kind: DataType) -> Sequence[Any]:
    """Returns the plain values of these keys."""
    return [plain_from_key(key, kind) for key in keys] if kind.kind in FLOATING else keys


def kind_of_keys(kind: DataType) -> str:
    """Returns how keys are derived from the values of a type."""
    return "integers" if kind.kind in INTEGRAL else f"{kind.kind} values"


def is_small(keys: Sequence[Any]) -> bool:
    """Returns True if a group may keep these keys."""
    if len(keys) > VALUES_MAX:
        return False
    if not keys or not isinstance(keys[0], str | bytes):
        return True
    return sum(map(len, keys)) <= BYTES_MAX // 4 or sum(map(_size, keys)) <= BYTES_MAX


def _size(key: str | bytes) -> int:
    return len(key.encode()) if isinstance(key, str) else len(key)


def _too_large(lists: pl.Series) -> pl.Series:
    """Returns where a list is too large to keep."""
    import polars as pl

    large = lists.list.len() > VALUES_MAX
    if lists.dtype in (pl.List(pl.String), pl.List(pl.Binary)) and lists.estimated_size() > BYTES_MAX:
        return pl.Series([not is_small(keys) for keys in lists.to_list()], dtype=pl.Boolean)
    return large


FUNCTIONS: Final[Functions] = {
    "count_distinct": {AggregateUse.WINDOW: Distinct, AggregateUse.CHANGES: CountedDistinct},
    "collect_set": {AggregateUse.WINDOW: Distinct},
    "collect_list": {AggregateUse.WINDOW: Listed},
}
