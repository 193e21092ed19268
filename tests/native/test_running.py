"""`running.c` alone: what it refuses, and what it leaves over. What it computes is in `operators/aggregates`."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import polars as pl
import pytest

from tests.depth import DEPTH
from tests.native.any_totals import damage, draw_totals
from tests.native.compiled import compiled_library
from tests.native.lent_exactly import LentExactly
from tidegate.native.arrow import Lent
from tidegate.native.running import NativeTotals, TotalDeclaration, TotalFunction, TotalInput, TotalsOutput


def values_of(moved: TotalsOutput) -> str:
    return repr([[column.to_list() for column in (*moved.results, *moved.fields)], moved.left])


@pytest.mark.parametrize("seed", range(1, 1 + 20 * DEPTH))
def test_columns_may_begin_anywhere_in_a_buffer(seed: int) -> None:
    drawn = draw_totals(random.Random(seed))
    expected, found = (
        NativeTotals(compiled_library(), drawn.totals, lend).run(drawn.numbers, drawn.keys, drawn.added)
        for lend in (Lent, LentExactly)
    )
    assert values_of(found) == values_of(expected)


@pytest.mark.parametrize("seed", range(1, 1 + 20 * DEPTH))
def test_columns_that_do_not_belong_together_are_refused(seed: int) -> None:
    chance = random.Random(seed)
    drawn = damage(chance, draw_totals(chance))
    with pytest.raises(ValueError, match="do not match"):
        NativeTotals(compiled_library(), drawn.totals).run(drawn.numbers, drawn.keys, drawn.added)


@pytest.mark.parametrize(
    "kept",
    [
        TotalDeclaration("a", TotalFunction.AVERAGE, False, False, 3),
        TotalDeclaration("a", TotalFunction.SUM, True, False, 1),
        TotalDeclaration("a", TotalFunction.LAST, True, False, 2),
        TotalDeclaration("a", 7, True, False, 1),  # type: ignore[arg-type]  # that is no function
    ],
)
def test_totals_that_cannot_be_are_refused(kept: TotalDeclaration) -> None:
    column = pl.Series([0])
    added = TotalInput(column, None, None, [column] * kept.fields)
    with pytest.raises(ValueError, match="do not match"):
        NativeTotals(compiled_library(), [kept]).run(pl.Series([0], dtype=pl.UInt32), 1, [added])


def test_the_row_that_is_not_certain_is_left_over_and_all_later_ones_of_its_key() -> None:
    totals = NativeTotals(compiled_library(), [TotalDeclaration("sum", TotalFunction.SUM, False, False, 1)])
    numbers = pl.Series([0, 1, 0, 1, 0], dtype=pl.UInt32)
    values = pl.Series([2**63 - 1, 1, 1, 2, -1])
    moved = totals.run(numbers, 2, [TotalInput(values, None, None, [pl.Series([None, None], dtype=pl.Int64)])])
    assert moved.left == [[2, 4]]
    assert moved.results[0].to_list() == [2**63 - 1, 1, None, 3, None]
    assert moved.fields[0].to_list() == [2**63 - 1, 3]


def test_the_last_row_of_each_key() -> None:
    totals = NativeTotals(compiled_library(), [])
    assert totals.last_rows(pl.Series([0, 1, 0, 2], dtype=pl.UInt32), 3).to_list() == [1, 2, 3]
    assert totals.last_rows(pl.Series([], dtype=pl.UInt32), 0).to_list() == []
    with pytest.raises(ValueError, match="do not match"):
        totals.last_rows(pl.Series([0, 1], dtype=pl.UInt32), 1)


def averages(pairs: list[tuple[float, float, int]]) -> tuple[list[Any], set[int]]:
    """(high + low) / count of each, and the places of those that are left over."""
    totals = NativeTotals(compiled_library(), [TotalDeclaration("avg", TotalFunction.AVERAGE, True, False, 3)])
    high, low, count = (pl.Series(part) for part in zip(*pairs, strict=True))
    nothing = pl.Series([None] * len(pairs), dtype=pl.Float64)
    numbers = pl.Series(range(len(pairs)), dtype=pl.UInt32)
    moved = totals.run(numbers, len(pairs), [TotalInput(nothing, None, None, [high, low, count])])
    return moved.results[0].to_list(), set(moved.left[0])


def draw_pair(chance: random.Random) -> tuple[float, float, int]:
    """A sum in two doubles, and a count; the quotient of some is in the middle of two doubles, or next to it."""
    count = chance.choice([chance.randrange(1, 10), chance.randrange(1, 2**26), 2 ** chance.randrange(26)])
    high = chance.choice([chance.randrange(1, 10**6) / 100, chance.uniform(0, 1) * 10.0 ** chance.randint(-9, 9)])
    low = chance.choice([0.5, 0.25, chance.uniform(0, 0.5), 2.0**-30]) * math.ulp(high)
    if chance.random() < 0.5:
        quotient = chance.choice([high, 2.0 ** chance.randrange(9), math.nextafter(2.0 ** chance.randrange(9), 0)])
        middle = (Fraction(quotient) + Fraction(math.ulp(quotient)) / 2) * count
        high = float(middle)
        low = float(middle - Fraction(high)) * chance.choice([1, 1, 1 - 2.0**-52, 1 + 2.0**-52])
    low = low if high + low == high else 0.0
    sign = chance.choice((1, -1))
    return sign * high, sign * low * chance.choice((1, -1)), count


@pytest.mark.parametrize("seed", range(1, 1 + DEPTH))
def test_averages_are_rounded_once(seed: int) -> None:
    chance = random.Random(seed)
    pairs = [pair for pair in (draw_pair(chance) for _ in range(2000)) if pair[0] + pair[1] == pair[0]]
    found, left = averages(pairs)
    for place, (high, low, count) in enumerate(pairs):
        exact = (Fraction(high) + Fraction(low)) / count
        assert place in left or found[place] == exact.numerator / exact.denominator, (high, low, count)
    assert len(left) < len(pairs) / 20
