"""percentile_approx: a histogram that is exact as long as a group has at most 4,096 different values.

Values are counted by their order key as a double (`values.py`), without its lowest `level` bits; the level is the
smallest at which there are at most `BINS_MAX` bins. As bins only become fewer by a higher level and more by more
values, the level and the bins are a function of the values, not of the order in which histograms were merged. Bins are
intervals of equal width within a power of two, a histogram of relative error as in DDSketch (Masson, Rim, Lee: VLDB
2019), whose own collapsing depends on the order. With values over n powers of two the error is less than n / 4096 of
the value.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Final

import polars as pl

from tidegate.datatypes import DOUBLE, DataType
from tidegate.expressions.typing_rules import INTEGRAL, LIMITS
from tidegate.formats.columns import make_column
from tidegate.operators.aggregation.contract import Direct, Reduction, Value
from tidegate.operators.aggregation.parts import Part
from tidegate.operators.aggregation.values import equal_key, plain_from_key, plain_key

BINS_MAX: Final = 4_096
_LEVEL_MAX: Final = 52
"""A bin for each power of two: there are 4,096 of them."""
_INFINITY: Final[int] = plain_key(math.inf)
_MINUS_INFINITY: Final[int] = plain_key(-math.inf)


class Percentile(Direct):
    """See MergeableAggregate. `share` of the values are not above the result."""

    def __init__(self, name: str, argument: str, kind: DataType, share: float, parts: Sequence[Part]) -> None:
        super().__init__(name, parts)
        self._argument = argument
        self._kind = kind
        self._share = share
        self._keys = f"{name}.keys"

    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        keys = equal_key(rows[self._argument].cast(pl.Float64), DOUBLE)
        return Reduction([keys.alias(self._keys)], [pl.col(self._keys).drop_nulls().implode()])

    def from_parts(self, parts: pl.DataFrame) -> Reduction:  # noqa: ARG002  # whatever they are
        """See MergeableAggregate."""
        return Reduction([], [pl.col(column).implode() for column in self.columns])

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """See MergeableAggregate."""
        if self._keys in grouped.columns:
            histograms = [make_histogram(keys) for keys in grouped[self._keys].to_list()]
        else:
            columns = [column.to_list() for column in super().pack(grouped)]
            groups = zip(*columns, strict=True)
            histograms = [reduce(merge_histograms, zip(*group, strict=True)) for group in groups]
        kinds: tuple[pl.DataType, ...] = (pl.Int32(), pl.List(pl.Int64), pl.List(pl.Int64))
        values = list(zip(*histograms, strict=True)) or [(), (), ()]
        return [
            pl.Series(column, part, dtype=kind) for column, part, kind in zip(self.columns, values, kinds, strict=True)
        ]

    def merge(self, left: Value, right: Value) -> Value:
        """See MergeableAggregate."""
        return merge_histograms(left, right)

    def results(self, accumulators: Sequence[Value]) -> pl.Series:
        """See MergeableAggregate."""
        return make_column(self.name, self._kind, [self._result(one) for one in accumulators])

    def _result(self, histogram: Value) -> float | int | None:
        level, bins, counts = histogram
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
    """The histogram of values with these keys."""
    return _leveled(0, Counter(keys))


def merge_histograms(left: Value, right: Value) -> Value:
    """The histogram of the values of both."""
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
    """The value itself at level 0, else one in the middle of the bin; 0 for the bins beside it."""
    low = found << level
    if level and found in (0, -1):
        return 0.0
    if low <= _INFINITY:
        low = max(_MINUS_INFINITY, min(_INFINITY, low + (1 << level >> 1)))
    value: float = plain_from_key(low, DOUBLE)
    return value
