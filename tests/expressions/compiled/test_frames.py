"""Projections and predicates over frames: failing rows leave, the others stay, system columns pass."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import DEPTH
from tidegate.datatypes import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    decimal_of,
    map_of,
)
from tidegate.expressions.compiled import compile_predicate, compile_projection
from tidegate.expressions.compiled.compiled import COMPILERS
from tidegate.expressions.compiled.compiler import Compiler
from tidegate.expressions.expression import can_fail
from tidegate.expressions.functions import REGISTRY
from tidegate.expressions.functions.core import FUNCTIONS
from tidegate.expressions.parse import ExpressionError, parse_expression
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind, RecordFailure

COLUMNS = {"a": BIGINT, "b": BIGINT, "s": STRING}
FRAME = pl.DataFrame(
    {"a": [1, 2, 2**62, None], "b": [2, 0, 4, 0], "s": ["7", "x", "3", None], "__tidegate_offset": [10, 11, 12, 13]}
)


def project(**columns: str) -> tuple[pl.DataFrame, list[RecordFailure]]:
    compiled = compile_projection([(name, parse_expression(text, COLUMNS)) for name, text in columns.items()])
    return compiled.apply(FRAME, ["__tidegate_offset"])


def test_a_failing_row_leaves_and_is_reported_with_sparks_error_class() -> None:
    found, failures = project(q="a div b")
    assert failures == [RecordFailure(1, FailureKind.DIVIDE_BY_ZERO, "division by zero in `a div b`")]
    assert found.rows() == [(10, 0), (12, 2**60), (13, None)]


def test_the_first_failure_of_a_row_is_the_one_reported() -> None:
    _, failures = project(p="a * b", q="a / b", n="s::int")
    assert [failure.row for failure in failures] == [1, 2]
    assert failures[0].kind is FailureKind.DIVIDE_BY_ZERO
    assert str(failures[1]) == "ARITHMETIC_OVERFLOW: the result is out of range in `a * b`"


def test_all_columns_see_the_old_values() -> None:
    found, failures = project(a="b", b="a")
    assert found.rows() == [(10, 2, 1), (11, 0, 2), (12, 4, 2**62), (13, 0, None)]
    assert failures == []


def test_constants_fill_the_height_of_the_frame() -> None:
    compiled = compile_projection([("k", parse_expression("'x'", {})), ("n", parse_expression("1 + 1", {}))])
    found, failures = compiled.apply(FRAME)
    assert found.rows() == [("x", 2)] * 4
    assert failures == []
    assert compiled.apply(FRAME.clear())[0].height == 0


def test_a_predicate_drops_false_and_null() -> None:
    found, failures = compile_predicate(parse_expression("a > 1", COLUMNS)).apply(FRAME)
    assert found["__tidegate_offset"].to_list() == [11, 12]
    assert failures == []


def test_a_predicate_reports_the_rows_that_it_cannot_judge() -> None:
    found, failures = compile_predicate(parse_expression("a / b > 0", COLUMNS)).apply(FRAME)
    assert found["__tidegate_offset"].to_list() == [10, 12]
    assert failures == [RecordFailure(1, FailureKind.DIVIDE_BY_ZERO, "division by zero in `a / b`")]


def test_a_constant_predicate_judges_every_row() -> None:
    assert compile_predicate(parse_expression("true", COLUMNS)).apply(FRAME)[0].height == 4
    assert compile_predicate(parse_expression("1 = 2", COLUMNS)).apply(FRAME)[0].height == 0
    assert compile_predicate(parse_expression("1 div 1 = 1", COLUMNS)).apply(FRAME)[0].height == 4
    assert len(compile_predicate(parse_expression("1 div 0 = 1", COLUMNS)).apply(FRAME)[1]) == 4


def test_a_constant_of_a_python_function_fills_the_frame() -> None:
    found, failures = project(r="round(2.675D, 2)", m="md5('a')", k="7D % 4D + a")
    assert failures == []
    assert found["r"].to_list() == [2.68] * 4
    assert found["k"].to_list()[:2] == [4.0, 5.0]


def test_a_constant_that_fails_is_met_only_where_it_is_evaluated() -> None:
    _, failures = project(r="if(a = 1, 1 div 0, a)")
    assert failures == [RecordFailure(0, FailureKind.DIVIDE_BY_ZERO, "division by zero in `1 div 0`")]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("element_at(l, 3)", FailureKind.INVALID_ARRAY_INDEX_IN_ELEMENT_AT),
        ("l[2]", FailureKind.INVALID_ARRAY_INDEX),
        ("map(e, a, cast('0.5' as decimal(2,1)), a)", FailureKind.NULL_MAP_KEY),
    ],
)
def test_what_one_constant_fails_for_another_is_said_of_every_row(text: str, kind: FailureKind) -> None:
    """For a constant before a column that has one value in all rows Polars gives one row."""
    first = compile_projection(
        [(name, parse_expression(part, COLUMNS)) for name, part in (("a", "a"), ("l", "array('x', 'y')"))]
    )
    frame = first.apply(FRAME)[0].with_columns(pl.lit(None, pl.Decimal(2, 1)).alias("e"))
    columns = {"a": BIGINT, "l": DataType("array", element=STRING), "e": decimal_of(2, 1)}
    found, failures = compile_projection([("r", parse_expression(text, columns))]).apply(frame)
    assert found.height == 0
    assert [(failure.row, failure.kind) for failure in failures] == [(row, kind) for row in range(4)]


@pytest.mark.parametrize("text", ["a div b", "power(a, 2)", "power(a, b)", "power(2, b)", "power(2, 3)"])
def test_an_empty_frame_stays_empty(text: str) -> None:
    found, failures = compile_projection([("q", parse_expression(text, COLUMNS))]).apply(
        FRAME.clear(), ["__tidegate_offset"]
    )
    assert (found.height, found.columns, failures) == (0, ["__tidegate_offset", "q"], [])


def test_a_column_that_looks_like_a_pattern_is_read_by_its_name() -> None:
    frame = pl.DataFrame({"^a.*$": [1], "ab": [2], "*": [3]})
    columns = {"^a.*$": BIGINT, "*": BIGINT}
    compiled = compile_projection([("r", parse_expression("`^a.*$` + `*`", columns))])
    assert compiled.apply(frame)[0].rows() == [(4,)]


def test_division_is_correctly_rounded_also_by_a_column_of_one_value() -> None:
    numbers = [number / 7 for number in range(1, 500)]
    frame = pl.DataFrame({"x": numbers}).with_columns(pl.lit(3.0).alias("d"))
    columns = {"x": DOUBLE, "d": DOUBLE}
    for text in ("x / d", "x / 3D"):
        found, _ = compile_projection([("r", parse_expression(text, columns))]).apply(frame)
        assert found["r"].to_list() == [number / 3.0 for number in numbers]


def test_nested_functions_do_not_multiply_the_work() -> None:
    text = "s"
    for _ in range(15):
        text = f"lpad(substring(greatest({text}, 'a', 'b'), 1, 5), 4, 'x')"
    compiler = Compiler()
    compiled = compiler.compile(parse_expression(text, COLUMNS))
    exprs = [compiled.value, *(one for stage in compiler.stages for one in stage)]
    assert sum(len(one.meta.root_names()) for one in exprs) < 1_000
    found, _ = compile_projection([("r", parse_expression(text, COLUMNS))]).apply(FRAME)
    assert found["r"].to_list() == ["xxxb", "xxxx", "xxxb", "xxxb"]


def test_nested_constants_are_evaluated_once() -> None:
    """Else each level of arrays and maps multiplies what every batch costs."""
    text = "map('x', map('a', map('b', map('c', array(1, 2)))))['x']['a']['b']"
    assert len(str(Compiler().compile(parse_expression(text, COLUMNS)).value)) < 200
    found, failures = project(r=f"{text}[s]", q=f"{text}['c'][b]")
    assert (found["r"].to_list(), found["q"].to_list()) == ([None, None], [1, 1])
    assert [failure.row for failure in failures] == [0, 2]


def test_every_function_of_the_registry_can_be_compiled() -> None:
    by_means_of_others = [
        "!=",
        "between",
        "positive",
        "if",
        "nullif",
        "nvl2",
        "||",
        "locate",
        "extract",
        "from_unixtime",
        "unix_timestamp",
        "convert_timezone",
    ]
    written_by_others = {*by_means_of_others, "date literal", "timestamp literal", "timestamp_ntz literal"}
    names = FUNCTIONS.keys() - written_by_others
    assert sorted(names - COMPILERS.keys()) == []


EXTREME: dict[str, tuple[DataType, list[Any]]] = {
    "i": (INT, [0, 1, -1, 2**31 - 1, -(2**31), None]),
    "l": (BIGINT, [0, 1, -1, 2**63 - 1, -(2**63), None]),
    "d": (DOUBLE, [0.0, -0.0, 1e308, float("nan"), float("inf"), None]),
    "s": (STRING, ["", "1", "2026-01-31", "\U0001f600", "x" * 300, None]),
    "p": (BOOLEAN, [True, False, None, True, False, None]),
    "t": (TIMESTAMP, [0, 2**63 - 1, -(2**63), 253402300799999999, -62135596800000000, None]),
    "y": (DATE, [0, 2**31 - 1, -(2**31), 2932896, -719162, None]),
    "n": (TIMESTAMP_NTZ, [0, 2**63 - 1, -(2**63), 253402300799999999, -62135596800000000, None]),
    "e": (decimal_of(38, 18), [Decimal(0), Decimal("9" * 20), Decimal("-1E-18"), Decimal("1.5"), None, Decimal(-3)]),
    "c": (decimal_of(5, 2), [Decimal(0), Decimal("999.99"), Decimal("-999.99"), Decimal("0.05"), None, Decimal(-3)]),
    "m": (map_of(STRING, BIGINT), [[], [{"key": "a", "value": 1}], None, [{"key": "", "value": None}], [], None]),
    "v": (DataType("array", element=BIGINT), [[], [1], [None], None, [2**63 - 1], [1, 2, 3]]),
}
LEAVES = [*EXTREME, "null", "0", "-1", "2", "5L", "1.5D", "'a'", "'day'", "''", "date'2026-01-31'", "interval 1 day"]


def _extreme(kind: DataType, values: list[Any]) -> pl.Series:
    plain = kind.kind in ("decimal", "map")
    return pl.Series(values, dtype=polars_type(kind)) if plain else pl.Series(values).cast(polars_type(kind))


@st.composite
def texts(draw: st.DrawFn, depth: int = 3) -> str:
    """Calls of registered functions over columns and constants."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(LEAVES))
    name = draw(st.sampled_from(sorted(REGISTRY)))
    arguments = [draw(texts(depth - 1)) for _ in range(draw(st.integers(1, 3)))]
    if name == "case":
        return f"case when {arguments[0]} then {arguments[-1]} end"
    if name == "[]":
        return f"({arguments[0]})[{arguments[-1]}]"
    if not name[0].isalpha() or name in ("and", "or", "div", "like", "rlike", "in"):
        return f"({arguments[0]}) {name} ({arguments[-1]})"
    return f"{name}({', '.join(arguments)})"


@pytest.mark.slow
@settings(max_examples=130 * DEPTH, deadline=None)
@given(texts())
def test_no_value_makes_polars_raise_and_only_what_can_fail_fails(text: str) -> None:
    columns = {name: kind for name, (kind, _) in EXTREME.items()}
    try:
        expression = parse_expression(text, columns)
    except ExpressionError:
        return
    frame = pl.DataFrame({name: _extreme(kind, values) for name, (kind, values) in EXTREME.items()})
    found, failures = compile_projection([("r", expression)]).apply(frame)
    assert found.height + len(failures) == frame.height
    assert found["r"].dtype == polars_type(expression.type)
    assert can_fail(expression) or not Compiler().compile(expression).failures
