"""The union of several inputs: rows pass in the order of arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from tidegate.formats.failures import BadRecordPolicy
from tidegate.operators.runtime import OperatorRuntime, Out, system_columns
from tidegate.operators.spec import Columns, Slot, StepOperator

if TYPE_CHECKING:
    import polars as pl


class UnionOperator(StepOperator, frozen=True, tag="union"):
    """Passes on all rows. Validation ensures that the inputs have the same columns, possibly in another order."""

    JOINS = True

    output: Columns
    bad_records: BadRecordPolicy

    @override
    def open(self, slot: Slot) -> OperatorRuntime:
        return _UnionRuntime([name for name, _ in self.pruned_columns()])


class _UnionRuntime(OperatorRuntime):
    def __init__(self, columns: list[str]) -> None:
        self._columns = columns

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:  # noqa: ARG002  # all inputs alike
        out.emit(batch[self._columns + system_columns(batch)])
