"""The runtime of `route`. Imported only where operators run, because it imports Polars."""

from __future__ import annotations

from typing import Final

import polars as pl
from typing_extensions import override

from tidegate.expressions.compiled import compile_projection
from tidegate.formats.failures import RecordFailure
from tidegate.operators.kinds.route import RouteOperator
from tidegate.operators.rowwise import apply_to_rows, without_failed
from tidegate.operators.runtime import OperatorRuntime, Out, system_columns
from tidegate.operators.spec import Slot

_CHOICE: Final = "__tidegate_choice"


class RouteRuntime(OperatorRuntime):
    """Distributes rows. Each output gets its rows in the order of arrival."""

    def __init__(self, operator: RouteOperator, slot: Slot) -> None:  # noqa: ARG002  # as all are opened
        self._projection = compile_projection([(_CHOICE, operator.choice)])
        self._outputs = [(one, [name for name, _ in operator.pruned_columns(one)]) for one in operator.side_outputs()]

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        chosen, failures = apply_to_rows(batch, self._choose)
        if failures:
            out.fail(batch, failures)
        choice, system = chosen[_CHOICE], system_columns(batch)
        for index, (name, columns) in enumerate(self._outputs):
            mask = choice == index
            # Filter column by column, since filtering a frame creates a query plan for each batch.
            out.side(name, pl.DataFrame([chosen[column].filter(mask) for column in (*columns, *system)]))

    def _choose(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[RecordFailure]]:
        chosen, failures = self._projection.apply(frame)
        if failures:
            frame = without_failed(frame, failures)
        return frame.hstack(chosen), failures
