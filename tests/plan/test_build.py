"""Pipeline file -> plan: chaining, exchanges, narrow columns, warnings."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support.user_code import with_async_functions
from tidegate.config.errors import ConfigErrors
from tidegate.config.load import parse_pipeline, read_pipeline
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.builtin.projection import SelectOperator
from tidegate.operators.kinds.aggregate import AggregateOperator
from tidegate.operators.spec import Operator
from tidegate.plan.build import CheckedPipeline, build_plan, check_pipeline
from tidegate.plan.graph import Plan

ROOT = Path(__file__).resolve().parents[2]
HEAD = """\
version: 1
name: test
kafka: {bootstrap.servers: localhost:9092, linger.ms: 7, fetch.min.bytes: 2}
parallelism: 2
checkpoints: {directory: /tmp/tidegate}
"""
ORDERS = """\
sources:
  orders:
    topic: orders
    schema: {id: bigint, customer: string, amount: double, qty: int, at: timestamp}
"""


def check(text: str) -> CheckedPipeline:
    loaded = with_async_functions(parse_pipeline(HEAD + text, "p.yaml", {}))
    assert loaded.problems == ()
    return check_pipeline(loaded)


def plan_of(text: str) -> Plan:
    checked = check(text)
    assert checked.problems == ()
    assert checked.plan is not None
    return checked.plan


def operators(plan: Plan) -> dict[str, Operator]:
    return {str(node.operator.name): node.operator for vertex in plan.vertices for node in vertex.nodes}


def names(columns: tuple[tuple[str, object], ...]) -> list[str]:
    return [name for name, _ in columns]


def shape(plan: Plan) -> dict[str, list[str]]:
    return {str(vertex.id): [str(node.operator.name) for node in vertex.nodes] for vertex in plan.vertices}


def test_row_by_row_operators_are_one_vertex() -> None:
    plan = plan_of(
        ORDERS
        + """\
steps:
  - {name: big, from: orders, where: amount > 1}
  - {name: priced, from: big, select: {id: id, net: amount * 2.0d}}
sinks:
  out: {from: priced, topic: out}
"""
    )
    assert shape(plan) == {"orders": ["orders", "big", "priced", "out"]}
    assert plan.edges == ()
    assert plan.exactly_once


def test_fan_out_is_a_tree_whose_children_come_after_their_parent() -> None:
    plan = plan_of(
        ORDERS
        + """\
steps:
  - {name: big, from: orders, where: amount > 1}
  - {name: small, from: orders, where: amount <= 1}
sinks:
  a: {from: big, topic: a}
  b: {from: small, topic: b}
  c: {from: orders, topic: c}
"""
    )
    (vertex,) = plan.vertices
    below = {
        str(node.operator.name): [str(vertex.nodes[c].operator.name) for c in node.children] for node in vertex.nodes
    }
    assert below == {"orders": ["big", "small", "c"], "big": ["a"], "a": [], "small": ["b"], "b": [], "c": []}
    assert all(child > index for index, node in enumerate(vertex.nodes) for child in node.children)


def test_a_key_cuts_the_graph_with_an_exchange_of_key_and_arguments_only() -> None:
    plan = plan_of(
        ORDERS
        + """\
steps:
  - name: totals
    from: orders
    key: [customer, id]
    aggregate: {n: count(*), total: sum(amount * 2.0d), most: max(amount), again: min(amount * 2.0d)}
sinks:
  out: {from: totals, topic: out, key: customer}
"""
    )
    assert shape(plan) == {"orders": ["orders", "totals.input"], "totals": ["totals", "out"]}
    (edge,) = plan.edges
    assert (edge.upstream, edge.downstream, edge.keys) == ("orders", "totals", ("customer", "id"))
    assert names(edge.columns) == ["customer", "id", "total.argument", "amount"]
    assert plan.vertices[0].nodes[1].edges == (0,)
    assert plan.inputs_of(plan.vertices[1].id) == (edge,)
    aggregate = operators(plan)["totals"]
    assert isinstance(aggregate, AggregateOperator)
    assert names(aggregate.output) == ["customer", "id", "n", "total", "most", "again"]
    arguments = [getattr(call.argument, "name", None) for _, call in aggregate.aggregates]
    assert arguments == [None, "total.argument", "amount", "total.argument"]


def test_a_generated_argument_does_not_take_the_name_of_a_column() -> None:
    plan = plan_of(
        """\
