"""A keyed state of partial results by local time and key, with conversion from and to frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from tidegate.datatypes import DataType
from tidegate.formats.columns import make_column, plain_values
from tidegate.operators.aggregates.contract import Value
from tidegate.operators.kinds.window.running.partial import AT, Aggregates
from tidegate.state.order import Row
from tidegate.state.time_ordered import Timed, TimeOrdered


class Store:
    """Partial results in state. The first column of a frame of them is `AT`, followed by the keys and the parts."""

    def __init__(self, state: TimeOrdered, aggregates: Aggregates, keys: Sequence[tuple[str, DataType]]) -> None:
        self.state = state
        self._aggregates = aggregates
        self._keys = keys

    def __len__(self) -> int:
        """Returns the number of entries."""
        return len(self.state)

    def add(self, parts: pl.DataFrame) -> list[Row]:
        """Merges partial results, one per time and key, into the state. Returns their times and keys."""
        rows = self.rows_of(parts)
        self.merge(rows, self._aggregates.values_of(parts))
        return rows

    def merge(self, rows: Sequence[Row], values: Sequence[Value | None]) -> list[Value | None]:
        """Merges values that are not None into the entries of these times and keys. Returns the resulting entries."""
        merged: list[Value | None] = []
        for old, new in zip(self.state.get_many(rows), values, strict=True):
            merged.append(old if new is None else new if old is None else self._aggregates.merge(old, new))
        changed = [(row, whole) for row, whole, new in zip(rows, merged, values, strict=True) if new is not None]
        if changed:
            self.state.put_many(*map(list, zip(*changed, strict=True)))
        return merged

    def rows_of(self, frame: pl.DataFrame) -> list[Row]:
        """Returns times and keys in the form of the state."""
        columns = [frame[AT].to_list(), *(plain_values(frame[name]) for name, _ in self._keys)]
        return list(zip(*columns, strict=True))

    def frame_of(self, rows: Sequence[Row], values: Sequence[Value]) -> pl.DataFrame:
        """Returns entries as a frame."""
        return pl.DataFrame([*key_columns(rows, self._keys), *self._aggregates.columns_of(values)])

    def take_due(self, until: int, limit: int) -> pl.DataFrame | None:
        """Removes and returns entries whose time is not after `until`, in the order of their times."""
        taken: list[Timed] = self.state.take_due(until, limit)
        if not taken:
            return None
        rows, values = zip(*taken, strict=True)
        return self.frame_of(rows, values)


def key_columns(rows: Sequence[Row], keys: Sequence[tuple[str, DataType]]) -> list[pl.Series]:
    """Returns times and keys as columns."""
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * (1 + len(keys))
    times = pl.Series(AT, columns[0], dtype=pl.Int64)
    named = zip(keys, columns[1:], strict=True)
    return [times, *(make_column(name, kind, values) for (name, kind), values in named)]
