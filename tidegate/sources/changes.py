"""Updates of a table's rows as two rows each: the one that is taken back, then the one that is added."""

from __future__ import annotations

import polars as pl

from tidegate.formats.row_kinds import BEFORE, ROW_KIND, UPDATE_AFTER, UPDATE_BEFORE


def spread_updates(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame of a source of changes with the rows before updates in their places, not beside the others.

    Both rows of an update have the metadata and the engine's columns of its record.
    """
    old = [name for name in frame.columns if name.startswith(BEFORE)]
    updates = (frame[ROW_KIND] == UPDATE_AFTER).arg_true()
    rest = frame.drop(old)
    if updates.is_empty():
        return rest
    taken = frame[updates]
    before = rest[updates].with_columns(
        pl.lit(UPDATE_BEFORE, pl.Int8).alias(ROW_KIND),
        *(taken[f"{BEFORE}{name}"].alias(name) for name in rest.columns if f"{BEFORE}{name}" in old),
    )
    places = [pl.int_range(frame.height, eager=True) * 2 + 1, updates.cast(pl.Int64) * 2]
    return pl.concat([rest, before])[pl.concat(places).arg_sort()]
