"""`route`: the first condition that is true takes a row."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import polars as pl

from tests.operators.driven import Collected
from tidegate.datatypes import BIGINT
from tidegate.expressions.parse import parse_expression
from tidegate.formats.failures import BadRecordPolicy, FailureKind
from tidegate.ids import OperatorName
from tidegate.operators.kinds.route import ELSE, Output, RouteOperator
from tidegate.operators.spec import Planned, Slot
from tidegate.state.backends import choose_backend

SCHEMA = {"a": BIGINT, "b": BIGINT}
FRAME = pl.DataFrame(
    {"a": [1, 200, None, 50], "b": [1, 0, 1, 0], "__tidegate_partition": [0] * 4, "__tidegate_offset": [10, 11, 12, 13]}
)


def make_route(conditions: Mapping[str, str]) -> RouteOperator:
    outputs = tuple(
        Output(name, None if text == ELSE else parse_expression(text, SCHEMA), tuple(SCHEMA.items()))
        for name, text in conditions.items()
    )
    return RouteOperator(OperatorName("r"), outputs, BadRecordPolicy.SKIP)


def run(operator: RouteOperator, frame: pl.DataFrame = FRAME) -> tuple[dict[str, list[int]], Collected]:
    """The offsets by output."""
    out = Collected()
    operator.open(Slot(128, choose_backend("memory", retained=1))).process(0, frame, out)
    assert out.batches == []
    return {name: pl.concat(parts)["__tidegate_offset"].to_list() for name, parts in out.sides.items()}, out


def test_the_first_condition_that_is_true_takes_a_row_and_else_the_others() -> None:
    found, _ = run(make_route({"big": "a >= 100", "some": "a >= 10", "rest": ELSE}))
    assert found == {"big": [11], "some": [13], "rest": [10, 12]}


def test_without_else_what_no_condition_takes_goes_nowhere() -> None:
    found, _ = run(make_route({"big": "a >= 100", "small": "a < 100"}))
    assert found == {"big": [11], "small": [10, 13]}


def test_a_condition_that_cannot_be_evaluated_fails_its_row_where_it_is_looked_at() -> None:
    found, out = run(make_route({"big": "a >= 100", "quotient": "a / b > 0", "rest": ELSE}))
    assert found == {"big": [11], "quotient": [10], "rest": [12]}
    assert [(one.row, one.kind) for one in out.failures] == [(3, FailureKind.DIVIDE_BY_ZERO)]


def test_an_output_has_the_columns_that_are_read_of_it_and_the_engines_own() -> None:
    made = make_route({"big": "a >= 100", "rest": ELSE})
    operator = msgspec.structs.replace(made, planned=Planned(outputs={"big": ("b",), "rest": ("a", "b")}))
    _, out = run(operator)
    assert out.sides["big"][0].columns == ["b", "__tidegate_partition", "__tidegate_offset"]
    assert out.sides["rest"][0].columns == ["a", "b", "__tidegate_partition", "__tidegate_offset"]
    fewer = msgspec.structs.replace(made, planned=Planned(outputs={"big": ("b",), "rest": ("b",)}))
    assert fewer.reads() == {"a", "b"}
