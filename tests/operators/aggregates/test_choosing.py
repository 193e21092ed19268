"""FILTER and IGNORE NULLS: an aggregate is what it is of the rows that it counts alone, however these are merged."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import polars as pl
import pytest

from tests.operators.aggregates.merging import make_call
from tests.operators.rows import make_frame
from tidegate.datatypes import BIGINT, BOOLEAN, STRING
from tidegate.expressions.expression import AggregateCall, ColumnReference
from tidegate.operators.kinds.window.running.partial import Aggregates

FUNCTIONS = (
    *("count(*)", "count", "sum", "avg", "min", "max", "first", "last", "min_by", "max_by", "stddev_samp", "var_pop"),
    *("count_distinct", "collect_list", "collect_set", "approx_count_distinct", "percentile_approx"),
)
SCHEMA = {"k": STRING, "x": BIGINT, "y": BIGINT, "c": BOOLEAN, "__tidegate_time": BIGINT}
CONDITION = ColumnReference("c", BOOLEAN)
ROWS_OF = ("rows", AggregateCall("count", None, BIGINT))


def make_rows(seed: int, count: int = 60) -> pl.DataFrame:
    """Rows of a few keys, NULL among them; no row of the key `none` counts."""
    draw = random.Random(seed)
    rows: list[tuple[Any, ...]] = []
    for _ in range(count):
        key = draw.choice(["a", "b", None, "none"])
        counts = draw.choice([True, False, None]) if key != "none" else draw.choice([False, None])
        rows.append(
            (key, draw.choice([None, *range(9)]), draw.choice([None, *range(5)]), counts, draw.randrange(1_000))
        )
    return make_frame(SCHEMA, rows)


def results(aggregates: Aggregates, rows: pl.DataFrame, pieces: int = 1) -> dict[Any, Any]:
    """The first result of each key, of rows that are reduced in pieces."""
    size = max(1, rows.height // pieces)
    parts = [aggregates.reduce_rows(rows[start : start + size], ["k"]) for start in range(0, rows.height, size)]
    whole = aggregates.reduce_parts(pl.concat(parts), ["k"])
    return dict(zip(whole["k"].to_list(), aggregates.results_of(whole)[0].to_list(), strict=True))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("pieces", [1, 7])
def test_a_filtered_aggregate_is_that_of_the_rows_that_count(function: str, pieces: int) -> None:
    rows, call = make_rows(1), make_call(function, BIGINT)
    filtered = msgspec.structs.replace(call, condition=CONDITION)
    found = results(Aggregates([("x", filtered), ("other", call), ROWS_OF]), rows, pieces)
    expected = results(Aggregates([("x", call)]), rows.filter("c"))
    assert found.keys() == {"a", "b", None, "none"}, "a group in which no row counts is there"
    assert found == expected | {"none": [] if "collect" in function else 0 if "count" in function else None}


@pytest.mark.parametrize("function", ["first", "last"])
@pytest.mark.parametrize("condition", [None, CONDITION])
def test_nulls_are_ignored(function: str, condition: ColumnReference | None) -> None:
    rows, call = make_rows(2), make_call(function, BIGINT)
    ignoring = msgspec.structs.replace(call, condition=condition, ignore_nulls=True)
    found = results(Aggregates([("x", ignoring), ("plain", call)]), rows, 5)
    counted = rows.filter(pl.col("x").is_not_null() & (pl.lit(value=True) if condition is None else pl.col("c")))
    expected = results(Aggregates([("x", call)]), counted)
    assert found == {"none": None} | expected


def test_a_step_may_filter_each_aggregate_in_its_own_way() -> None:
    rows = make_rows(3).with_columns(d=pl.col("x") > 4)
    call = make_call("sum", BIGINT)
    by_c, by_d = (msgspec.structs.replace(call, condition=ColumnReference(name, BOOLEAN)) for name in "cd")
    aggregates = Aggregates([("c", by_c), ("all", call), ("d", by_d)])
    parts = aggregates.reduce_rows(rows, ["k"]).sort("k")
    for index, counted in enumerate((rows.filter("c"), rows, rows.filter("d"))):
        found = dict(zip(parts["k"], aggregates.results_of(parts)[index], strict=True))
        sums = dict(counted.group_by("k").agg(pl.col("x").sum()).iter_rows())
        assert {key: value or 0 for key, value in found.items()} == dict.fromkeys(found, 0) | sums
