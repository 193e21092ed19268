"""percentile_approx and approx_count_distinct: results of bounded size, whatever the order of rows.

percentile_approx: a histogram that is exact as long as a group has at most 4,096 distinct values.

Values are counted by their order key as a double (`values.py`), without its lowest `level` bits. The level is the
smallest at which there are at most `BINS_MAX` bins. A higher level never yields more bins, and more values never yield
fewer. So the level and the bins are a function of the values, not of the order in which histograms were merged. Bins
are intervals of equal width within a power of two. This is a histogram of relative error as in DDSketch (Masson, Rim,
Lee: VLDB 2019), whose own collapsing depends on the order. If values span n powers of two, the error is less than n /
4096 of the value.

approx_count_distinct: a theta sketch of Apache DataSketches (the extra `sketches`). It keeps the 4,096 smallest hashes
of the values. These do not depend on any order once the excess is cut off (by `trim` and by a union), so equal sets of
values give equal bytes. The library depends on numpy, so it is imported only where a sketch is created.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from tidegate.datatypes import BIGINT, BINARY, DOUBLE, INT, DataType
from tidegate.expressions.expression import AggregateCall, Literal
from tidegate.expressions.typing_rules import INTEGRAL, LIMITS
from tidegate.operators.aggregates.collecting import kind_of_keys
from tidegate.operators.aggregates.contract import (
    Aggregate,
    AggregateField,
    AggregateUse,
    Functions,
    Reduction,
    Value,
    argument_type,
    derive_columns,
)
from tidegate.operators.aggregates.values import equal_key, kept_key, plain_from_key, plain_key

if TYPE_CHECKING:
    import polars as pl

BINS_MAX: Final = 4_096
_LEVEL_MAX: Final = 52
"""At this level there is one bin per power of two, 4,096 in total."""
_INFINITY: Final[int] = plain_key(math.inf)
_MINUS_INFINITY: Final[int] = plain_key(-math.inf)


class Percentile(Aggregate):
    """The value that a given share of the values does not exceed."""

    fields = (
        AggregateField("level", INT, nullable=False, zero=0),
        *(
            AggregateField(suffix, DataType("array", element=BIGINT), nullable=False, zero=())
            for suffix in ("bins", "counts")
        ),
    )

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        super().__init__(name, call, use)
        self._kind = argument_type(call)
        (share,) = call.others
        assert isinstance(share, Literal)
        self._share = float(share.value or 0)
        self._keys = f"{name}.keys"

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        return merge_histograms(accumulator, make_histogram((plain_key(float(value) + 0.0),)))

    @override
    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        import polars as pl

        keys = equal_key(rows[self.arguments[0]].cast(pl.Float64), DOUBLE)
        return Reduction([keys.alias(self._keys)], [pl.col(self._keys).drop_nulls().implode()])

    @override
    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        if self._keys not in grouped.columns:
            return super().pack(grouped)
        histograms = (make_histogram(keys) for keys in grouped[self._keys].to_list())
        return derive_columns(self, histograms)

    @override
    def merge(self, left: Value, right: Value) -> Value:
        return merge_histograms(left, right)

    @override
    def result(self, accumulator: Value) -> Any:
        level, bins, counts = accumulator
        if not bins:
            return None
        wanted = max(1, math.ceil(self._share * sum(counts)))
        seen = 0
        for found, count in zip(bins, counts, strict=True):
            seen += count
            if seen >= wanted:
                return self._as_kind(value_of_bin(level, found))
        raise AssertionError("a share is at most 1")

    def _as_kind(self, value: float) -> float | int:
        if self._kind.kind not in INTEGRAL:
            return value
        limit = LIMITS[self._kind.kind]
        return min(max(round(value), -limit), limit - 1)


def make_histogram(keys: Iterable[int]) -> Value:
    """Returns the histogram of values with these keys."""
    return _leveled(0, Counter(keys))


def merge_histograms(left: Value, right: Value) -> Value:
    """Returns the histogram of the values of both."""
    level = max(left[0], right[0])
    counts: Counter[int] = Counter()
    for own, bins, numbers in (left, right):
        for found, count in zip(bins, numbers, strict=True):
            counts[found >> level - own] += count
    return _leveled(level, counts)


def _leveled(level: int, counts: Counter[int]) -> Value:
    if len(counts) > BINS_MAX:
        more = bisect_left(range(_LEVEL_MAX - level), True, key=lambda bits: _bins_without(bits, counts) <= BINS_MAX)
        coarser: Counter[int] = Counter()
        for found, count in counts.items():
            coarser[found >> more] += count
        level, counts = level + more, coarser
    bins = tuple(sorted(counts))
    return level, bins, tuple(counts[found] for found in bins)


def _bins_without(bits: int, bins: Iterable[int]) -> int:
    return len({found >> bits for found in bins})


def value_of_bin(level: int, found: int) -> float:
    """Returns the value itself at level 0, otherwise one in the middle of the bin; 0 for the bins next to 0."""
    low = found << level
    if level and found in (0, -1):
        return 0.0
    if low <= _INFINITY:
        low = max(_MINUS_INFINITY, min(_INFINITY, low + (1 << level >> 1)))
    value: float = plain_from_key(low, DOUBLE)
    return value


LOG_SIZE: Final = 12
"""2^12 hashes: a standard error of 1.6 %."""


class ApproximateCount(Aggregate):
    """The sketch of the values; NULL if there are none."""

    fields = (AggregateField("sketch", BINARY, nullable=True),)

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        super().__init__(name, call, use)
        self._kind = kind = argument_type(call)
        hashed = f"decimals of scale {kind.scale}" if kind.kind == "decimal" else kind_of_keys(kind)
        self.encoding = f"hashes of {hashed}"
        (self._column,) = self.columns

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        key = kept_key(value + 0.0 if isinstance(value, float) else value, self._kind)
        return self.merge(accumulator, (make_sketch((key,)),))

    @override
    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        import polars as pl

        keys = equal_key(rows[self.arguments[0]], self._kind)
        return Reduction([keys.alias(self._column)], [pl.col(self._column).drop_nulls().unique().implode()])

    @override
    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        import polars as pl

        sketches = pl.col(self._column).drop_nulls().implode()
        return Reduction([], [sketches, pl.lit(1, pl.UInt8).alias(f"{self._column}.merged")])

    @override
    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        import polars as pl

        make = merge_sketches if f"{self._column}.merged" in grouped.columns else make_sketch
        sketches = [make(values) if values else None for values in grouped[self._column].to_list()]
        return [pl.Series(self._column, sketches, dtype=pl.Binary)]

    @override
    def merge(self, left: Value, right: Value) -> Value:
        if left[0] is None or right[0] is None:
            return left if right[0] is None else right
        return (merge_sketches((left[0], right[0])),)

    @override
    def result(self, accumulator: Value) -> Any:
        (sketch,) = accumulator
        return 0 if sketch is None else _estimate(sketch)


def make_sketch(keys: Iterable[Any]) -> bytes:
    """Returns the sketch of some values."""
    from datasketches import update_theta_sketch

    sketch = update_theta_sketch(LOG_SIZE)
    for key in keys:
        if isinstance(key, bytes):
            sketch.update(f"b{key.hex()}")
        elif isinstance(key, str):
            sketch.update(f"s{key}")  # the library ignores an empty text
        elif isinstance(key, Decimal):
            sketch.update(f"d{key}")
        else:
            sketch.update(int(key))
    sketch.trim()
    return bytes(sketch.compact().serialize())


def merge_sketches(sketches: Iterable[bytes]) -> bytes:
    """Returns the sketch of the values of all sketches."""
    from datasketches import compact_theta_sketch, theta_union

    union = theta_union(LOG_SIZE)
    for sketch in sketches:
        union.update(compact_theta_sketch.deserialize(sketch))
    return bytes(union.get_result().serialize())


def _estimate(sketch: bytes) -> int:
    from datasketches import compact_theta_sketch

    return round(float(compact_theta_sketch.deserialize(sketch).get_estimate()))


FUNCTIONS: Final[Functions] = {
    "percentile_approx": {AggregateUse.WINDOW: Percentile},
    "approx_count_distinct": {AggregateUse.WINDOW: ApproximateCount},
}
