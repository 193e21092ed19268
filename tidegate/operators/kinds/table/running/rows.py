"""The runtime of `table-rows`."""

from __future__ import annotations

from functools import reduce
from operator import or_

import polars as pl
from typing_extensions import override

from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.operators.builtin.kafka_source import DELETED
from tidegate.operators.builtin.upsert.runtime import mark_retracted
from tidegate.operators.kinds.table import TableRowsOperator
from tidegate.operators.runtime import OperatorRuntime, Out, Runtime, system_columns


class TableRowsRuntime(Runtime, OperatorRuntime):
    """Checks keys and marks rows that delete theirs.

    The row before an update deletes its key unless the row after it has the same one, as in a topic of upserts.
    """

    def __init__(self, operator: TableRowsOperator) -> None:
        self._keys = list(operator.keys)
        self._output = [name for name, _ in operator.pruned_columns()]

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        lacking = reduce(or_, (batch[key].is_null() for key in self._keys))
        if lacking.any():
            out.fail(batch, [self._failure(batch, row) for row in lacking.arg_true().to_list()])
            batch = batch.filter(~lacking)
        deleted = batch[DELETED].fill_null(value=False) if DELETED in batch.columns else pl.lit(value=False)
        marked = mark_retracted(batch.with_columns(deleted.alias(DELETED)), self._keys, DELETED)
        out.emit(marked[self._output + system_columns(marked)])

    def _failure(self, batch: pl.DataFrame, row: int) -> RecordFailure:
        names = ", ".join(f"`{key}`" for key in self._keys if batch[key][row] is None)
        return RecordFailure(row, FailureKind.NULL_KEY, f"{names} of the table's key is NULL: no row has such a key")
