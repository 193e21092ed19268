"""Keeps the rows for which a predicate is true."""

from __future__ import annotations

import polars as pl

from tidegate.expressions.compiled import compile_predicate
from tidegate.operators.base import Stateless, apply_to_rows
from tidegate.plan.graph import FilterOperator


class FilterRuntime(Stateless):
    """NULL drops the row, as in SQL; a row whose predicate cannot be evaluated fails."""

    def __init__(self, operator: FilterOperator) -> None:
        super().__init__()
        self._predicate = compile_predicate(operator.predicate)

    def process(self, frame: pl.DataFrame) -> pl.DataFrame | None:
        """See OperatorRuntime."""
        kept, self._failures = apply_to_rows(frame, self._predicate.apply)
        return kept if kept.height else None
