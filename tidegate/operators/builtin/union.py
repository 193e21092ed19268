"""The union of several inputs: rows pass in the order of arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.formats.failures import BadRecordPolicy
from tidegate.operators.runtime import OperatorRuntime, Out, Runtime, system_columns
from tidegate.operators.spec import Columns, Slot, StepOperator

if TYPE_CHECKING:
    import polars as pl


class UnionOperator(StepOperator, frozen=True, tag="union"):
    """Passes on whatever arrives. The inputs have equal columns (validation), maybe in another order."""

    JOINS = True

    output: Columns
    bad_records: BadRecordPolicy

    def output_columns(self, output: str = "") -> Columns:  # noqa: ARG002  # there is one
        """See Operator."""
        return self.output

    def reads(self, port: int = 0) -> set[str]:  # noqa: ARG002  # there is one
        """See Operator."""
        return {name for name, _ in self.pruned_columns()}

    def preserves_record(self, output: str = "") -> bool:  # noqa: ARG002  # there is one
        """See Operator."""
        return True

    def open(self, slot: Slot) -> OperatorRuntime:  # noqa: ARG002  # no state
        """See StepOperator."""
        return _UnionRuntime([name for name, _ in self.pruned_columns()])


class _UnionRuntime(Runtime):
    def __init__(self, columns: list[str]) -> None:
        self._columns = columns

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:  # noqa: ARG002  # all inputs alike
        out.emit(batch[self._columns + system_columns(batch)])
