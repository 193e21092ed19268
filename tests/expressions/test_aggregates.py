"""Calls of aggregate functions are typed as Spark does, or refused with a reason."""

from __future__ import annotations

import msgspec
import pytest

from tidegate.datatypes import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, DataType
from tidegate.expressions import aggregates
from tidegate.expressions.expression import AggregateCall, Cast, ColumnReference, Literal
from tidegate.expressions.parse import (
    ExpressionError,
    check_alone,
    names_in,
    parse_aggregate,
    parse_expression,
)
from tidegate.operators.aggregates.contract import AggregateUse
from tidegate.operators.aggregates.registry import functions_for

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
        ("count(name)", AggregateCall("count", ColumnReference("name", STRING), BIGINT)),
        ("SUM(amount)", AggregateCall("sum", ColumnReference("amount", DOUBLE), DOUBLE)),
        ("sum(qty)", AggregateCall("sum", Cast(ColumnReference("qty", INT), BIGINT), BIGINT)),
        ("avg(qty)", AggregateCall("avg", Cast(ColumnReference("qty", INT), DOUBLE), DOUBLE)),
        ("min(name)", AggregateCall("min", ColumnReference("name", STRING), STRING)),
        ("max(at)", AggregateCall("max", ColumnReference("at", TIMESTAMP), TIMESTAMP)),
        ("first(paid)", AggregateCall("first", ColumnReference("paid", BOOLEAN), BOOLEAN)),
        ("last(name)", AggregateCall("last", ColumnReference("name", STRING), STRING)),
        ("every(paid)", AggregateCall("bool_and", ColumnReference("paid", BOOLEAN), BOOLEAN)),
    ],
)
def test_an_aggregate_has_sparks_type(text: str, expected: AggregateCall) -> None:
    assert parse_aggregate(text, COLUMNS) == expected
    assert parse_aggregate(text, COLUMNS, windowed=True) == expected


NAME, PAID = ColumnReference("name", STRING), ColumnReference("paid", BOOLEAN)
LAST = AggregateCall("last", NAME, STRING)
KNOWN = msgspec.structs.replace(LAST, ignore_nulls=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("last(name, true)", KNOWN),
        ("last(name) IGNORE NULLS", KNOWN),
        ("last(name ignore nulls)", KNOWN),
        ("last_value(name, true)", KNOWN),
        ("last(name, true) ignore nulls", KNOWN),
        ("last(name, false) ignore nulls", KNOWN),
        ("last(name, true) respect nulls", KNOWN),
        ("last(name, false)", LAST),
        ("last(name) respect nulls", LAST),
        ("any_value(name)", AggregateCall("first", NAME, STRING)),
        ("any_value(name ignore nulls)", AggregateCall("first", NAME, STRING, ignore_nulls=True)),
        ("first_value(name, true)", AggregateCall("first", NAME, STRING, ignore_nulls=True)),
        ("count(*) FILTER (WHERE paid)", AggregateCall("count", None, BIGINT, condition=PAID)),
        (
            "sum(amount) filter(where paid)",
            AggregateCall("sum", ColumnReference("amount", DOUBLE), DOUBLE, condition=PAID),
        ),
        (
            "last(name) filter (where paid) ignore nulls",
            AggregateCall("last", NAME, STRING, condition=PAID, ignore_nulls=True),
        ),
        ("max(name) respect nulls", AggregateCall("max", NAME, STRING)),
    ],
)
def test_an_aggregate_takes_sparks_clauses(text: str, expected: AggregateCall) -> None:
    assert parse_aggregate(text, COLUMNS) == expected
    assert parse_aggregate(text, COLUMNS, windowed=True) == expected
    check_alone(text, aggregate=True)
    again = parse_aggregate(expected.text, COLUMNS)
    assert again == expected


