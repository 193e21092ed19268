"""Decimals of types and values that nobody chose, against Spark. The seed is part of the name of the test."""

from __future__ import annotations

import random
from decimal import Decimal, localcontext

import pytest
from pyspark.sql import SparkSession

from tests.expressions.compiled.like_spark import Case, differences

TYPES = ((4, 2), (10, 2), (18, 0), (18, 6), (20, 10), (38, 0), (38, 6), (38, 18), (38, 30), (38, 38), (5, 5))
EXPRESSIONS = (
    *("a + b", "a - b", "a * b", "a / b", "a % b", "a * 1.5", "2 / a", "a < b", "a = b", "a <=> b", "greatest(a, b)"),
    *(
        "coalesce(a, b)",
        "round(a, 1)",
        "round(a)",
        "round(a, -2)",
        "bround(a, 1)",
        "floor(a)",
        "ceil(b)",
        "a in (b, 1)",
        "bround(a, 1)",
    ),
    *(
        "try_cast(a as decimal(10,3))",
        "cast(b as string)",
        "cast(a as double)",
        "cast(a as float)",
        "cast(a as boolean)",
    ),
)


def draw_number(seeded: random.Random, precision: int, scale: int) -> Decimal | None:
    """Of any length, and often one where rounding turns."""
    most = 10**precision - 1
    units = seeded.choice(
        [seeded.randrange(10 ** seeded.randint(1, precision)), 5 * 10 ** seeded.randrange(precision), most, 1, 0]
    )
    with localcontext(prec=60):
        number = Decimal(seeded.choice([1, -1]) * min(units, most)).scaleb(-scale)
    return None if seeded.random() < 0.05 else number


@pytest.mark.slow
@pytest.mark.parametrize("seed", [12, 34])
def test_drawn_decimals_have_sparks_results(spark: SparkSession, seed: int) -> None:
    seeded = random.Random(seed)
    left, right = seeded.choice(TYPES), seeded.choice(TYPES)
    rows = tuple((draw_number(seeded, *left), draw_number(seeded, *right)) for _ in range(10))
    columns = "a decimal({},{}), b decimal({},{})".format(*left, *right)
    found = differences(spark, Case(EXPRESSIONS, columns, rows))
    assert not found, f"{columns}\n" + "\n".join(found)
