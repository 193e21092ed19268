"""Splits batches by key group, for the exchange between subtasks."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegate.native.key_groups import distribute
from tidegate.native.library import loaded
from tidegate.state.keygroups import find_groups_in_c, key_group_of

if TYPE_CHECKING:
    import polars as pl


class KeyGroupPartitioner:
    """Splits batches by the subtask that owns the key group of each row."""

    def __init__(self, keys: Sequence[str], owned: Sequence[range], max_parallelism: int) -> None:
        """`owned`: the key groups of each subtask, in order, all groups together."""
        self._keys = keys
        self._owned = owned
        self._max_parallelism = max_parallelism
        self._owners = array("H", [subtask for subtask, groups in enumerate(owned) for _ in groups])

    def split(self, frame: pl.DataFrame) -> list[pl.DataFrame]:
        """Returns the rows of each subtask, in order."""
        library, found = loaded(), find_groups_in_c(frame, self._keys, self._max_parallelism)
        if library is not None and found is not None:
            return [frame[rows] for rows in distribute(library, found, self._owners, len(self._owned))]
        groups = key_group_of(frame, self._keys, self._max_parallelism)
        return [_rows(frame, (groups >= owned.start) & (groups < owned.stop)) for owned in self._owned]


def _rows(frame: pl.DataFrame, mask: pl.Series) -> pl.DataFrame:
    """Filters like `frame.filter(mask)`, but without a query plan per batch, which would dominate for small batches."""
    import polars as pl

    return pl.DataFrame([column.filter(mask) for column in frame.get_columns()])