def test_what_a_clause_names_is_read() -> None:
    text = "count(distinct name) filter (where qty > 5 and day is not null)"
    call = parse_aggregate(text, COLUMNS, windowed=True)
    assert call.columns == {"name", "qty", "day"} == names_in(text)
    assert call.text == "count(distinct name) filter (where qty > 5 and day is not null)"
    assert msgspec.json.decode(msgspec.json.encode(call), type=AggregateCall) == call
    assert parse_aggregate("collect_list(name) ignore nulls", COLUMNS, windowed=True).ignore_nulls is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sum(amount) ignore nulls", "1:13: `sum` does not take IGNORE NULLS; leave it out: NULLs do not count"),
        ("count(*) ignore nulls", "1:10: `count` does not take IGNORE NULLS; leave it out, or write `count(x)`"),
        (
            "max_by(name, qty) ignore nulls",
            "1:19: `max_by` does not take IGNORE NULLS; write `max_by(x, y) filter (where x is not null)`",
        ),
        (
            "array_agg(name) respect nulls",
            "1:17: `array_agg` does not take RESPECT NULLS: its result never contains NULLs; leave it out, or collect",
        ),
        (
            "last(name, 1)",
            "1:12: `last` takes true or false as second argument: whether NULLs are ignored; write `last(x, true)`",
        ),
        (
            "last(name, null)",
            "1:12: `last` takes true or false as second argument: whether NULLs are ignored; write `last(x, true)`",
        ),
        (
            "last(name, paid)",
            "1:12: `last` takes true or false as second argument: whether NULLs are ignored; write `last(x, true)`",
        ),
        ("last(name, true, 1)", "1:1: `last` takes 1 to 2 arguments, not 3; see `tidegate docs expressions`"),
        (
            "sum(qty) filter (where qty)",
            "1:24: FILTER needs a boolean, not int; compare it with something, for instance",
        ),
        ("sum(qty) filter (where null)", "1:24: FILTER needs a boolean, not void; compare it with something"),
        ("sum(qty) filter (qty > 1)", "1:18: unexpected `qty`; write sum(...) filter (where condition)"),
        ("sum(qty) filter (where none > 1)", "1:24: there is no column `none`; the columns are"),
        ("sum(qty) filter (where count(*) > 1)", "1:24: the aggregate function `count` is not allowed here"),
        ("sum(qty) filter qty > 1", "1:10: unexpected `filter`; write it after the call of an aggregate function: sum"),
        (
            "last(name) ignore nulls filter (where paid)",
            "1:25: unexpected `filter`; FILTER comes first: last(...) filter (where condition) ignore nulls",
        ),
        ("name ignore nulls", "1:6: unexpected `ignore`; write it after the call: last(x) ignore nulls"),
        ("last(name) ignore nulls over (order by id)", "1:1: the window function `last(...) over` is not supported"),
        ("upper(name) filter (where paid)", "1:1: this is not a single call of an aggregate function"),
        ("count_if(paid)", "1:1: there is no aggregate function `count_if`; use `count(*) filter (where condition)`"),
    ],
)
def test_a_clause_that_does_not_fit_is_refused_with_a_remedy(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_aggregate(text, COLUMNS, windowed=True)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("clause", ["filter (where paid)", "ignore nulls"])
def test_only_aggregate_functions_have_clauses(clause: str) -> None:
    for parse in (lambda text: parse_expression(text, COLUMNS), lambda text: check_alone(text, aggregate=True)):
        with pytest.raises(
            ExpressionError, match="`upper` does not take FILTER or IGNORE NULLS; only aggregate functions"
        ):
            parse(f"upper(name) {clause}")
    with pytest.raises(ExpressionError, match="the aggregate function `sum` is not allowed here"):
        parse_expression(f"sum(qty) {clause}", COLUMNS)


WINDOWED = [
    ("count(DISTINCT name)", AggregateCall("count_distinct", ColumnReference("name", STRING), BIGINT)),
    ("collect_set(qty)", AggregateCall("collect_set", ColumnReference("qty", INT), DataType("array", element=INT))),
    ("array_agg(day)", AggregateCall("collect_list", ColumnReference("day", DATE), DataType("array", element=DATE))),
    (
        "min_by(name, at)",
        AggregateCall("min_by", ColumnReference("name", STRING), STRING, (ColumnReference("at", TIMESTAMP),)),
    ),
    ("stddev(qty)", AggregateCall("stddev_samp", Cast(ColumnReference("qty", INT), DOUBLE), DOUBLE)),
    ("var_pop(name)", AggregateCall("var_pop", Cast(ColumnReference("name", STRING), DOUBLE), DOUBLE)),
    ("approx_count_distinct(id)", AggregateCall("approx_count_distinct", ColumnReference("id", BIGINT), BIGINT)),
    ("percentile_approx(qty, 0.5)", AggregateCall("percentile_approx", ColumnReference("qty", INT), INT, (HALF,))),
]


@pytest.mark.parametrize(("text", "expected"), WINDOWED)
def test_an_aggregate_of_a_window_has_sparks_type(text: str, expected: AggregateCall) -> None:
    assert parse_aggregate(text, COLUMNS, windowed=True) == expected


@pytest.mark.parametrize(
    "text", [text for text, call in WINDOWED if call.function not in functions_for(AggregateUse.RUNNING)]
)
def test_an_aggregate_without_running_totals_asks_for_a_window(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"only in windows.*add `window`"):
        parse_aggregate(text, COLUMNS)


def test_what_is_typed_is_what_there_is() -> None:
    """What is declared for running totals is what there is a function for, and the other way round."""
    typed = {one.name.replace(" ", "_"): one.running for one in aggregates.AGGREGATES.values()}
    assert typed.keys() == functions_for(AggregateUse.WINDOW)
    assert {name for name, running in typed.items() if running} == functions_for(AggregateUse.RUNNING)


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
        ("percentile_approx(qty, amount)", "needs a literal from 0 to 1"),
        ("percentile_approx(qty, true)", "needs a literal from 0 to 1"),
        ("percentile_approx(at, 0.5)", "needs a whole number, a float or a double, not timestamp"),
        ("min_by(name)", "takes 2 arguments, not 1"),
        ("max_by(name, tags)", "needs values that have an order"),
        ("collect_list(address)", "state holds plain values"),
        ("count(distinct id, name)", "takes 1 argument, not 2"),
        ("count(distinct *)", r"`\*` is only allowed in count\(\*\)"),
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
        ("upper(name)", "this is not a single call of an aggregate function", "use one of count, sum, "),
        ("sum(amount) + 1", "this is not a single call of an aggregate function", "use one of count, sum, "),
    ],
)
def test_what_is_no_aggregate_is_refused_with_what_was_meant(text: str, problem: str, remedy: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_aggregate(text, COLUMNS, windowed=True)
    assert caught.value.problem == problem
    assert caught.value.remedy.startswith(remedy)
