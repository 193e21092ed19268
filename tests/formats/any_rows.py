"""Random columns of all kinds that C writes as JSON."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import polars as pl

from tidegate.datatypes import FIRST_DAY, FIRST_MOMENT, LAST_DAY, LAST_MOMENT, DataType
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Columns
from tidegate.native.json import WRITTEN_KINDS

COLUMNS: Final[Columns] = [
    (name, DataType(kind)) for kind in sorted(WRITTEN_KINDS) for name in (kind, f'"{kind}" of\n\\ a ü')
]
_CHARACTERS: Final = ("a", "Z", " ", '"', "\\", "\n", "\b", "\x00", "\x1f", "\x7f", "ü", "\u2028", "😀")
_DOUBLES: Final = (0.0, -0.0, float("nan"), float("inf"), -float("inf"), 5e-324, 1.7976931348623157e308, 1e22, 1e23)


def draw_text(rnd: random.Random) -> str:
    """Mostly without anything that has to be escaped; around the lengths of views and words."""
    odd = rnd.random() < 0.3
    length = rnd.choice((0, 1, 7, 8, 9, 12, 13, 16, rnd.randrange(100)))
    return "".join(rnd.choice(_CHARACTERS if odd else "abc-xyz é") for _ in range(length))


def draw_double(rnd: random.Random) -> float:
    """Any bits, decimals of few digits, whole numbers, powers of two, and what is special."""
    bits: float = struct.unpack("<d", rnd.randbytes(8))[0]
    return rnd.choice(
        (
            bits,
            rnd.randrange(-(10**6), 10**6) / 10 ** rnd.randrange(8),
            float(rnd.randrange(-(2**60), 2**60)),
            rnd.random() * 10.0 ** rnd.randrange(-8, 20),
            float(f"{rnd.randrange(1, 10 ** rnd.randrange(1, 18))}e{rnd.randrange(-330, 300)}"),
            2.0 ** rnd.randrange(-1074, 1024),
            rnd.choice(_DOUBLES),
        )
    )


def _draw_whole(bits: int) -> Callable[[random.Random], int]:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return lambda rnd: max(least, min(most, rnd.choice((least, most, 0, rnd.randrange(10 ** rnd.randrange(1, 19))))))


def _draw_moment(rnd: random.Random) -> int:
    moment = rnd.choice((FIRST_MOMENT, LAST_MOMENT, -1, 0, rnd.randrange(FIRST_MOMENT, LAST_MOMENT)))
    return max(FIRST_MOMENT, moment // (unit := rnd.choice((1, 1000, 10**6))) * unit)


_DRAWN: Final[Mapping[str, Callable[[random.Random], Any]]] = {
    "boolean": lambda rnd: rnd.random() < 0.5,
    "tinyint": _draw_whole(8),
    "smallint": _draw_whole(16),
    "int": _draw_whole(32),
    "bigint": _draw_whole(64),
    "double": draw_double,
    "string": draw_text,
    "date": lambda rnd: rnd.choice((FIRST_DAY, LAST_DAY, -1, 0, rnd.randrange(FIRST_DAY, LAST_DAY))),
    "timestamp": _draw_moment,
    "timestamp_ntz": _draw_moment,
}


def draw_column(rnd: random.Random, name: str, kind: DataType, rows: int) -> pl.Series:
    """With NULLs or without, as a slice of a column of several parts."""
    missing, more = rnd.choice((0, 0.2, 1)), rnd.randrange(20)
    values = [None if rnd.random() < missing else _DRAWN[kind.kind](rnd) for _ in range(rows + more)]
    dtype = polars_type(kind)
    physical = {"date": pl.Int32, "timestamp": pl.Int64, "timestamp_ntz": pl.Int64}.get(kind.kind, dtype)
    column = pl.Series(name, values, dtype=physical).cast(dtype)
    cut = rnd.randrange(1, rows)
    return column[more : more + cut].append(column[more + cut :])
