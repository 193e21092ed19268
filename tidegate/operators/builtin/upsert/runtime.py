"""The runtime of `upsert`: turns rows of changes into records of a topic.

Both rows of an update come from one source record. If they arrive in two batches, the first becomes a tombstone that
the next record replaces. Readers of a topic of upserts must tolerate this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl
from typing_extensions import override

from tidegate.formats.row_kinds import ROW_KIND, UPDATE_AFTER, UPDATE_BEFORE
from tidegate.operators.builtin.upsert import UpsertOperator
from tidegate.operators.runtime import OperatorRuntime, Out
from tidegate.operators.spec import Slot

_RECORD: Final = ("__tidegate_topic", "__tidegate_partition", "__tidegate_offset")
"""The columns that identify the source record of a row."""
_ROW: Final = "__tidegate_row"
"""The place of a row in its batch. No column of a file has this name."""


class UpsertRuntime(OperatorRuntime):
    """Drops retracted rows, or turns them into tombstones."""

    def __init__(self, operator: UpsertOperator, slot: Slot) -> None:  # noqa: ARG002  # as all are opened
        self._place = operator.place
        self._deleted = operator.deleted

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        if self._deleted is not None:
            out.emit(mark_retracted(batch, self._place, self._deleted))
        elif ROW_KIND in batch.columns:
            out.emit(batch.filter(batch[ROW_KIND] != UPDATE_BEFORE))
        else:
            out.emit(batch)


def mark_retracted(batch: pl.DataFrame, place: Sequence[str], deleted: str) -> pl.DataFrame:
    """Marks the row before an update in the column `deleted`. Drops it if the row after the update has the same values
    in `place`, and so replaces it.
    """
    if ROW_KIND not in batch.columns or not (taken := batch[ROW_KIND] == UPDATE_BEFORE).any():
        return batch
    of = [*place, *(name for name in _RECORD if name in batch.columns)]
    rows = batch.select(of).with_row_index(_ROW)
    added = rows.filter(batch[ROW_KIND] == UPDATE_AFTER)
    replaced = rows.filter(taken).join(added, on=of, how="semi", nulls_equal=True)[_ROW]
    marked = batch.with_columns(batch[deleted].fill_null(value=False) | taken)
    return marked.filter(~pl.int_range(batch.height, dtype=pl.UInt32, eager=True).is_in(replaced.implode()))
