"""Splits updates of a table's rows into two rows: the old one, retracted, and the new one."""

from __future__ import annotations

import polars as pl

from tidegate.formats.row_kinds import BEFORE, ROW_KIND, UPDATE_AFTER, UPDATE_BEFORE


def spread_updates(frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the frame of a changelog source with the rows before updates as rows instead of columns.

    Both rows of an update carry the metadata and the system columns of its record.
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
