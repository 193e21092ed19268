"""Running totals of a batch in C (`running.c`): the rows are added to the totals of their keys, in order.

What C is not certain to compute like `Aggregate.run` to the last bit is left over.
"""

from __future__ import annotations

import ctypes
import itertools
from array import array
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidegate.native.arrow import Lent, import_many, import_series

if TYPE_CHECKING:
    import polars as pl

FIELDS_MAX: Final = 3
_REFUSED: Final = -1


class TotalFunction(IntEnum):
    """`enum function` of `running.c`. The comments list the fields of an accumulator."""

    COUNT = 0  # count
    SUM = 1  # sum; of doubles sum, error
    AVERAGE = 2  # of doubles: sum, error, count
    MIN = 3  # value
    MAX = 4  # value
    FIRST = 5  # value, whether there is one
    LAST = 6  # value


class _Total(ctypes.Structure):
    """`total` of `running.c`."""

    _fields_ = (
        ("names", ctypes.c_char_p * (1 + FIELDS_MAX)),
        ("function", ctypes.c_int32),
        ("real", ctypes.c_int32),
        ("takes_null", ctypes.c_int32),
        ("field_count", ctypes.c_int32),
        ("argument", ctypes.c_void_p),
        ("condition", ctypes.c_void_p),
        ("excluded", ctypes.c_void_p),
        ("fields", ctypes.c_void_p * FIELDS_MAX),
        ("left", ctypes.c_void_p),
        ("left_count", ctypes.c_int64),
    )


class TotalDeclaration(NamedTuple):
    """A total of the step: its function, and what it keeps for each key."""

    name: str
    function: TotalFunction
    real: bool
    """Whether the first field is a Float64, and for sums and averages the second. All others are Int64."""
    takes_null: bool
    fields: int


class TotalInput(NamedTuple):
    """What is added to a total, in columns."""

    argument: pl.Series | None
    """Float64 or Int64 as the first field, one value per row; of any type for COUNT; None: each row is counted."""
    condition: pl.Series | None
    """Boolean: the rows that count. None: all of them."""
    excluded: pl.Series | None
    """Keys with a value here are left over. None: no key is."""
    fields: Sequence[pl.Series]
    """The accumulators, one value per key. NULL is 0."""


class TotalsOutput(NamedTuple):
    """The results of all totals after each row, their new fields one after the other, and the rows left over of each.

    The results of these rows are NULL, and not in the fields.
    """

    results: Sequence[pl.Series]
    fields: Sequence[pl.Series]
    left: Sequence[Sequence[int]]


class NativeTotals:
    """Running totals in C."""

    def __init__(
        self, library: ctypes.CDLL, totals: Sequence[TotalDeclaration], lend: Callable[[pl.Series], Lent] = Lent
    ) -> None:
        self._run, self._last_rows = library.tg_running, library.tg_last_rows
        self._run.restype = self._last_rows.restype = ctypes.c_int32
        address, number = ctypes.c_void_p, ctypes.c_int64
        self._run.argtypes = [address, number, address, number, address, address]
        self._last_rows.argtypes = [address, number, address, address]
        self._lend = lend
        names = itertools.count()
        self._totals = (_Total * len(totals))(*(_total_of(total, names) for total in totals))

    def run(self, numbers: pl.Series, keys: int, added: Sequence[TotalInput]) -> TotalsOutput:
        """Adds rows. `numbers` (UInt32) has the number of each row's key, below `keys`.

        Raises MemoryError, and ValueError for columns that do not belong together.
        """
        lent = [self._lend(numbers)]

        def lend(column: pl.Series | None) -> int | None:
            if column is None:
                return None
            lent.append(self._lend(column))
            return lent[-1].address

        for total, one in zip(self._totals, added, strict=True):
            total.argument, total.condition, total.excluded = (
                lend(one.argument),
                lend(one.condition),
                lend(one.excluded),
            )
            total.fields[: len(one.fields)] = [lend(field) for field in one.fields]
        left: list[Sequence[int]] = []

        def fill(arrays: Any, schemas: Any) -> int:
            found = _checked(self._run(lent[0].address, keys, self._totals, len(self._totals), arrays, schemas))
            if found:  # the rows that are left over are valid until the columns are imported
                left.extend(_rows_at(total.left, total.left_count) for total in self._totals)
            return found

        results, fields = (column.struct.unnest().get_columns() for column in import_many(2, fill))
        return TotalsOutput(results, fields, left)

    def last_rows(self, numbers: pl.Series, keys: int) -> pl.Series:
        """Returns the last row of each key, in order (UInt32). Raises like `run`."""
        lent = self._lend(numbers)
        return import_series(lambda *to: _checked(self._last_rows(lent.address, keys, *to)))


def _total_of(total: TotalDeclaration, names: Iterator[int]) -> _Total:
    """Returns a total whose fields have names that occur once in a step."""
    made = _Total(function=total.function, real=total.real, takes_null=total.takes_null, field_count=total.fields)
    made.names[: 1 + total.fields] = [total.name.encode(), *(str(next(names)).encode() for _ in range(total.fields))]
    return made


def _checked(found: int) -> int:
    if found == _REFUSED:
        raise ValueError("the columns do not match the totals")
    return found


def _rows_at(address: int | None, count: int) -> Sequence[int]:
    rows = array("I")
    if count:
        rows.frombytes(ctypes.string_at(address or 0, 4 * count))
    return rows.tolist()
