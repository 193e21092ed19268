"""`route` in the plan: outputs and who reads them, and what they mean to a state further down."""

from __future__ import annotations

import pytest

from tests.plan.fingerprints import find_changes
from tidegate.config.load import parse_pipeline
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.build import build_plan, check_pipeline
from tidegate.plan.graph import Plan
from tidegate.plan.state_fingerprints import derive_fingerprints

ROUTE = "{big: amount > 100, odd: id % 2 = 1, rest: else}"
FILE = """\
version: 1
name: w
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///tmp/w}
sources:
  orders: {topic: orders, schema: {id: bigint, customer: string, amount: double, note: string}}
steps:
  - {name: kinds, from: orders, route: ROUTE}
  - {name: total, from: kinds.odd, key: customer, aggregate: {n: count(*)}}
  - {name: names, from: [kinds.big, kinds.rest], select: {who: customer}}
sinks:
  out: {from: names, topic: out}
  totals: {from: total, topic: sums, key: customer}
"""


def plan_of(route: str = ROUTE) -> Plan:
    return build_plan(parse_pipeline(FILE.replace("ROUTE", route), "p.yaml", {}))


def test_each_output_goes_to_its_own_readers() -> None:
    plan = plan_of()
    nodes = plan.vertices[0].nodes
    (node,) = [node for node in nodes if node.operator.name == "kinds"]
    edges = {name: [str(plan.edges[edge].downstream) for edge in way.edges] for name, way in node.sides.items()}
    below = {name: [str(nodes[child].operator.name) for child in way.children] for name, way in node.sides.items()}
    assert edges == {"big": ["names.union"], "odd": [], "rest": ["names.union"]}
    assert below == {"big": [], "odd": ["total.input"], "rest": []}
    assert (node.children, node.edges) == ((), ())


def test_only_columns_that_conditions_and_readers_need_are_read() -> None:
    (source,) = plan_of().operators(SourceOperator)
    assert [name for name, _ in source.pruned_columns()] == ["id", "customer", "amount"]


def test_an_output_that_nobody_reads_is_warned_of() -> None:
    text = FILE.replace("ROUTE", ROUTE).replace("[kinds.big, kinds.rest]", "kinds.big")
    (warning,) = check_pipeline(parse_pipeline(text, "p.yaml", {})).warnings
    assert f"{warning.path}: {warning.message}" == (
        "steps.kinds.route.rest: is not read: its records are dropped, and counted as filtered"
    )


@pytest.mark.parametrize(
    ("route", "changed"),
    [
        ("{big: amount > 50, odd: id % 2 = 1, rest: else}", True),
        ("{big: amount > 100, odd: id % 2 = 0, rest: else}", True),
        ("{odd: id % 2 = 1, big: amount > 100, rest: else}", True),
        ("{big: amount > 100, odd: id % 2 = 1, zero: amount = 0, rest: else}", False),
    ],
    ids=["a condition before it", "its own", "the order", "a condition after it"],
)
def test_what_is_asked_before_an_output_is_part_of_what_a_total_means(route: str, changed: bool) -> None:
    old, new = (derive_fingerprints(plan_of(text))[OperatorName("total")] for text in (ROUTE, route))
    assert bool(find_changes(old, new)) is changed


def test_totals_that_are_routed_are_totals() -> None:
    text = FILE.replace("ROUTE", "{odd: id % 2 = 1, big: id > 5, rest: else}").replace(
        "sinks:\n",
        "  - {name: again, from: total, route: {many: n > 5}}\nsinks:\n  many: {from: again.many, topic: m}\n",
    )
    warnings = check_pipeline(parse_pipeline(text, "p.yaml", {})).warnings
    assert [f"{one.path}: {one.message}" for one in warnings] == [
        "sinks.many: writes results without a `key`: their order is lost among the partitions"
    ]


def test_records_that_are_no_duplicates_are_no_totals() -> None:
    text = FILE.replace("ROUTE", "{odd: id % 2 = 1, big: id > 5, rest: else}").replace(
        "sinks:\n",
        "  - {name: once, from: orders, dedup: {key: id, within: 1h}}\nsinks:\n  each: {from: once, topic: m}\n",
    )
    assert not check_pipeline(parse_pipeline(text, "p.yaml", {})).warnings
