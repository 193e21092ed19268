"""sum and avg of doubles: the exact sum, rounded once.

So ten times 0.1 are 1.0, and 1e308 + 1e308 - 1e308 is 1e308, where adding one after the other gives 0.9999999999999999
and an infinity. A sum that is 0 is 0.0, never -0.0.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidegate.datatypes import DOUBLE
from tidegate.formats.columns import make_column
from tidegate.operators.aggregation.contract import Value
from tidegate.operators.aggregation.exact import ExactSum, merge_sums, total_of
from tidegate.operators.aggregation.parts import COUNT, EXACT_SUM
from tidegate.operators.aggregation.sums import Averaging, Summing


class DoubleSum(Summing):
    """See MergeableAggregate."""

    parts = EXACT_SUM

    def __init__(self, name: str, argument: str) -> None:
        super().__init__(argument, ExactSum(name), merge_sums)
        self._name = name

    def results(self, accumulators: Sequence[Value]) -> pl.Series:
        """See MergeableAggregate."""
        sums = [None if one[0] is None else total_of(one).divided() for one in accumulators]
        return make_column(self._name, DOUBLE, sums)


class Average(Averaging):
    """See MergeableAggregate."""

    parts = (*EXACT_SUM, COUNT)

    def __init__(self, name: str, argument: str) -> None:
        super().__init__(name, argument, ExactSum(name), merge_sums)
        self._name = name

    def results(self, accumulators: Sequence[Value]) -> pl.Series:
        """See MergeableAggregate."""
        averages = [None if not one[-1] else total_of(one[:-1]).divided(one[-1]) for one in accumulators]
        return make_column(self._name, DOUBLE, averages)
