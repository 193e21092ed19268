"""What sums and averages have in common, whether their exact sum is of doubles or of decimals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import polars as pl

from tidegate.operators.aggregation.contract import Reduction, Value


class Sum(Protocol):
    """An exact sum among the parts of an aggregate."""

    def from_rows(self, values: pl.Series) -> Reduction:
        """Of values."""

    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        """Of partial sums."""

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """The columns of the parts."""


Merge = Callable[[Value, Value], Value]
"""The sum of two sums as the states have them."""


class Summing:
    """A MergeableAggregate whose parts are a sum; subclasses have `parts` and `results`."""

    def __init__(self, argument: str, total: Sum, merge: Merge) -> None:
        self._argument = argument
        self._total = total
        self._merge = merge

    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        return self._total.from_rows(rows[self._argument])

    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        return self._total.from_parts(parts)

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """See MergeableAggregate."""
        return self._total.pack(grouped)

    def merge(self, left: Value, right: Value) -> Value:
        """See MergeableAggregate."""
        return self._merge(left, right)


class Averaging(Summing):
    """The same whose parts are a sum and, last, how many values it has."""

    def __init__(self, name: str, argument: str, total: Sum, merge: Merge) -> None:
        super().__init__(argument, total, merge)
        self._count = f"{name}.count"

    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        return super().from_rows(rows).counting(rows[self._argument], self._count)

    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        return super().from_parts(parts).plus(pl.col(self._count).sum())

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """See MergeableAggregate."""
        return [*super().pack(grouped), grouped[self._count]]

    def merge(self, left: Value, right: Value) -> Value:
        """See MergeableAggregate."""
        return (*super().merge(left[:-1], right[:-1]), left[-1] + right[-1])
