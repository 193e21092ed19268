"""`explode` in the plan: a vertex of its own, what it reads, and what it means to a state further down."""

from __future__ import annotations

import pytest

from tests.plan.fingerprints import find_changes
from tidegate.config.load import parse_pipeline
from tidegate.expressions.bounds import BATCH_BYTES_MAX
from tidegate.ids import OperatorName
from tidegate.operators.kinds.explode import ExplodeOperator
from tidegate.plan.build import build_plan
from tidegate.plan.graph import Plan
from tidegate.plan.growth import derive_batch_limits
from tidegate.plan.state_fingerprints import derive_fingerprints

FILE = """\
version: 1
name: w
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///tmp/w}
sources:
  orders: {topic: orders, schema: {id: bigint, note: string, items: array<string>, more: array<string>}}
steps:
  - {name: lines, from: orders, explode: EXPLODE}
  - {name: loud, from: lines, select: {item: upper(item), note: "repeat(note, 100)"}}
  - {name: totals, from: lines, key: id, aggregate: {n: count(*), last: last(item)}}
sinks:
  out: {from: loud, topic: out}
  sums: {from: totals, topic: sums, key: id}
"""
PLAIN = "{items: item}"


def plan_of(explode: str = PLAIN) -> Plan:
    return build_plan(parse_pipeline(FILE.replace("EXPLODE", explode), "p.yaml", {}))


def test_an_explode_begins_a_vertex_on_the_same_slot() -> None:
    plan = plan_of()
    assert [str(vertex.id) for vertex in plan.vertices] == ["orders", "lines", "totals"]
    edge = plan.edges[0]
    assert (edge.keys, [name for name, _ in edge.columns]) == ((), ["id", "note", "items"])


def test_what_the_vertex_takes_at_a_time_is_measured_after_it() -> None:
    plan = plan_of()
    limits = derive_batch_limits(plan, plan.vertices[1])
    assert BATCH_BYTES_MAX // 300 < limits.size_bytes < BATCH_BYTES_MAX // 100


def test_new_columns_come_last() -> None:
    (operator,) = plan_of("{items: item, position: n, keep: true}").operators(ExplodeOperator)
    assert operator.describes() == ["a row for each of items as item with its position n; empty or NULL: no row"]
    assert [name for name, _ in operator.pruned_columns()] == ["id", "note", "item"]


@pytest.mark.parametrize(
    "changed", ["{items: item, outer: true}", "{more: item}"], ids=["which records have a row", "another array"]
)
def test_another_choice_of_rows_changes_what_a_total_means(changed: str) -> None:
    old, new = (derive_fingerprints(plan_of(text))[OperatorName("totals")] for text in (PLAIN, changed))
    assert "the choice of records of orders" in find_changes(old, new)


def test_a_position_that_nobody_reads_changes_nothing() -> None:
    assert derive_fingerprints(plan_of()) == derive_fingerprints(plan_of("{items: item, position: n, keep: true}"))
