"""Rows of changes to records of a topic.

Both rows of an update are of one source record. Should they come in two batches, the first becomes a tombstone that the
next record replaces: nobody who reads a topic of upserts may mind.
"""

from __future__ import annotations

from typing import Final

import polars as pl
from typing_extensions import override

from tidegate.formats.row_kinds import ROW_KIND, UPDATE_AFTER, UPDATE_BEFORE
from tidegate.operators.builtin.upsert import UpsertOperator
from tidegate.operators.runtime import OperatorRuntime, Out, Runtime

_RECORD: Final = ("__tidegate_topic", "__tidegate_partition", "__tidegate_offset")
"""What says which source record a row is of."""
_ROW: Final = "__tidegate_row"
"""The place of a row in its batch; no column of a file is called so."""


class UpsertRuntime(Runtime, OperatorRuntime):
    """See the module."""

    def __init__(self, operator: UpsertOperator) -> None:
        self._place = operator.place
        self._deleted = operator.deleted

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:  # one input
        if ROW_KIND not in batch.columns or not (taken := batch[ROW_KIND] == UPDATE_BEFORE).any():
            out.emit(batch)
        elif self._deleted is None:
            out.emit(batch.filter(~taken))
        else:
            out.emit(self._with_tombstones(batch, taken, self._deleted))

    def _with_tombstones(self, batch: pl.DataFrame, taken: pl.Series, deleted: str) -> pl.DataFrame:
        """Without what is replaced in the same place by the row that its update adds."""
        of = [*self._place, *(name for name in _RECORD if name in batch.columns)]
        rows = batch.select(of).with_row_index(_ROW)
        added = rows.filter(batch[ROW_KIND] == UPDATE_AFTER)
        replaced = rows.filter(taken).join(added, on=of, how="semi", nulls_equal=True)[_ROW]
        marked = batch.with_columns(batch[deleted].fill_null(value=False) | taken)
        return marked.filter(~pl.int_range(batch.height, dtype=pl.UInt32, eager=True).is_in(replaced.implode()))
