"""The runtime of `keyed-input`. Imported only where operators run, because it imports Polars."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import polars as pl
from typing_extensions import override

from tidegate.expressions.compiled import compile_projection
from tidegate.operators.builtin.keyed_input import UNMATCHED, KeyedInputOperator
from tidegate.operators.rowwise import apply_to_rows
from tidegate.operators.runtime import OperatorRuntime, Out, system_columns

if TYPE_CHECKING:
    from tidegate.formats.failures import RecordFailure


class KeyedInputRuntime(OperatorRuntime):
    """Computes the keys and separates the rows with a NULL key."""

    def __init__(self, operator: KeyedInputOperator) -> None:
        self._projection = compile_projection(operator.pruned_expressions)
        self._keys = operator.keys

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        made, failures = apply_to_rows(batch, self._project)
        if failures:
            out.fail(batch, failures)
        if any(made[key].null_count() for key in self._keys):
            whole = reduce(and_, (made[key].is_not_null() for key in self._keys))
            out.side(UNMATCHED, made.filter(~whole))
            made = made.filter(whole)
        out.emit(made)

    def _project(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[RecordFailure]]:
        return self._projection.apply(frame, system_columns(frame))
