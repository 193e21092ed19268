"""How far rows are behind the watermarks of their partitions, measured in C (`messages.c`)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegate.native.arrow import Lent
from tidegate.native.library import Library

if TYPE_CHECKING:
    import polars as pl


def measure_in_c(
    library: Library, name: str, times: pl.Series, origins: Sequence[int], marks: list[int], lag_ms: int
) -> pl.Series:
    """Does the same as `measure_behind` of `operators/lateness.py`."""
    import polars as pl

    count, lent = len(times), Lent(times.cast(pl.Int64))
    reached, behind = array("q", marks), array("q", bytes(8 * count))
    numbers = origins if isinstance(origins, array) else array("i", origins)
    places = None if len(marks) == 1 else numbers.buffer_info()[0]
    library.free.tg_behind(lent.address, count, places, reached.buffer_info()[0], lag_ms, behind.buffer_info()[0])
    marks[:] = reached
    return library.arrow.fixed_column(name, behind.buffer_info()[0], count, pl.Int64)
