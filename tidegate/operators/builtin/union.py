"""The union of several inputs: rows pass in the order of arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tidegate.formats.failures import BadRecordPolicy
from tidegate.operators.runtime import OperatorRuntime, Out, Runtime, system_columns
from tidegate.operators.spec import Columns, Slot, StepOperator, keep_columns

if TYPE_CHECKING:
    import polars as pl


class UnionOperator(StepOperator, frozen=True, tag="union"):
    """Passes on whatever arrives. The inputs have equal columns (validation), maybe in another order."""

    JOINS = True

    output: Columns
    bad_records: BadRecordPolicy

    def produces(self) -> Columns:
        """See Operator."""
        return self.output

    def reads(self) -> set[str]:
        """See Operator."""
        return {name for name, _ in self.output}

    def accepts(self, upstream: Columns) -> Columns:  # noqa: ARG002  # equal columns
        """See Operator. All in the order of its output."""
        return self.output

    def narrowed(self, needed: set[str]) -> UnionOperator:
        """See Operator."""
        return msgspec.structs.replace(self, output=keep_columns(self.output, needed))

    def carries_headers(self, output: str = "") -> bool:  # noqa: ARG002  # there is one
        """See Operator."""
        return True

    def open(self, slot: Slot) -> OperatorRuntime:  # noqa: ARG002  # no state
        """See StepOperator."""
        return _UnionRuntime([name for name, _ in self.output])


class _UnionRuntime(Runtime):
    def __init__(self, columns: list[str]) -> None:
        self._columns = columns

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:  # noqa: ARG002  # all inputs alike
        out.emit(batch[self._columns + system_columns(batch)])
