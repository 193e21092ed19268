"""Filter, select and union as the loop sees them."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest

from tests.operators.driven import drive
from tidegate.datatypes import BIGINT, BINARY, BOOLEAN, STRING
from tidegate.expressions.compiled.compiled import COMPILERS, Compiled, strict
from tidegate.expressions.expression import Call, ColumnReference, can_fail
from tidegate.expressions.parse import parse_expression
from tidegate.formats.failures import BadRecordPolicy, FailureKind
from tidegate.ids import OperatorName
from tidegate.operators.builtin.projection import SelectOperator
from tidegate.operators.builtin.union import UnionOperator
from tidegate.operators.kinds.filter import FilterOperator

SCHEMA = {"a": BIGINT, "b": BIGINT}
FRAME = pl.DataFrame(
    {"a": [1, 2, None, 4], "b": [1, 0, 1, 2], "__tidegate_partition": [0] * 4, "__tidegate_offset": [10, 11, 12, 13]}
)

SKIP = BadRecordPolicy.SKIP


def make_filter(text: str) -> FilterOperator:
    return FilterOperator(OperatorName("f"), parse_expression(text, SCHEMA), tuple(SCHEMA.items()), SKIP)


def make_select(**columns: str) -> SelectOperator:
    parsed = tuple((name, parse_expression(text, SCHEMA)) for name, text in columns.items())
    return SelectOperator(OperatorName("s"), parsed, tuple((name, e.type) for name, e in parsed), SKIP)


def test_filter_keeps_true_rows_with_their_system_columns() -> None:
    result = drive(make_filter("a > 1")).process(FRAME)
    assert result is not None
    assert result["a"].to_list() == [2, 4]
    assert result["__tidegate_offset"].to_list() == [11, 13]


def test_filter_that_keeps_nothing_gives_nothing() -> None:
    assert drive(make_filter("a > 100")).process(FRAME) is None


def test_a_failing_predicate_fails_its_row_only() -> None:
    operator = drive(make_filter("a / b > 0"))
    result = operator.process(FRAME)
    assert result is not None
    assert result["__tidegate_offset"].to_list() == [10, 13]
    failures = operator.take_failures()
    assert [failure.row for failure in failures] == [1]
    assert failures[0].kind is FailureKind.DIVIDE_BY_ZERO
    assert operator.take_failures() == []


def test_select_computes_columns_and_passes_system_columns() -> None:
    result = drive(make_select(sum="a + b", a="b")).process(FRAME)
    assert result is not None
    assert set(result.columns) == {"sum", "a", "__tidegate_partition", "__tidegate_offset"}
    assert result.select("sum", "a", "__tidegate_offset").rows() == [(2, 1, 10), (2, 0, 11), (None, 1, 12), (6, 2, 13)]


def test_select_that_fails_for_one_row_drops_and_tells_it() -> None:
    operator = drive(make_select(q="a / b"))
    result = operator.process(FRAME)
    assert result is not None
    assert result["__tidegate_offset"].to_list() == [10, 12, 13]
    assert [failure.row for failure in operator.take_failures()] == [1]


def test_union_brings_columns_into_order() -> None:
    operator = drive(UnionOperator(OperatorName("u"), tuple(SCHEMA.items()), SKIP))
    result = operator.process(FRAME.select("__tidegate_offset", "b", "a"))
    assert result is not None
    assert result.columns == ["a", "b", "__tidegate_offset"]
    assert operator.process(FRAME.clear()) is None


def test_F26_operators_without_state_have_no_snapshot() -> None:
    operators = (
        drive(make_filter("a > 1")),
        drive(make_select(a="a")),
        drive(UnionOperator(OperatorName("u"), (), SKIP)),
    )
    for operator in operators:
        assert operator.runtime.states == {}


RAW = {"v": BINARY}
RAW_FRAME = pl.DataFrame({"v": [b"abc ", b"\xff", None, "ä".encode()], "__tidegate_offset": [10, 11, 12, 13]})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cast(v as string)", ["abc ", None, "ä"]),
        ("upper(v)", ["ABC ", None, "Ä"]),
        ("trim(v)", ["abc", None, "ä"]),
        ("v like 'a%'", [True, None, False]),
        ("contains(v, 'b')", [True, None, False]),
        ("concat(v, '!')", ["abc !", None, "ä!"]),
    ],
)
def test_X13_bytes_that_are_no_utf8_fail_their_row_only(text: str, expected: list[object]) -> None:
    expression = parse_expression(text, RAW)
    operator = drive(SelectOperator(OperatorName("s"), (("r", expression),), (("r", expression.type),), SKIP))
    result = operator.process(RAW_FRAME)
    assert result is not None
    assert result["r"].to_list() == expected
    assert result["__tidegate_offset"].to_list() == [10, 12, 13]
    [failure] = operator.take_failures()
    message = f"CAST_INVALID_INPUT: the value cannot be converted to string in `{text}`"
    assert (failure.row, str(failure)) == (1, message)


def test_X13_try_cast_of_bytes_that_are_no_utf8_is_null() -> None:
    expression = parse_expression("try_cast(v as string)", RAW)
    assert not can_fail(expression)
    operator = drive(SelectOperator(OperatorName("s"), (("r", expression),), (("r", STRING),), SKIP))
    result = operator.process(RAW_FRAME)
    assert result is not None
    assert result["r"].to_list() == ["abc ", None, None, "ä"]
    assert operator.take_failures() == []


def raises_for_four(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """A function with a mistake that nobody knows of."""

    def broken(values: pl.Series) -> pl.Series:
        if 4 in values.to_list():
            raise ZeroDivisionError("four")
        return values > 1

    value = arguments[0].value.map_batches(broken, return_dtype=pl.Boolean, is_elementwise=True)
    return strict(call, arguments, value)


def test_X13_a_row_that_makes_an_expression_raise_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMPILERS, "broken", raises_for_four)
    call = Call("broken", (ColumnReference("a", BIGINT),), BOOLEAN)
    select = drive(SelectOperator(OperatorName("s"), (("r", call),), (("r", BOOLEAN),), SKIP))
    result = select.process(FRAME)
    assert result is not None
    assert result.rows() == [(0, 10, False), (0, 11, True), (0, 12, None)]
    [failure] = select.take_failures()
    assert (failure.row, str(failure)) == (3, "INTERNAL_ERROR: ZeroDivisionError: four")
    keep = drive(FilterOperator(OperatorName("f"), call, tuple(SCHEMA.items()), SKIP))
    result = keep.process(FRAME)
    assert result is not None
    assert result["__tidegate_offset"].to_list() == [11]
    assert [one.row for one in keep.take_failures()] == [3]
    assert keep.process(FRAME[3:]) is None


def test_X13_known_failures_keep_their_rows_when_another_row_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMPILERS, "broken", raises_for_four)
    call = Call("broken", (ColumnReference("a", BIGINT),), BOOLEAN)
    quotient = parse_expression("a div b", SCHEMA)
    columns = (("r", call), ("q", quotient))
    select = drive(SelectOperator(OperatorName("s"), columns, (("r", BOOLEAN), ("q", BIGINT)), SKIP))
    result = select.process(pl.concat([FRAME, FRAME]))
    assert result is not None
    assert result["__tidegate_offset"].to_list() == [10, 12, 10, 12]
    assert [(one.row, one.kind) for one in select.take_failures()] == [
        (1, "DIVIDE_BY_ZERO"),
        (3, "INTERNAL_ERROR"),
        (5, "DIVIDE_BY_ZERO"),
        (7, "INTERNAL_ERROR"),
    ]


def test_X13_a_mistake_without_rows_raises_and_skips_nothing() -> None:
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        drive(make_filter("a > 1")).process(FRAME.drop("a"))
