"""Computes new columns from old ones, all at once."""

from __future__ import annotations

import polars as pl

from tidegate.expressions.compiled import compile_projection
from tidegate.operators.base import Stateless, apply_to_rows, system_columns
from tidegate.plan.graph import SelectOperator


class SelectRuntime(Stateless):
    """A row of which one expression cannot be evaluated fails as a whole."""

    def __init__(self, operator: SelectOperator) -> None:
        super().__init__()
        self._projection = compile_projection(operator.columns)

    def process(self, frame: pl.DataFrame) -> pl.DataFrame | None:
        """See OperatorRuntime."""
        keep = system_columns(frame)
        result, self._failures = apply_to_rows(frame, lambda part: self._projection.apply(part, keep))
        return result if result.height else None
