"""Calls of aggregate functions are typed as Spark does, or refused with a reason."""

from __future__ import annotations

import msgspec
import pytest

from tidegate.datatypes import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, DataType
from tidegate.expressions import aggregates
from tidegate.expressions.expression import AggregateCall, Cast, Column, Literal
from tidegate.expressions.parse import ExpressionError, parse_aggregate

COLUMNS = {
    "id": BIGINT,
    "qty": INT,
    "amount": DOUBLE,
    "name": STRING,
    "paid": BOOLEAN,
    "at": TIMESTAMP,
    "day": DATE,
    "tags": DataType("array", element=STRING),
    "address": DataType("struct", fields=(("city", STRING),)),
}
HALF = Literal(0.5, DOUBLE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("count(*)", AggregateCall("count", None, BIGINT)),
        ("count(name)", AggregateCall("count", Column("name", STRING), BIGINT)),
        ("SUM(amount)", AggregateCall("sum", Column("amount", DOUBLE), DOUBLE)),
        ("sum(qty)", AggregateCall("sum", Cast(Column("qty", INT), BIGINT), BIGINT)),
        ("avg(qty)", AggregateCall("avg", Cast(Column("qty", INT), DOUBLE), DOUBLE)),
        ("min(name)", AggregateCall("min", Column("name", STRING), STRING)),
        ("max(at)", AggregateCall("max", Column("at", TIMESTAMP), TIMESTAMP)),
        ("first(paid)", AggregateCall("first", Column("paid", BOOLEAN), BOOLEAN)),
        ("last(name)", AggregateCall("last", Column("name", STRING), STRING)),
        ("every(paid)", AggregateCall("bool_and", Column("paid", BOOLEAN), BOOLEAN)),
    ],
)
def test_an_aggregate_has_sparks_type(text: str, expected: AggregateCall) -> None:
    assert parse_aggregate(text, COLUMNS) == expected
    assert parse_aggregate(text, COLUMNS, windowed=True) == expected


WINDOWED = [
    ("count(DISTINCT name)", AggregateCall("count_distinct", Column("name", STRING), BIGINT)),
    ("collect_set(qty)", AggregateCall("collect_set", Column("qty", INT), DataType("array", element=INT))),
    ("array_agg(day)", AggregateCall("collect_list", Column("day", DATE), DataType("array", element=DATE))),
    ("min_by(name, at)", AggregateCall("min_by", Column("name", STRING), STRING, (Column("at", TIMESTAMP),))),
    ("stddev(qty)", AggregateCall("stddev_samp", Cast(Column("qty", INT), DOUBLE), DOUBLE)),
    ("var_pop(name)", AggregateCall("var_pop", Cast(Column("name", STRING), DOUBLE), DOUBLE)),
    ("approx_count_distinct(id)", AggregateCall("approx_count_distinct", Column("id", BIGINT), BIGINT)),
    ("percentile_approx(qty, 0.5)", AggregateCall("percentile_approx", Column("qty", INT), INT, (HALF,))),
]


@pytest.mark.parametrize(("text", "expected"), WINDOWED)
def test_an_aggregate_of_a_window_has_sparks_type(text: str, expected: AggregateCall) -> None:
    assert parse_aggregate(text, COLUMNS, windowed=True) == expected


@pytest.mark.parametrize("text", [text for text, _ in WINDOWED])
def test_an_aggregate_without_running_totals_asks_for_a_window(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"needs a window.*add `window`"):
        parse_aggregate(text, COLUMNS)


def test_a_function_whose_package_is_missing_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregates, "find_spec", lambda package: None)
    with pytest.raises(
        ExpressionError, match=r"datasketches, which is not installed; pip install 'tidegate\[sketches\]'"
    ):
        parse_aggregate("approx_count_distinct(id)", COLUMNS, windowed=True)
    assert parse_aggregate("percentile_approx(id, 0.5)", COLUMNS, windowed=True).others == (HALF,)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("percentile_approx(qty, 1.5)", "1.5 is not between 0 and 1"),
        ("percentile_approx(qty, amount)", "needs a number from 0 to 1"),
        ("percentile_approx(qty, true)", "needs a number from 0 to 1"),
        ("percentile_approx(at, 0.5)", "needs a whole number, a float or a double, not timestamp"),
        ("min_by(name)", "takes 2 arguments, not 1"),
        ("max_by(name, tags)", "needs values that have an order"),
        ("collect_list(address)", "state keeps plain values"),
        ("count(distinct id, name)", "takes 1 argument, not 2"),
        ("count(distinct *)", r"`\*` stands only in count\(\*\)"),
        ("count()", "takes an argument"),
        ("bool_and(qty)", "needs a boolean, not int"),
        ("variance(day)", "needs a number, not date"),
        ("max(null)", "bare NULL"),
    ],
)
def test_an_aggregate_of_a_window_is_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(ExpressionError, match=problem):
        parse_aggregate(text, COLUMNS, windowed=True)


def test_columns_and_text_of_an_aggregate() -> None:
    call = parse_aggregate("max_by(name, qty + 1)", COLUMNS, windowed=True)
    assert call.columns == {"name", "qty"}
    assert call.text == "max_by(name, qty + 1)"
    assert parse_aggregate("count(*)", COLUMNS).text == "count(*)"
    assert parse_aggregate("count(distinct id)", COLUMNS, windowed=True).text == "count(distinct id)"
    assert msgspec.json.decode(msgspec.json.encode(call), type=AggregateCall) == call


@pytest.mark.parametrize(
    "text",
    ["qty", "sum(qty) + 1", "sum(*)", "sum(paid)", "count(distinct id)", "median(qty)", "min(tags)", "sum(qty, id)"],
)
def test_what_is_not_one_aggregate_call_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse_aggregate(text, COLUMNS)


@pytest.mark.parametrize(
    ("text", "problem", "remedy"),
    [
        ("summ(amount)", "there is no aggregate function `summ`", "did you mean `sum`?"),
        ("cuont(*)", "there is no aggregate function `cuont`", "did you mean `count`?"),
        ("zzz(amount)", "there is no aggregate function `zzz`", "use one of count, sum, "),
        ("upper(name)", "this is not one call of an aggregate function", "use one of count, sum, "),
        ("sum(amount) + 1", "this is not one call of an aggregate function", "use one of count, sum, "),
    ],
)
def test_what_is_no_aggregate_is_refused_with_what_was_meant(text: str, problem: str, remedy: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_aggregate(text, COLUMNS, windowed=True)
    assert caught.value.problem == problem
    assert caught.value.remedy.startswith(remedy)