sources:
  orders:
    topic: orders
    schema: {n.argument: string, id: bigint}
steps:
  - {name: totals, from: orders, key: n.argument, aggregate: {n: max(id + 1)}}
sinks:
  out: {from: totals, topic: out, key: n.argument}
"""
    )
    assert names(plan.edges[0].columns) == ["n.argument", "n.argument_"]


def test_only_columns_that_are_read_are_decoded() -> None:
    plan = plan_of(
        ORDERS
        + """\
steps:
  - {name: big, from: orders, where: qty > 1}
  - {name: few, from: big, select: {id: id, unread: customer}}
  - {name: fewer, from: few, select: {id: id}}
sinks:
  out: {from: fewer, topic: out}
"""
    )
    found = operators(plan)
    source, few = found["orders"], found["few"]
    assert isinstance(source, SourceOperator)
    assert names(source.pruned_columns()) == ["id", "qty"]
    assert names(source.schema) == ["id", "customer", "amount", "qty", "at"]
    assert isinstance(few, SelectOperator)
    assert names(few.pruned_columns()) == names(few.pruned_expressions) == ["id"]


@pytest.mark.parametrize("text", ["amount / qty", "aggregate(array(amount), 0D, (a, x) -> a + x)"])
def test_an_expression_that_can_fail_is_kept_though_nobody_reads_it(text: str) -> None:
    plan = plan_of(
        ORDERS
        + f"""\
steps:
  - {{name: few, from: orders, select: {{id: id, ratio: "{text}"}}}}
  - {{name: fewer, from: few, select: {{id: id}}}}
sinks:
  out: {{from: fewer, topic: out}}
"""
    )
    few = operators(plan)["few"]
    assert isinstance(few, SelectOperator)
    assert names(few.pruned_columns()) == ["id", "ratio"]


def test_a_frame_keeps_a_column_when_none_is_read() -> None:
    plan = plan_of(
        ORDERS
        + """\
steps:
  - {name: one, from: orders, select: {one: "1"}}
sinks:
  out: {from: one, topic: out}
"""
    )
    source = operators(plan)["orders"]
    assert isinstance(source, SourceOperator)
    assert names(source.pruned_columns()) == ["id"]


UNION = """\
sources:
  a: {topic: a, schema: {id: bigint, x: string}}
  b: {topic: b, schema: {x: string, id: bigint}, bad_records: skip}
  c: {topic: c, schema: {id: bigint, x: string}, bad_records: skip}
steps:
  - {name: both, from: [a, b]}
  - {name: low, from: [both, c], where: 2 / id < 3}
sinks:
  out: {from: low, topic: out}
  more: {from: [c, b], topic: more}
"""


def test_a_union_of_several_inputs_begins_a_vertex_with_forward_edges_of_equal_columns() -> None:
    plan = plan_of(UNION)
    assert shape(plan) == {
        "a": ["a"],
        "b": ["b"],
        "c": ["c"],
        "both": ["both"],
        "more.union": ["more.union", "more"],
        "low.union": ["low.union", "low", "out"],
    }
    assert all(edge.keys == () for edge in plan.edges)
    into = {name: [names(edge.columns) for edge in plan.edges if edge.downstream == name] for name in shape(plan)}
    assert into["both"] == into["low.union"] == [["id", "x"], ["id", "x"]]
    order = list(shape(plan))
    assert all(order.index(edge.upstream) < order.index(edge.downstream) for edge in plan.edges)


def test_bad_records_are_skipped_only_if_all_sources_say_so() -> None:
    text = UNION.replace("both, c", "c, b").replace("[a, b]}", "[a, c]}")
    found = operators(plan_of(text + "  rest: {from: both, topic: rest}\n"))
    assert getattr(found["low"], "bad_records", "") == "skip"
    assert getattr(operators(plan_of(UNION))["low"], "bad_records", "") == "fail"


def test_a_raw_source_has_fixed_columns_and_a_raw_sink_writes_value() -> None:
    plan = plan_of(
        """\
