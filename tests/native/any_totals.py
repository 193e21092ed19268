"""Draws totals, their columns and rows for `running.c`; some do not belong together."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from tidegate.native.running import TotalDeclaration, TotalFunction, TotalInput

FIELDS = {
    TotalFunction.COUNT: 1,
    TotalFunction.SUM: 1,
    TotalFunction.AVERAGE: 3,
    TotalFunction.MIN: 1,
    TotalFunction.MAX: 1,
    TotalFunction.FIRST: 2,
    TotalFunction.LAST: 1,
}
DOUBLES = (0.0, -0.0, 1.5, 1e300, -1.7e308, 5e-324, math.nan, math.inf, -math.inf)
LONGS = (0, 1, -1, 2**63 - 1, -(2**63), 2**53)


class Drawn(NamedTuple):
    """A call."""

    totals: list[TotalDeclaration]
    numbers: pl.Series
    keys: int
    added: list[TotalInput]


def draw_totals(chance: random.Random) -> Drawn:
    """Totals, and rows that are added to them."""
    keys = chance.randrange(1, 20)
    numbers = pl.Series([chance.randrange(keys) for _ in range(chance.randrange(100))], dtype=pl.UInt32)
    totals, added = [], []
    for place in range(chance.randrange(1, 5)):
        function = chance.choice(list(TotalFunction))
        real = function is TotalFunction.AVERAGE or (function is not TotalFunction.COUNT and chance.random() < 0.5)
        fields = FIELDS[function] + (function is TotalFunction.SUM and real)
        totals.append(TotalDeclaration(f"total-{place}", function, real, chance.random() < 0.5, fields))
        rows = len(numbers)
        argument = (
            None if function is TotalFunction.COUNT and chance.random() < 0.5 else draw_numbers(chance, rows, real=real)
        )
        condition = draw_booleans(chance, rows) if chance.random() < 0.3 else None
        excluded = draw_numbers(chance, keys, real=False) if chance.random() < 0.2 else None
        errors = function in (TotalFunction.SUM, TotalFunction.AVERAGE)
        kept = [draw_numbers(chance, keys, real=real and (not n or (n == 1 and errors))) for n in range(fields)]
        added.append(TotalInput(argument, condition, excluded, kept))
    return Drawn(totals, numbers, keys, added)


def draw_numbers(chance: random.Random, count: int, *, real: bool) -> pl.Series:
    """Doubles or bigints with NULLs."""
    known = chance.choice((0, 0.5, 1, 1))

    def one() -> float:
        if chance.random() < 0.3:
            return chance.choice(DOUBLES if real else LONGS)
        return chance.uniform(-1e6, 1e6) if real else chance.randrange(-1000, 1000)

    found: Sequence[float | None] = [one() if chance.random() < known else None for _ in range(count)]
    return pl.Series(found, dtype=pl.Float64 if real else pl.Int64)


def draw_booleans(chance: random.Random, count: int) -> pl.Series:
    """Booleans with NULLs."""
    return pl.Series([chance.choice((True, False, None)) for _ in range(count)], dtype=pl.Boolean)


def damage(chance: random.Random, drawn: Drawn) -> Drawn:
    """Columns that do not belong together."""
    place = chance.randrange(len(drawn.added))
    total, added = drawn.totals[place], drawn.added[place]
    match chance.randrange(6):
        case 0:
            wrong = pl.Series([*drawn.numbers.to_list(), chance.choice((drawn.keys, 2**32 - 1))], dtype=pl.UInt32)
            return drawn._replace(numbers=wrong, added=[_lengthened(one) for one in drawn.added])
        case 1:
            added = added._replace(argument=draw_numbers(chance, len(drawn.numbers) + 1, real=total.real))
        case 2:
            added = added._replace(condition=draw_booleans(chance, len(drawn.numbers) + 1))
        case 3:
            added = added._replace(excluded=draw_numbers(chance, drawn.keys + 1, real=False))
        case 4:
            added = added._replace(fields=[*added.fields[:-1], added.fields[-1].extend_constant(value=None, n=1)])
        case _:
            added = added._replace(fields=[column.head(0) for column in added.fields])
    return drawn._replace(added=[*drawn.added[:place], added, *drawn.added[place + 1 :]])


def _lengthened(added: TotalInput) -> TotalInput:
    argument, condition = (
        None if column is None else column.extend_constant(value=None, n=1)
        for column in (added.argument, added.condition)
    )
    return added._replace(argument=argument, condition=condition)
