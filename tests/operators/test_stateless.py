"""Filter, select and union as the loop sees them."""

from __future__ import annotations

import polars as pl

from tidegate.datatypes import BIGINT
from tidegate.ids import OperatorName
from tidegate.operators.filter import FilterRuntime
from tidegate.operators.select import SelectRuntime
from tidegate.operators.union import UnionRuntime
from tidegate.plan.graph import FilterOperator, SelectOperator, UnionOperator
from tidegate.plan.parse import parse_expression

SCHEMA = {"a": BIGINT, "b": BIGINT}
FRAME = pl.DataFrame({"a": [1, 2, None, 4], "b": [1, 0, 1, 2], "__partition": [0] * 4, "__offset": [10, 11, 12, 13]})


def make_filter(text: str) -> FilterOperator:
    return FilterOperator(OperatorName("f"), parse_expression(text, SCHEMA), tuple(SCHEMA.items()), "skip")


def make_select(**columns: str) -> SelectOperator:
    parsed = tuple((name, parse_expression(text, SCHEMA)) for name, text in columns.items())
    return SelectOperator(OperatorName("s"), parsed, tuple((name, e.type) for name, e in parsed), "skip")


def test_filter_keeps_true_rows_with_their_system_columns() -> None:
    result = FilterRuntime(make_filter("a > 1")).process(FRAME)
    assert result is not None
    assert result["a"].to_list() == [2, 4]
    assert result["__offset"].to_list() == [11, 13]


def test_filter_that_keeps_nothing_gives_nothing() -> None:
    assert FilterRuntime(make_filter("a > 100")).process(FRAME) is None


def test_a_failing_predicate_fails_its_row_only() -> None:
    operator = FilterRuntime(make_filter("a / b > 0"))
    result = operator.process(FRAME)
    assert result is not None
    assert result["__offset"].to_list() == [10, 13]
    failures = operator.take_failures()
    assert [failure.row for failure in failures] == [1]
    assert failures[0].reason.startswith("DIVIDE_BY_ZERO")
    assert operator.take_failures() == []


def test_select_computes_columns_and_passes_system_columns() -> None:
    result = SelectRuntime(make_select(sum="a + b", a="b")).process(FRAME)
    assert result is not None
    assert set(result.columns) == {"sum", "a", "__partition", "__offset"}
    assert result.select("sum", "a", "__offset").rows() == [(2, 1, 10), (2, 0, 11), (None, 1, 12), (6, 2, 13)]


def test_select_that_fails_for_one_row_drops_and_tells_it() -> None:
    operator = SelectRuntime(make_select(q="a / b"))
    result = operator.process(FRAME)
    assert result is not None
    assert result["__offset"].to_list() == [10, 12, 13]
    assert [failure.row for failure in operator.take_failures()] == [1]


def test_union_brings_columns_into_order() -> None:
    operator = UnionRuntime(UnionOperator(OperatorName("u"), tuple(SCHEMA.items())))
    result = operator.process(FRAME.select("__offset", "b", "a"))
    assert result is not None
    assert result.columns == ["a", "b", "__offset"]
    assert operator.process(FRAME.clear()) is None


def test_F26_operators_without_state_have_no_snapshot() -> None:
    operators = (
        FilterRuntime(make_filter("a > 1")),
        SelectRuntime(make_select(a="a")),
        UnionRuntime(UnionOperator(OperatorName("u"), ())),
    )
    for operator in operators:
        assert operator.state is None