sources:
  raw: {topic: raw, format: raw}
sinks:
  copy: {from: raw, topic: copy, format: raw, key: key, timestamp: timestamp}
"""
    )
    source, sink = operators(plan)["raw"], operators(plan)["copy"]
    assert isinstance(source, SourceOperator)
    assert isinstance(sink, SinkOperator)
    assert names(source.pruned_columns()) == ["key", "value", "timestamp"]
    assert names(source.schema) == ["key", "value", "timestamp", "topic", "partition", "offset"]
    assert (names(sink.columns), sink.key, sink.timestamp) == (["value"], "key", "timestamp")


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_sink_with_timestamps_can_fail_a_record_and_does_as_its_source_says(policy: str) -> None:
    total = "steps:\n- {name: last, from: orders, key: customer, aggregate: {at: max(at)}}\n"
    sink = "sinks:\n  out: {from: last, topic: out, key: customer, timestamp: at}\n"
    found = operators(plan_of(f"{ORDERS}    bad_records: {policy}\n{total}{sink}"))
    out = found["out"]
    assert isinstance(out, SinkOperator)
    assert out.bad_records == policy


def test_a_copy_of_a_raw_topic_keeps_its_keys_without_being_asked() -> None:
    plan = plan_of(
        "sources:\n  raw: {topic: raw, format: raw}\nsinks:\n  copy: {from: raw, topic: copy, format: raw}\n"
    )
    source, sink = operators(plan)["raw"], operators(plan)["copy"]
    assert isinstance(source, SourceOperator)
    assert isinstance(sink, SinkOperator)
    assert sink.key == "key"
    assert names(source.pruned_columns()) == ["key", "value"]


def test_clients_get_the_properties_they_understand_their_own_first() -> None:
    plan = plan_of(
        ORDERS
        + "    kafka: {fetch.min.bytes: 9}\n"
        + "sinks:\n  out: {from: orders, topic: out, kafka: {linger.ms: 1, compression.type: zstd}}\n"
    )
    source, sink = operators(plan)["orders"], operators(plan)["out"]
    assert isinstance(source, SourceOperator)
    assert isinstance(sink, SinkOperator)
    assert source.kafka == {"bootstrap.servers": "localhost:9092", "fetch.min.bytes": "9"}
    assert sink.kafka == {"bootstrap.servers": "localhost:9092", "linger.ms": "1", "compression.type": "zstd"}


def test_a_plan_travels_as_json() -> None:
    plan = plan_of(UNION)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_what_leads_to_no_sink_is_told_and_left_out() -> None:
    checked = check(
        ORDERS
        + "  idle: {topic: idle, schema: {id: bigint}}\n"
        + "steps:\n  - {name: unread, from: orders, where: id > 1}\n"
        + "sinks:\n  out: {from: orders, topic: out}\n"
    )
    assert [(warning.path, warning.line) for warning in checked.warnings] == [
        ("sources.idle", 10),
        ("steps.unread", 12),
    ]
    assert checked.plan is not None
    assert shape(checked.plan) == {"orders": ["orders", "out"]}


def test_a_pipeline_that_feeds_itself_and_totals_without_a_key_are_warned_of() -> None:
    checked = check(
        ORDERS
        + "steps:\n  - {name: n, from: orders, key: id, aggregate: {n: count(*)}}\n"
        + "sinks:\n  out: {from: n, topic: orders}\n"
    )
    assert [warning.severity for warning in checked.warnings] == ["warning", "warning"]
    assert {"feeds itself" in warning.message for warning in checked.warnings} == {True, False}


@pytest.mark.parametrize(
    ("words", "place", "takes"),
    [
        ("{give_up_after: 20 in 13m3s}", 26, "20 failures add up to 13m3s"),
        ("{give_up_after: 20 in 13m4s}", None, ""),
        ("{max: 3m}", 1, "20 failures add up to 34m15s"),
    ],
)
def test_a_limit_that_no_crash_loop_reaches_is_warned_of(words: str, place: int | None, takes: str) -> None:
    warnings = check(f"restart: {words}\n{ORDERS}sinks:\n  out: {{from: orders, topic: out}}\n").warnings
    assert [(one.path, one.column) for one in warnings] == [("restart.give_up_after", place)] * (place is not None)
    assert all(takes in one.message for one in warnings)


def test_problems_of_shape_and_of_meaning_come_in_one_run() -> None:
    text = (
        HEAD
        + ORDERS
        + "steps:\n  - {name: a, from: orders, where: idd > 1}\nsinks:\n  out: {from: a, topic: out, kee: id}\n"
    )
    with pytest.raises(ConfigErrors) as caught:
        build_plan(parse_pipeline(text, "p.yaml", {}))
    assert [problem.path for problem in caught.value.problems] == ["steps.a.where", "sinks.out.kee"]
    assert caught.value.exit_code == 2


def test_a_broken_source_causes_no_problems_where_it_is_read() -> None:
    text = HEAD + "sources:\n  o: {topic: o, schema: {id: bigin}}\n" + "sinks:\n  out: {from: o, topic: out, key: id}\n"
    with pytest.raises(ConfigErrors) as caught:
        build_plan(parse_pipeline(text, "p.yaml", {}))
    assert [problem.path for problem in caught.value.problems] == ["sources.o.schema.id"]


@pytest.mark.slow
def test_a_thousand_steps_are_planned_without_recursion() -> None:
    steps = "".join(
        f"  - {{name: s{n}, from: {f's{n - 1}' if n else 'orders'}, where: id > {n}}}\n" for n in range(1000)
    )
    plan = plan_of(ORDERS + "steps:\n" + steps + "sinks:\n  out: {from: s999, topic: out}\n")
    assert len(plan.vertices[0].nodes) == 1002


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_valid(path: Path) -> None:
    checked = check_pipeline(read_pipeline(path, {}))
    assert (checked.problems, checked.warnings) == ((), ())


def test_X14_every_expression_is_handed_over_to_be_tried_with_its_place() -> None:
    steps = """\
