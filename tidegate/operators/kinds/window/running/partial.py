"""Partial results: all aggregates of a step combined, and the rows that wait to be reduced to partial results.

Rows are not aggregated batch by batch, because reducing 50,000 rows at once costs little more than reducing 2,500.
Their partial results wait as a frame until a window is due, a snapshot is taken, or they exceed a limit. Only then is
the state accessed, once for each key and slice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import polars as pl

from tidegate.expressions.bounds import GROWING
from tidegate.expressions.expression import AggregateCall
from tidegate.formats.columns import make_column, plain_values
from tidegate.operators.aggregates.contract import (
    Aggregate,
    AggregateUse,
    Reduction,
    RowChoice,
    Value,
    derive_accumulators,
    derive_choice,
    derive_columns,
)
from tidegate.operators.aggregates.registry import make_aggregate


def reduce_rows(rows: pl.DataFrame, by: Sequence[str], aggregates: Sequence[Aggregate]) -> pl.DataFrame:
    """Returns one row per group of rows, in no order: the columns `by`, then the parts of each aggregate."""
    return _reduced(rows, by, aggregates, [aggregate.from_rows(rows) for aggregate in aggregates])


def reduce_parts(parts: pl.DataFrame, by: Sequence[str], aggregates: Sequence[Aggregate]) -> pl.DataFrame:
    """Returns one row per group of partial results, with the same columns."""
    return _reduced(parts, by, aggregates, [aggregate.from_parts(parts) for aggregate in aggregates])


def fill_parts(parts: pl.DataFrame, by: Sequence[str], columns: Mapping[str, pl.Series]) -> pl.DataFrame:
    """Returns partial results with `columns`, in this order. Aggregates that `parts` lacks get the values of a group
    without rows.

    Each of `columns` has one value: that of a group without rows.
    """
    found = [
        parts[name] if name in parts.columns else nothing.new_from_index(0, parts.height)
        for name, nothing in columns.items()
    ]
    return pl.DataFrame([*(parts[name] for name in by), *found])


def _reduced(
    frame: pl.DataFrame,
    by: Sequence[str],
    aggregates: Sequence[Aggregate],
    reductions: Sequence[Reduction],
) -> pl.DataFrame:
    added = [column for reduction in reductions for column in reduction.columns]
    whole = frame.with_columns(added) if added else frame
    grouped = whole.group_by(by).agg(expression for reduction in reductions for expression in reduction.expressions)
    packed = [column for aggregate in aggregates for column in aggregate.pack(grouped)]
    return pl.DataFrame([*(grouped[name] for name in by), *packed])


AT: Final = "__tidegate_at"
"""The column of the local time of a partial result: the end of a slice, or a due time."""
ROWS_MAX: Final = 40_000
"""The maximum number of rows that wait to be reduced; fewer if they have many times and keys."""
ROWS_LEAST: Final = 2_000
"""The minimum number of rows that is worth reducing."""
BYTES_MAX: Final = 16 << 20
PARTS_MAX: Final = 8_000
"""The approximate maximum of partial results outside the state, since a snapshot must store them in one call."""


class Aggregates:
    """All aggregates of a step. A value is the sequence of the accumulators of all of them, as in the state."""

    def __init__(self, calls: Sequence[tuple[str, AggregateCall]]) -> None:
        self._all = [make_aggregate(name, call, AggregateUse.WINDOW) for name, call in calls]
        self._spans: list[tuple[Aggregate, int, int]] = []
        start = 0
        for one in self._all:
            self._spans.append((one, start, start + len(one.fields)))
            start += len(one.fields)
        choices = [derive_choice(call) for _, call in calls]
        self._chosen: dict[RowChoice | None, list[Aggregate]] = {None: []}
        """The aggregates by the rows that they count; None: all rows."""
        for choice, one in zip(choices, self._all, strict=True):
            self._chosen.setdefault(choice, []).append(one)
        self._of_no_rows = {
            column: make_column(column, field.type, [field.zero])
            for one in self._all
            for column, field in zip(one.columns, one.fields, strict=True)
        }
        parts = [(field.suffix, field.type.kind) for one in self._all for field in one.fields]
        self.growing = [place for place, (suffix, kind) in enumerate(parts) if kind in GROWING and suffix != "rest"]
        """The places of parts that may be large. What sums keep besides their numbers is not large."""
        self.made = self.weight = 0
        """The number of results so far, and the approximate bytes of their partial results."""

    def reduce_rows(self, rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
        """Reduces rows to partial results, in no order. An aggregate that counts no row of a group has its initial
        values.
        """
        if len(self._chosen) == 1:
            return reduce_rows(rows, by, self._all)
        found: list[pl.DataFrame] = []
        for choice, some in self._chosen.items():
            chosen = rows if choice is None else rows.filter(choice.derive_mask(rows))
            found.append(fill_parts(reduce_rows(chosen, by, some), by, self._of_no_rows))
        return reduce_parts(pl.concat(found), by, self._all)

    def reduce_parts(self, parts: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
        """Reduces partial results to one per group, in no order."""
        return reduce_parts(parts, by, self._all)

    def merge(self, left: Value, right: Value) -> Value:
        """Returns the value of the rows of both."""
        merged: list[Any] = []
        for one, start, end in self._spans:
            merged += one.merge(left[start:end], right[start:end])
        return tuple(merged)

    def values_of(self, parts: pl.DataFrame) -> list[Value]:
        """Returns the values of partial results."""
        names = (column for one in self._all for column in one.columns)
        return list(zip(*(plain_values(parts[name]) for name in names), strict=True))

    def columns_of(self, values: Sequence[Value]) -> list[pl.Series]:
        """Returns the columns of partial results for values."""
        columns: list[pl.Series] = []
        for one, start, end in self._spans:
            columns += derive_columns(one, [value[start:end] for value in values])
        return columns

    def results_of_values(self, values: Sequence[Value]) -> list[pl.Series]:
        """Returns the result columns of values. Raises as Aggregate.results does."""
        self.made += len(values)
        self.weight += sum(_weigh(value[place]) for place in self.growing for value in values)
        if len(self._spans) == 1:
            return [results_column(self._spans[0][0], values)]
        columns = list(zip(*values, strict=True))
        return [results_column(one, list(zip(*columns[start:end], strict=True))) for one, start, end in self._spans]

    def results_of(self, parts: pl.DataFrame) -> list[pl.Series]:
        """Returns the result columns of partial results. Raises as Aggregate.results does."""
        self.made += parts.height
        self.weight += int(parts.estimated_size())
        return [results_column(one, derive_accumulators(one, parts)) for one in self._all]


def results_column(aggregate: Aggregate, accumulators: Sequence[Value]) -> pl.Series:
    """Returns the results of accumulators as a column named after the aggregate. Raises as Aggregate.results does."""
    return make_column(aggregate.name, aggregate.call.type, aggregate.results(accumulators))


def _weigh(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if not isinstance(value, tuple):
        return 0
    return 8 * len(value) + (sum(map(len, value)) if value and isinstance(value[0], str | bytes) else 0)


class Buffer:
    """Rows and partial results by time and key that are not in the state yet."""

    def __init__(
        self,
        aggregates: Aggregates,
        keys: Sequence[str],
        times_of: Callable[[pl.DataFrame], pl.Series],
        first_of: Callable[[pl.DataFrame], int],
        entries: int = 1,
    ) -> None:
        """`times_of` returns the local time of each row, `first_of` the earliest one of a batch.

        `entries`: how many state entries a partial result may become.
        """
        self._aggregates = aggregates
        self._by = [AT, *keys]
        self._times_of = times_of
        self._first_of = first_of
        self._rows: list[pl.DataFrame] = []
        self._height = 0
        self._parts_max = max(1, PARTS_MAX // entries)
        self._rows_least = ROWS_LEAST // entries
        self._height_max = self._rows_least
        self._size = 0
        self._parts: list[pl.DataFrame] = []
        """Each frame is reduced: a time and key occurs once in it."""
        self._first: int | None = None
        """A lower bound of all times; None while it is empty."""

    def __len__(self) -> int:
        """Returns an upper bound of the partial results, not counting waiting rows."""
        return sum(map(attrgetter("height"), self._parts))

    @property
    def first(self) -> int | None:
        """The first time or a lower bound of it; None while it is empty."""
        return self._first

    def add(self, rows: pl.DataFrame) -> None:
        """Adds rows with the key, argument and system columns; at least one."""
        first = self._first_of(rows)
        self._first = first if self._first is None else min(first, self._first)
        self._rows.append(rows)
        self._height += rows.height
        self._size += int(rows.estimated_size())
        if self._height > self._height_max or self._size > BYTES_MAX:
            self._make_room()

    def put_back(self, parts: pl.DataFrame) -> None:
        """Puts back partial results that were taken, reduced, and not used."""
        if parts.height:
            first = int(parts[AT].min())  # type: ignore[arg-type]  # Int64
            self._first = first if self._first is None else min(first, self._first)
            self._parts.append(parts)

    @property
    def excess(self) -> int:
        """How many partial results must move into the state to make room for rows."""
        return len(self) - self._parts_max // 2 if len(self) > self._parts_max - self._rows_least else 0

    def take(self, limit: int | None = None) -> pl.DataFrame | None:
        """Removes and returns partial results: all, or at most `limit`."""
        if self._first is None:
            return None
        whole = self._empty()
        if limit is not None:
            self.put_back(whole[limit:])
            whole = whole[:limit]
        return whole

    def take_due(self, until: int) -> pl.DataFrame | None:
        """Removes and returns the partial results whose time is not after `until`."""
        if self._first is None or self._first > until:
            return None
        whole = self._empty()
        due = whole[AT] <= until
        self.put_back(whole.filter(~due))
        return whole.filter(due) if due.any() else None

    def _empty(self) -> pl.DataFrame:
        """Removes and returns everything, reduced."""
        self._reduce_rows()
        parts, self._parts, self._first = self._parts, [], None
        return parts[0] if len(parts) == 1 else self._aggregates.reduce_parts(pl.concat(parts), self._by)

    def _make_room(self) -> None:
        """Reduces the rows. Sets how many more may wait by the number of partial results that these have yielded."""
        before, rows = len(self), self._height
        self._reduce_rows()
        if len(self) > self._parts_max // 2 and len(self._parts) > 1:
            self.put_back(self._empty())
        brought = max(1, len(self) - before)
        room = (self._parts_max - len(self)) * rows // brought
        self._height_max = min(ROWS_MAX, max(self._rows_least, room))

    def _reduce_rows(self) -> None:
        if not self._rows:
            return
        rows = pl.concat(self._rows, rechunk=True)
        self._rows, self._height, self._size = [], 0, 0
        self._parts.append(self._aggregates.reduce_rows(rows.with_columns(self._times_of(rows).alias(AT)), self._by))
