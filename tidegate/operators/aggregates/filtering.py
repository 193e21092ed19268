"""FILTER and IGNORE NULLS: the rows of a group that an aggregate counts. Aggregates never see the other rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidegate.expressions.expression import AggregateCall, ColumnReference

if TYPE_CHECKING:
    import polars as pl  # the plan does not need it


class RowChoice(NamedTuple):
    """The rows to count. Aggregates with equal choices count the same rows."""

    condition: str
    """A boolean column that is true for the rows that count; empty: all rows."""
    known: str
    """A column that is not NULL in the rows that count; empty: all rows."""

    def derive_mask(self, rows: pl.DataFrame) -> pl.Series:
        """Returns for each row True if it counts. A condition that is NULL is not true."""
        masks = [rows[self.condition].fill_null(value=False)] if self.condition else []
        masks += [rows[self.known].is_not_null()] if self.known else []
        return masks[0] & masks[1] if len(masks) > 1 else masks[0]


def derive_choice(call: AggregateCall) -> RowChoice | None:
    """Returns the choice of rows that a call over plain columns counts; None: all rows."""
    if not call.is_filtered:
        return None
    return RowChoice(_name_of(call.condition), _name_of(call.argument) if call.ignore_nulls else "")


def _name_of(column: object) -> str:
    return column.name if isinstance(column, ColumnReference) else ""
