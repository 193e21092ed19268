"""What an aggregate can do with rows, with partial results and with accumulators.

Rows are reduced to partial results, one row per key and window; those are reduced again, or become accumulators: tuples
of plain values that a state keeps. Whatever way rows are grouped, and in whatever order they come, the results are the
same to the last bit. `reduction.py` does it for all aggregates of a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import polars as pl

from tidegate.formats.bisection import first_line, internal_failure
from tidegate.formats.columns import make_column, plain_values
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.operators.aggregation.parts import Part

Value = tuple[Any, ...]
"""An accumulator: one plain value per part. Dates are days, timestamps microseconds since 1970, arrays tuples."""


class Reduction(NamedTuple):
    """How a frame is reduced. All names begin with the aggregate's, then a dot."""

    columns: list[pl.Series]
    """To be added to the frame before."""
    expressions: list[pl.Expr]
    """For `group_by(...).agg(...)`. Of rows they read added columns only: one may be called like an argument."""

    def counting(self, values: pl.Series, name: str) -> Reduction:
        """With how many values there are, as `name`."""
        count = pl.col(name).count().cast(pl.Int64)
        return Reduction([*self.columns, values.alias(name)], [*self.expressions, count])

    def plus(self, *expressions: pl.Expr) -> Reduction:
        """With more expressions."""
        return Reduction(self.columns, [*self.expressions, *expressions])


class MergeableAggregate(Protocol):
    """One aggregate function over plain columns. Columns of partial results are named `{name}.{suffix}`."""

    @property
    def parts(self) -> Sequence[Part]:
        """The accumulator: suffix, type and whether it can be NULL, of each part."""

    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        """For rows, which have a column `__tidegate_time`."""

    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        """For partial results. Associative and commutative."""

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """The columns of the parts, of what the expressions of either have given."""

    def merge(self, left: Value, right: Value) -> Value:
        """The accumulator of the rows of both. Associative and commutative."""

    def results(self, accumulators: Sequence[Value]) -> pl.Series:
        """The result of each accumulator, as a column that is named after the aggregate.

        Raises OverflowError and AggregateTooLarge when one of them has no result: `evaluate_rows` finds which, and
        `derive_failure` says what it is.
        """


class AggregateTooLarge(Exception):
    """A group has more values than an aggregate keeps."""


class Direct:
    """A base of aggregates whose expressions give the parts as they are."""

    def __init__(self, name: str, parts: Sequence[Part]) -> None:
        self.name = name
        self.parts = parts
        self.columns = [f"{name}.{suffix}" for suffix, _, _ in parts]

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """See MergeableAggregate."""
        return [grouped[column] for column in self.columns]


def derive_failure(row: int, error: BaseException) -> RecordFailure:
    """The failure of a row whose results raised `error`."""
    if isinstance(error, OverflowError):
        return RecordFailure(row, FailureKind.ARITHMETIC_OVERFLOW, first_line(error))
    if isinstance(error, AggregateTooLarge):
        return RecordFailure(row, FailureKind.RESULT_TOO_LARGE, first_line(error))
    return internal_failure(row, error)


def derive_part_columns(name: str, parts: Sequence[Part], accumulators: Iterable[Value]) -> list[pl.Series]:
    """Accumulators as columns of partial results."""
    columns = list(zip(*accumulators, strict=True)) or [()] * len(parts)
    return [
        make_column(f"{name}.{suffix}", kind, values) for (suffix, kind, _), values in zip(parts, columns, strict=True)
    ]


def derive_accumulators(name: str, parts: Sequence[Part], frame: pl.DataFrame) -> list[Value]:
    """The accumulators of partial results, one per row."""
    return list(zip(*(plain_values(frame[f"{name}.{suffix}"]) for suffix, _, _ in parts), strict=True))


def blank(column: pl.Series, where: pl.Series) -> pl.Series:
    """The column with NULL in these rows."""
    return column.zip_with(~where, pl.Series([None], dtype=column.dtype)) if where.any() else column
