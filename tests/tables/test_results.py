"""Results of aggregates are what the pipeline itself makes of the accumulators."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import polars as pl
import pytest

from tidegate.datatypes import BIGINT, DOUBLE, DataType, decimal_of
from tidegate.expressions.compiled import compile_projection
from tidegate.expressions.expression import ColumnReference
from tidegate.expressions.parse import parse_aggregate
from tidegate.formats.columns import make_column, plain_values
from tidegate.operators.aggregates.columnar.running import run_counted
from tidegate.operators.aggregates.contract import Aggregate, AggregateUse, derive_choice, derive_columns
from tidegate.operators.aggregates.registry import make_aggregate
from tidegate.state.declaration import StateField
from tidegate.tables.table import derive_result

COLUMNS = {"n": BIGINT, "d": DOUBLE, "price": decimal_of(10, 2), "wide": decimal_of(30, 2), "flag": DataType("boolean")}
RUNNING = (
    *("count(*)", "count(n)", "sum(n)", "sum(d)", "sum(price)", "min(d)", "max(price)", "first(n)", "last(d)"),
    *("avg(d)", "avg(price)", "bool_and(flag)", "bool_or(flag)"),
    *("first(n) filter (where flag is null)", "first(d, true)", "last(d) ignore nulls", "min(n) filter (where flag)"),
)
WINDOWED = (
    *("count(*)", "sum(n)", "sum(d)", "avg(d)", "min(n)", "max(price)", "bool_or(flag)"),
    *("first(n)", "last(price)", "min_by(n, d)", "max_by(price, n)"),
)
UNKNOWN = ("sum(price)", "avg(price)", "stddev_samp(d)", "var_pop(d)", "count(distinct n)", "collect_list(n)")
ROWS: dict[str, list[Any]] = {
    "n": [1, None, 2**62, -5],
    "d": [0.1, None, 0.2, 1e300],
    "price": [Decimal("1.10"), None, Decimal("0.05"), Decimal("-3.00")],
    "wide": [None] * 4,
    "flag": [True, None, False, True],
}


def fields(aggregate: Aggregate) -> list[StateField]:
    return [StateField(f"x.{field.suffix}", field.type, field.nullable) for field in aggregate.fields]


@pytest.mark.parametrize("text", RUNNING)
def test_of_running_totals(text: str) -> None:
    call = parse_aggregate(text, COLUMNS)
    rows = pl.DataFrame([make_column(name, kind, ROWS[name]) for name, kind in COLUMNS.items()])
    if call.condition is not None:  # a plain column, as in a plan
        (rows, _) = compile_projection([("c", call.condition)]).apply(rows, keep=rows.columns)
        call = msgspec.structs.replace(call, condition=ColumnReference("c", DataType("boolean")))
    aggregate = make_aggregate("x", call, AggregateUse.RUNNING)
    accumulators = [[value] for value in aggregate.zero]
    choice = derive_choice(call)
    mask = [True] * 4 if choice is None else choice.derive_mask(rows).to_list()
    results = run_counted(aggregate, [0] * 4, aggregate.read(rows), accumulators, mask)
    result = derive_result("x", fields(aggregate))
    assert result is not None
    assert result.type == call.type
    frame = pl.DataFrame(
        [
            make_column(f"x.{field.suffix}", field.type, held)
            for field, held in zip(aggregate.fields, accumulators, strict=True)
        ]
    )
    found = result.compute(frame)
    assert found.name == "x"
    assert plain_values(found) == [results[-1]]


@pytest.mark.parametrize("text", WINDOWED)
def test_of_windows(text: str) -> None:
    call = parse_aggregate(text, COLUMNS, windowed=True)
    aggregate = make_aggregate("x", call, AggregateUse.WINDOW)
    rows = pl.DataFrame([make_column(name, kind, ROWS[name]) for name, kind in COLUMNS.items()])
    rows = rows.with_columns(pl.Series("__tidegate_time", [4, 3, 2, 1]), pl.Series("key", [1, 1, 1, 2]))
    reduction = aggregate.from_rows(rows)
    grouped = rows.with_columns(reduction.columns).group_by("key", maintain_order=True).agg(reduction.expressions)
    held = list(zip(*(plain_values(column) for column in aggregate.pack(grouped)), strict=True))
    result = derive_result("x", fields(aggregate))
    assert result is not None
    found = result.compute(pl.DataFrame(derive_columns(aggregate, held)))
    expected = make_column("x", call.type, aggregate.results(held))
    assert found.dtype == expected.dtype
    assert found.to_list() == expected.to_list()


@pytest.mark.parametrize("text", UNKNOWN)
def test_what_accumulators_do_not_say_stays_as_it_is(text: str) -> None:
    call = parse_aggregate(text, COLUMNS, windowed=True)
    assert derive_result("x", fields(make_aggregate("x", call, AggregateUse.WINDOW))) is None


def test_an_average_of_decimals_whose_digits_are_cut_off_stays_as_it_is() -> None:
    call = parse_aggregate("avg(wide)", COLUMNS)
    assert derive_result("x", fields(make_aggregate("x", call, AggregateUse.RUNNING))) is None


def test_a_sum_that_leaves_its_range_is_null() -> None:
    parts = (StateField("x.low", BIGINT), StateField("x.carry", BIGINT))
    result = derive_result("x", parts)
    assert result is not None
    assert result.compute(pl.DataFrame({"x.low": [1, 2, None], "x.carry": [0, 1, None]})).to_list() == [1, None, None]
