"""Several inputs into one: rows pass in the order of arrival."""

from __future__ import annotations

import polars as pl

from tidegate.operators.base import Stateless
from tidegate.plan.graph import UnionOperator


class UnionRuntime(Stateless):
    """The inputs have equal columns (validation), maybe in another order."""

    def __init__(self, operator: UnionOperator) -> None:
        super().__init__()
        self._columns = [name for name, _ in operator.output]

    def process(self, frame: pl.DataFrame) -> pl.DataFrame | None:
        """See OperatorRuntime."""
        if not frame.height:
            return None
        system = [name for name in frame.columns if name.startswith("__")]
        return frame[self._columns + system]