steps:
  - {name: big, from: orders, where: amount > 1}
  - {name: named, from: big, select: {id: id, twice: amount * 2}}
  - {name: sums, from: named, key: id, aggregate: {n: count(*), total: sum(twice / 3)}}
sinks: {out: {from: sums, topic: out, key: id}}
"""
    checked = check_pipeline(parse_pipeline(ORDERS + steps, "p.yaml", {}))
    assert [(one.path, one.text) for one in checked.expressions] == [
        (("steps", 0, "where"), "amount > 1"),
        (("steps", 1, "select", "id"), "id"),
        (("steps", 1, "select", "twice"), "amount * 2"),
        (("steps", 2, "aggregate", "total"), "sum(twice / 3)"),
    ]
    broken = check_pipeline(parse_pipeline(ORDERS + steps.replace("amount * 2", "amont"), "p.yaml", {}))
    assert broken.problems
    assert [one.text for one in broken.expressions] == ["amount > 1", "id"]


def test_a_default_with_a_fraction_travels_in_the_plan() -> None:
    text = """\
version: 1
name: w
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///tmp/w}
sources:
  orders: {topic: orders, schema: {id: bigint, net: double}}
steps:
  - {name: best, from: orders, key: id, keep: {by: net, n: 2}, state: {defaults: {net: 1.50}}}
sinks:
  out: {from: best, topic: out, key: id}
"""
    plan = build_plan(parse_pipeline(text, "p.yaml", {}))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=Plan).directives == plan.directives
    assert [type(value) for one in plan.directives.values() for value in one.defaults.values()] == [float]


def test_a_group_with_a_backslash_in_a_replacement_is_warned_of_at_its_place() -> None:
    step = """steps:
  - name: masked
    from: orders
    select:
      id: id
      card: regexp_replace(customer, '(..).*', '\\\\1*')
sinks:
  out: {from: masked, topic: out}
"""
    checked = check(ORDERS + step)
    assert checked.plan is not None
    [warning] = checked.warnings
    assert (warning.path, warning.severity) == ("steps.masked.select.card", "warning")
    assert warning.column == len("      card: regexp_replace(customer, '(..).*', ") + 1
    assert "is the text `1`" in warning.message
    assert warning.remedy == "write `$1` for the group"
