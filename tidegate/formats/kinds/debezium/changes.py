"""Rows of change events as frames, for any encoding: columns of every source, row kinds, and rows before updates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import polars as pl

from tidegate.formats.kinds.debezium import DELETED, OP
from tidegate.formats.kinds.debezium.envelope import DELETE, UPDATE
from tidegate.formats.row_kinds import BEFORE, INSERT, ROW_KIND, UPDATE_AFTER
from tidegate.formats.row_kinds import DELETE as DELETED_ROW

_KINDS: Final = {UPDATE: UPDATE_AFTER, DELETE: DELETED_ROW}


def make_frame(
    rows: Iterable[pl.Series], ops: pl.Series, output: Sequence[str], before: Iterable[pl.Series] | None
) -> pl.DataFrame:
    """Adds the columns that every source has to the rows' columns; returns those in `output`, in its order.

    `before` holds columns of the rows before updates, in the order of the updates; None if there are no retractions.
    """
    made = {one.name: one for one in (*rows, (ops == DELETE).alias(DELETED), ops.alias(OP))}
    columns = [made[name] for name in output]
    if before is not None:
        updates = (ops == UPDATE).arg_true()
        places = _NOWHERE.new_from_index(0, len(ops)).scatter(updates, range(len(updates)))
        kinds = ops.replace_strict(_KINDS, default=INSERT, return_dtype=pl.Int8())
        columns += [kinds.alias(ROW_KIND), *(one.gather(places).alias(f"{BEFORE}{one.name}") for one in before)]
    return pl.DataFrame(columns) if columns else pl.DataFrame(height=len(ops))


_NOWHERE: Final = pl.Series([None], dtype=pl.UInt32())
