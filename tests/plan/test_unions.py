"""Unions of inputs whose columns differ: which columns they have, what is refused, and what states of them hold."""

from __future__ import annotations

import pytest

from tests.plan.fingerprints import find_changes
from tidegate.config.load import parse_pipeline
from tidegate.datatypes import BIGINT, DOUBLE, INT, STRING, DataType
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.build import build_plan, check_pipeline
from tidegate.plan.graph import Plan
from tidegate.plan.state_fingerprints import derive_fingerprints
from tidegate.plan.unions import derive_columns, find_disagreements

ARRAY = DataType("array", element=INT)
FILE = """\
version: 1
name: u
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///tmp/u}
sources:
  web: {topic: web, schema: {id: bigint, page: string, ms: int}}
  app: {topic: app, schema: {screen: string, id: bigint, ms: int}}
  old: {topic: old, schema: {id: string, page: string}}
steps:
  - {name: both, from: [web, app], COLUMNS}
sinks:
  out: {from: both, topic: out}
"""


def check(columns: str, *changes: tuple[str, str]) -> str:
    """Problems as text, a line for each: place, message and remedy."""
    text = FILE.replace(", COLUMNS", f", {columns}" if columns else "")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    loaded = parse_pipeline(text, "p.yaml", {})
    return "\n".join(f"{one.path}: {one.message}; {one.remedy}" for one in check_pipeline(loaded).problems)


def plan_of(columns: str, *changes: tuple[str, str]) -> Plan:
    text = FILE.replace("COLUMNS", columns)
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return build_plan(parse_pipeline(text, "p.yaml", {}))


def output(plan: Plan, name: str) -> list[str]:
    (operator,) = [node.operator for vertex in plan.vertices for node in vertex.nodes if node.operator.name == name]
    return [f"{column} {kind}" for column, kind in operator.output_columns()]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("all", {"a": BIGINT, "b": STRING, "c": DOUBLE, "d": INT}),
        ("common", {"b": STRING}),
    ],
)
def test_columns_are_in_the_order_of_the_first_input_and_then_in_that_of_their_appearance(
    mode: str, expected: dict[str, DataType]
) -> None:
    inputs = {
        "x": {"a": BIGINT, "b": STRING},
        "y": {"c": DOUBLE, "b": STRING},
        "z": {"d": INT, "a": BIGINT, "b": STRING},
    }
    assert list(find_disagreements(inputs, mode)) == []
    assert list(derive_columns(inputs, mode).items()) == list(expected.items())


def test_a_type_must_be_the_same_in_all_inputs_that_have_the_column_even_if_the_first_lacks_it() -> None:
    inputs: dict[str, dict[str, DataType]] = {"x": {"a": BIGINT}, "y": {"b": INT}, "z": {"b": ARRAY}}
    (found,) = find_disagreements(inputs, "all")
    assert (found.name, found.message, found.remedy) == (
        "z",
        "column `b` is int in `y` and array<int> in `z`",
        "give one of them another name in a `select`",
    )


def test_inputs_get_the_columns_of_the_union() -> None:
    plan = plan_of("columns: all")
    assert output(plan, "both") == ["id bigint", "page string", "ms int", "screen string"]
    assert [str(edge.upstream) for edge in plan.edges if edge.downstream == "both"] == ["web", "app"]
    plan = plan_of("columns: common")
    assert output(plan, "both") == ["id bigint", "ms int"]


def test_a_column_that_nobody_reads_behind_the_union_is_not_read_at_its_source() -> None:
    plan = plan_of("columns: all", ("columns: all", "columns: all, select: {id: id, page: page}"))
    sources = {str(one.name): [name for name, _ in one.pruned_columns()] for one in plan.operators(SourceOperator)}
    assert sources == {"web": ["id", "page"], "app": ["id"]}


def test_without_columns_the_refusal_names_the_setting() -> None:
    assert check("") == (
        "steps.both.from.1: `app` has no column `page`, but `web` has; write `columns: all` (a missing column is NULL) "
        "or `columns: common` in a step that reads them, or bring the inputs to the same columns with `select`"
    )


def test_inputs_that_cannot_be_read_together_are_refused_each_with_a_remedy() -> None:
    changes = ("[web, app]", "[web, app, old]")
    assert check("columns: all", changes) == (
        "steps.both.from.2: column `id` is bigint in `web` and string in `old`; read `web` through a `select` with "
        "`id: cast(id as string)`"
    )
    renamed = ("topic: old, schema: {id: string, page: string}", "topic: old, schema: {key: string}")
    assert check("columns: common", changes, renamed) == (
        "steps.both.from.2: `web`, `app`, `old` have no column in common; write `columns: all`, or rename "
        "columns in a `select`"
    )
    assert check("columns: both") == (
        "steps.both.columns: `both` is not one of the choices; use one of `all`, `common`"
    )


def test_a_step_with_one_input_has_its_columns() -> None:
    changes = ("[web, app]", "web")
    assert check("columns: all, where: id > 1", changes) == (
        "steps.both.columns: `columns` is for several inputs in `from`; remove it, list several in `from`, or choose "
        "columns with `select`"
    )


def test_a_union_keeps_the_meaning_of_states_of_the_columns_that_an_input_has() -> None:
    """Another column of one input, and NULLs of it for the other, are no change of a total that does not read it."""
    step = "columns: all, key: id, aggregate: {ms: sum(ms)}"
    (before,) = derive_fingerprints(plan_of(step)).values()
    (after,) = derive_fingerprints(
        plan_of(step, ("{id: bigint, page: string, ms: int}", "{id: bigint, ms: int}"))
    ).values()
    assert find_changes(before, after) == []
    (without,) = derive_fingerprints(plan_of(step, ("{screen: string, id: bigint, ms: int}", "{id: bigint}"))).values()
    assert find_changes(before, without) == ["`ms` of app"]
