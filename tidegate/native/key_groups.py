"""Key groups of rows, the rows of each subtask, and how far rows are behind watermarks, in C (`key_groups.c`)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidegate.native.arrow import Lent
from tidegate.native.library import Library

if TYPE_CHECKING:
    import polars as pl

_TEXT, _BYTES, _TRUTH, _INT8, _INT16, _INT32, _INT64 = range(7)
"""Kinds of key columns, as in `key_groups.c`."""
_KINDS: Final = {
    "String": _TEXT,
    "Binary": _BYTES,
    "Boolean": _TRUTH,
    "Int8": _INT8,
    "Int16": _INT16,
    "Int32": _INT32,
    "Int64": _INT64,
    "Date": _INT32,
    "Datetime": _INT64,
}
"""By name of their type in Polars. Decimals are left to Polars."""


def find_groups(library: Library, columns: Sequence[pl.Series], max_parallelism: int) -> array[int] | None:
    """Returns the key group of each row, as 16-bit numbers; None for types of keys that C does not hash.

    Raises MemoryError.
    """
    names = [type(column.dtype).__name__ for column in columns]
    if not _KINDS.keys() >= {*names}:
        return None
    lent, count = [Lent(column) for column in columns], len(columns[0])
    addresses, numbers = array("Q", [one.address for one in lent]), array("i", [_KINDS[name] for name in names])
    groups = array("H", bytes(2 * count))
    given = (addresses.buffer_info()[0], numbers.buffer_info()[0], len(columns), count, max_parallelism)
    if not library.free.tg_key_groups(*given, groups.buffer_info()[0]):
        raise MemoryError("no memory to hash keys")
    return groups


def distribute(library: Library, groups: array[int], owners: array[int], subtasks: int) -> list[pl.Series]:
    """Returns the rows of each subtask, in order. `owners` has the subtask of each group, as 16-bit numbers."""
    import polars as pl

    count = len(groups)
    rows, ends = array("I", bytes(4 * count)), array("q", bytes(8 * subtasks))
    at = rows.buffer_info()[0]
    given = (groups.buffer_info()[0], count, owners.buffer_info()[0], subtasks)
    library.free.tg_distribute(*given, at, ends.buffer_info()[0])
    begins = [0, *ends[:-1]]
    return [
        library.arrow.fixed_column("rows", at + 4 * begin, end - begin, pl.UInt32)
        for begin, end in zip(begins, ends, strict=True)
    ]


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
