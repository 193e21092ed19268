"""Fits rows in flight of a checkpoint to the current step, for a slot that restores them and for the check before a
start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.formats.columns import polars_type
from tidegate.formats.row_kinds import ROW_KIND, UPDATE_BEFORE
from tidegate.operators.calls.spec import IN_FLIGHT, CallOperator
from tidegate.operators.event_time import TIME
from tidegate.operators.runtime import system_columns
from tidegate.operators.spec import Requirement, render_columns
from tidegate.state.errors import StateUnreadable

if TYPE_CHECKING:
    import polars as pl

_REMEDY = (
    "start with the old definition, stop it with SIGTERM (its final checkpoint leaves nothing in flight), then "
    "change it"
)


def fit_rows(operator: CallOperator, frame: pl.DataFrame) -> pl.DataFrame:
    """Returns rows in flight with the columns that the step has now. Raises StateUnreadable."""
    kept = operator.kept_rows()
    wrong = [
        f"have no column {name} {kind}"
        for name, kind in kept
        if name not in frame.columns or frame[name].dtype != polars_type(kind)
    ]
    planned = operator.planned
    if Requirement.EVENT_TIME in planned.carries and TIME not in frame.columns:
        wrong.append("have no event time, which a downstream step now needs")
    if Requirement.ROW_KIND in planned.carries and ROW_KIND not in frame.columns:
        wrong.append("have no row kind, which a downstream step now needs")
    elif not planned.some_kinds and ROW_KIND in frame.columns and (frame[ROW_KIND] == UPDATE_BEFORE).any():
        wrong.append("contain retractions, which no downstream step processes now")
    if wrong:
        raise StateUnreadable(
            f"{frame.height} rows in flight of {operator.name} {wrong[0]} (they have "
            f"{render_columns(frame.schema.items())}); {_REMEDY}",
            operator=operator.name,
            state=IN_FLIGHT.name,
        )
    return frame.select([name for name, _ in kept] + system_columns(frame))
