"""count(distinct x), collect_set and collect_list: accumulators that keep the values themselves, as keys that have an
order (`values.py`).

How much a group may keep is bounded, by what all its rows have: one with more has NULL for its parts, whatever the
order in which the rows came, and no result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final

import polars as pl

from tidegate.datatypes import BIGINT, DataType
from tidegate.formats.columns import make_column, polars_type
from tidegate.operators.aggregation.contract import AggregateTooLarge, Direct, Reduction, Value, blank
from tidegate.operators.aggregation.parts import BYTES_MAX, TIME, VALUES_MAX, Part, key_type
from tidegate.operators.aggregation.values import equal_key, order_key, plain_from_key

TOO_MANY: Final = f"a group has more than {VALUES_MAX:,} values, or {BYTES_MAX >> 20} MiB of them"


class Distinct(Direct):
    """See MergeableAggregate. The different values, sorted, without NULL; `collect` for these, else their number."""

    def __init__(self, name: str, argument: str, kind: DataType, parts: Sequence[Part], *, collect: bool) -> None:
        super().__init__(name, parts)
        self._argument = argument
        self._kind = kind
        self._collect = collect
        (self._column,) = self.columns

    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        keys = equal_key(rows[self._argument], self._kind)
        return self._reduction([keys.alias(self._column)], pl.col(self._column))

    def from_parts(self, parts: pl.DataFrame) -> Reduction:  # noqa: ARG002  # whatever they are
        """See MergeableAggregate."""
        return self._reduction([], pl.col(self._column).explode(), pl.col(self._column).null_count())

    def _reduction(self, columns: list[pl.Series], keys: pl.Expr, lost: pl.Expr | None = None) -> Reduction:
        lost = pl.lit(0, pl.UInt32) if lost is None else lost
        kept = keys.drop_nulls().unique().sort().implode()
        return Reduction(columns, [kept, lost.alias(f"{self._column}.lost")])

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """See MergeableAggregate."""
        (lists,) = super().pack(grouped)
        return [blank(lists, _too_large(lists) | (grouped[f"{self._column}.lost"] > 0))]

    def merge(self, left: Value, right: Value) -> Value:
        """See MergeableAggregate."""
        (one,), (other,) = left, right
        if one is None or other is None:
            return (None,)
        both = tuple(sorted({*one, *other}))
        return (both if is_small(both) else None,)

    def results(self, accumulators: Sequence[Value]) -> pl.Series:
        """See MergeableAggregate."""
        if any(keys is None for (keys,) in accumulators):
            raise AggregateTooLarge(TOO_MANY)
        if self._collect:
            return make_arrays(self.name, self._kind, [keys for (keys,) in accumulators])
        return make_column(self.name, BIGINT, [len(keys) for (keys,) in accumulators])


class Listed(Direct):
    """See MergeableAggregate. All values that are not NULL, by event time, then by value."""

    def __init__(self, name: str, argument: str, kind: DataType, parts: Sequence[Part]) -> None:
        super().__init__(name, parts)
        self._argument = argument
        self._kind = kind

    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        values = rows[self._argument]
        times, keys = self.columns
        known = values.is_not_null()
        added = [
            blank(rows[TIME], ~known).alias(times),
            order_key(values, self._kind).alias(keys),
        ]
        return self._reduction(added, pl.col, pl.lit(0, pl.UInt32))

    def from_parts(self, parts: pl.DataFrame) -> Reduction:  # noqa: ARG002  # whatever they are
        """See MergeableAggregate."""
        return self._reduction([], lambda column: pl.col(column).explode(), pl.col(self.columns[0]).null_count())

    def _reduction(self, added: list[pl.Series], read: Callable[[str], pl.Expr], lost: pl.Expr) -> Reduction:
        order = [read(column) for column in self.columns]
        lists = [read(column).sort_by(order).drop_nulls().implode().alias(column) for column in self.columns]
        return Reduction(added, [*lists, lost.alias(f"{self.columns[0]}.lost")])

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """See MergeableAggregate."""
        times, keys = super().pack(grouped)
        lost = _too_large(keys) | (grouped[f"{self.columns[0]}.lost"] > 0)
        return [blank(times, lost), blank(keys, lost)]

    def merge(self, left: Value, right: Value) -> Value:
        """See MergeableAggregate."""
        if left[0] is None or right[0] is None:
            return None, None
        both = sorted(chain(zip(*left, strict=True), zip(*right, strict=True)))
        times, keys = zip(*both, strict=True) if both else ((), ())
        return (times, keys) if is_small(keys) else (None, None)

    def results(self, accumulators: Sequence[Value]) -> pl.Series:
        """See MergeableAggregate."""
        if any(keys is None for _, keys in accumulators):
            raise AggregateTooLarge(TOO_MANY)
        return make_arrays(self.name, self._kind, [keys for _, keys in accumulators])


def make_arrays(name: str, kind: DataType, lists: Sequence[Sequence[Any]]) -> pl.Series:
    """A column of arrays of the values with these keys."""
    if kind.kind in ("float", "double"):
        lists = [[plain_from_key(key, kind) for key in keys] for keys in lists]
        return pl.Series(name, lists, dtype=pl.List(polars_type(kind)))
    return pl.Series(name, lists, dtype=pl.List(polars_type(key_type(kind)))).cast(pl.List(polars_type(kind)))


def is_small(keys: Sequence[Any]) -> bool:
    """Whether a group may keep so many."""
    if len(keys) > VALUES_MAX:
        return False
    if not keys or not isinstance(keys[0], str | bytes):
        return True
    return sum(map(len, keys)) <= BYTES_MAX // 4 or sum(map(_size, keys)) <= BYTES_MAX


def _size(key: str | bytes) -> int:
    return len(key.encode()) if isinstance(key, str) else len(key)


def _too_large(lists: pl.Series) -> pl.Series:
    """Where a list may not be kept."""
    large = lists.list.len() > VALUES_MAX
    if lists.dtype in (pl.List(pl.String), pl.List(pl.Binary)) and lists.estimated_size() > BYTES_MAX:
        return pl.Series([not is_small(keys) for keys in lists.to_list()], dtype=pl.Boolean)
    return large
