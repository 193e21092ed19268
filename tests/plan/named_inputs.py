"""Run in a process of its own: steps with named inputs, by the kind `cogroup` of `tests/operators/kinds`."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import msgspec
import polars as pl

import tests.operators.more_kinds  # noqa: F401  # before anything has looked which kinds there are
from tests.operators.contract import find_breaches, tried_of
from tests.operators.contract import plan_of as contract_plan_of
from tests.operators.driven import Collected
from tests.operators.subtasks import Subtasks
from tests.testing.changed_pipeline import Life
from tests.testing.pipelines import HEAD, messages, run_one
from tidegate.config.load import parse_pipeline
from tidegate.coordinator.recovery import RestoreRefused
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.builtin.keyed_input import KeyedInputOperator
from tidegate.operators.fingerprint import StateFingerprint
from tidegate.operators.mistakes import OperatorMistake
from tidegate.operators.registry import step_kinds
from tidegate.operators.spec import Operator, Requirement, Slot, StepOperator
from tidegate.plan.build import CheckedPipeline, build_plan, check_pipeline
from tidegate.plan.explain import derive_explanation, render_explanation
from tidegate.plan.graph import Edge, Plan, derive_edge_names
from tidegate.plan.growth import derive_batch_limits
from tidegate.plan.state_fingerprints import compare_fingerprints, derive_fingerprints
from tidegate.state.backends import choose_backend
from tidegate.state.declaration import StateDeclaration

TEXT = """\
version: 1
name: paired
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///tmp/paired}
sources:
  orders: {topic: orders, schema: {id: ORDER, note: string, amount: double}}
  payments: {topic: payments, schema: {id: PAYMENT, note: string, amount: double}}
steps:
  - {name: big, from: orders, where: amount > 1}
  - {name: pairs, key: id, cogroup: {COGROUP}}
sinks:
  out: {from: pairs, topic: out, key: id}
"""
TAKE = "take: {asked: left.amount, paid: right.amount, note: right.note}"
COGROUP = "left: big, right: payments, " + TAKE


def check(cogroup: str = COGROUP, order: str = "bigint", payment: str = "bigint", **changes: str) -> CheckedPipeline:
    text = TEXT.replace("COGROUP", cogroup).replace("ORDER", order).replace("PAYMENT", payment)
    for old, new in changes.items():
        text = text.replace(old, new)
    return check_pipeline(parse_pipeline(text, "p.yaml", {}))


def plan_of(*args: str, **changes: str) -> Plan:
    found = check(*args, **changes)
    assert found.plan is not None, found.problems
    return found.plan


def problems_of(*args: str, **changes: str) -> list[str]:
    return [str(one) for one in check(*args, **changes).problems]


def operator(plan: Plan, name: str) -> Any:
    return next(node.operator for node in plan.nodes if node.operator.name == name)


def meaning_of(*args: str, **changes: str) -> StateFingerprint:
    return derive_fingerprints(plan_of(*args, **changes))[OperatorName("pairs")]


def ends(edge: Edge) -> tuple[str, int, tuple[str, ...], list[str]]:
    return edge.upstream, edge.port, edge.keys, [name for name, _ in edge.columns]


def each_input_is_a_port_and_columns_of_one_name_are_pruned_apart() -> None:
    plan = plan_of()
    assert list(map(ends, plan.edges)) == [
        ("orders", 0, ("id",), ["id", "amount"]),
        ("payments", 1, ("id",), ["id", "note", "amount"]),
    ]
    assert [str(vertex.id) for vertex in plan.vertices] == ["orders", "payments", "pairs"]
    assert [name for name, _ in operator(plan, "orders").pruned_columns()] == ["id", "amount"]
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
    assert derive_batch_limits(plan, plan.vertices[2]).rows > 1000


def the_explanation_has_both_inputs() -> None:
    loaded = parse_pipeline(TEXT.replace("COGROUP", COGROUP).replace("ORDER", "int").replace("PAYMENT", "int"), "p", {})
    text = render_explanation(derive_explanation(loaded, build_plan(loaded)))
    assert "<- left: orders by id int (1 channels): id int, amount double" in text
    assert "<- right: payments by id int (1 channels): id int, note string, amount double" in text
    assert "keyed state on both sides" in text


def the_explanation_has_the_order_of_the_inputs_and_the_common_type_of_their_keys() -> None:
    ordered = TEXT.replace("COGROUP", COGROUP + ", first: right, ahead_ms: 600000")
    loaded = parse_pipeline(ordered.replace("ORDER", "int").replace("PAYMENT", "bigint"), "p", {})
    explanation = derive_explanation(loaded, build_plan(loaded))
    left, right = (one for one in explanation["exchanges"] if one["to"] == "pairs")
    assert (left["input"], left["by"], left["ahead_ms"], "comes_first" in left) == ("left", ["id.key"], 600_000, False)
    assert (right["input"], right["comes_first"]) == ("right", True)
    text = render_explanation(explanation)
    assert "<- left: orders by id.key bigint (1 channels), at most 10m ahead in event time: " in text
    assert "<- right: payments by id bigint (1 channels), comes first, at most 10m ahead in event time: " in text


def state_has_what_the_step_takes_whatever_is_read_of_it() -> None:
    whole = plan_of()
    steps = "  - {name: ids, from: pairs, select: {id: id}}\nsinks:\n  out: {from: ids"
    less = plan_of(**{"sinks:\n  out: {from: pairs": steps})
    pairs = operator(less, "pairs")
    assert pairs.pruned_columns() == pairs.output[:1]
    assert pairs.states(128) == operator(whole, "pairs").states(128)
    assert list(map(ends, less.edges)) == list(map(ends, whole.edges))
    assert [state.name for state in pairs.states(128)] == ["left", "right"]


def a_state_that_goes_by_what_is_read_is_a_mistake() -> None:
    def states(self: Any, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        read = dict(self.pruned_columns())
        kept = msgspec.structs.replace(self, sides=tuple(tuple(one for one in side if read) for side in self.sides))
        found: tuple[StateDeclaration, ...] = declared(kept, max_parallelism)
        return found

    kind = type(operator(plan_of(), "pairs"))
    declared = kind.states
    with patch.object(kind, "states", states):
        try:
            plan_of()
        except OperatorMistake as mistake:
            assert "states() depends on what is read of it" in str(mistake)
        else:
            raise AssertionError("it is a mistake")


def exchanged_inputs_are_another_meaning() -> None:
    named = "take: {asked: left.amount, paid: right.amount}"
    one, other = (f"left: {a}, right: {b}, {named}" for a, b in (("orders", "payments"), ("payments", "orders")))
    assert meaning_of(one).keys() == meaning_of(other).keys() == {"orders", "payments"}
    assert compare_fingerprints(meaning_of(one), meaning_of(other)).other
    assert not compare_fingerprints(meaning_of(one), meaning_of(f"right: payments, left: orders, {named}")).other
    # Of one source the two ways differ: what is filtered on one side is not on the other.
    self_joined = [f"left: {a}, right: {b}, {named}" for a, b in (("big", "orders"), ("orders", "big"))]
    first, second = (meaning_of(text) for text in self_joined)
    assert compare_fingerprints(first, second).other


def a_step_may_read_one_upstream_twice() -> None:
    plan = plan_of("left: orders, right: orders, " + TAKE)
    assert list(map(ends, plan.edges)) == [
        ("orders", 0, ("id",), ["id", "amount"]),
        ("orders", 1, ("id",), ["id", "note", "amount"]),
    ]
    names = derive_edge_names(plan)
    assert len(set(names.values())) == 2
    assert len(plan.vertices) == 2


def keys_have_one_type() -> None:
    plan = plan_of(COGROUP, "int", "bigint")
    assert [edge.keys for edge in plan.edges] == [("id.key",), ("id",)]
    assert [str(dict(edge.columns)[edge.keys[0]]) for edge in plan.edges] == ["bigint", "bigint"]
    plan = plan_of(COGROUP, "'decimal(10,2)'", "'decimal(10,3)'")
    assert {str(dict(edge.columns)[edge.keys[0]]) for edge in plan.edges} == {"decimal(11,3)"}
    for order, payment in (("double", "bigint"), ("string", "'decimal(4,2)'"), ("boolean", "bigint")):
        (problem,) = problems_of(COGROUP, order, payment)
        assert "cannot be compared exactly" in problem, problem
        assert "p.yaml:10:" in problem
        assert "cast it in a" in problem or "cast one of them in a" in problem


def run(spec: StepOperator, rows: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, list[pl.DataFrame]]]:
    out = Collected()
    spec.open(Slot(128, choose_backend("memory", 1))).process(0, rows, out)
    return pl.concat(out.batches), out.sides


def null_keys_are_dropped_or_skip_the_exchange() -> None:
    plan = plan_of(COGROUP + ", outer: left", "int")
    assert list(map(ends, plan.edges)) == [
        ("orders", 0, ("id.key",), ["amount", "id.key"]),
        ("orders", 0, (), ["amount", "id.key"]),
        ("payments", 1, ("id",), ["id", "note", "amount"]),
    ]
    rows = pl.DataFrame({"id": [1, None, 3], "amount": [5.0, 6.0, 7.0]}, schema={"id": pl.Int32, "amount": pl.Float64})
    left, right = operator(plan, "pairs.left"), operator(plan, "pairs.right")
    assert isinstance(left, KeyedInputOperator)
    made, sides = run(left, rows)
    assert made["id.key"].to_list() == [1, 3]
    assert made["id.key"].dtype == pl.Int64
    assert [frame["amount"].to_list() for frame in sides["unmatched"]] == [[6.0]]
    rows = rows.with_columns(pl.col("id").cast(pl.Int64), note=pl.lit("n"))
    made, _ = run(right, rows)
    assert made["id"].to_list() == [1, 3]


def requirements_are_per_port() -> None:
    def left_only(self: Operator, port: int = 0) -> frozenset[Requirement]:
        return frozenset({Requirement.EVENT_TIME} if port == 0 else ())

    with patch.object(type(operator(plan_of(), "pairs")), "requires", left_only):
        plan = plan_of()
    assert {one.name: one.carries_time for one in plan.operators(SourceOperator)} == {"orders": True, "payments": False}
    assert [Requirement.EVENT_TIME in edge.carries for edge in plan.edges] == [True, False]


def only_what_is_upstream_of_a_gate_declares_that_it_has_caught_up() -> None:
    plan = plan_of(COGROUP + ", first: left")
    declares = {str(node.operator.name) for node in plan.nodes if node.operator.planned.catches_up}
    assert declares == {"orders", "big", "pairs.left"}
    assert not any(node.operator.planned.catches_up for node in plan_of().nodes)


def a_pair_is_of_no_single_record() -> None:
    (problem,) = problems_of(**{"topic: out, key: id": "topic: out, key: id, headers: {pass: all}"})
    assert "sinks.out.headers" in problem
    assert "pairs" in problem


def headers_come_with_the_record_of_the_first_input() -> None:
    passing = {"topic: out, key: id": "topic: out, key: id, headers: {pass: all}"}
    with patch.object(type(operator(plan_of(), "pairs")), "preserves_record", lambda self, output="": True):
        plan = plan_of(**passing)
    carried = {one.name: one.carries_headers for one in plan.operators(SourceOperator)}
    assert carried == {"orders": True, "payments": False}
    assert [Requirement.HEADERS in edge.carries for edge in plan.edges] == [True, False]


def what_is_wrong_has_its_place() -> None:
    (problem,) = problems_of("left: big, right: payment, " + TAKE)
    assert problem.startswith("p.yaml:10:"), problem
    assert "steps.pairs.cogroup.right: there is no source or step `payment`" in problem
    assert "payments" in problem
    (problem,) = problems_of("left: pairs, right: payments, " + TAKE)
    assert "steps.pairs.cogroup.left: these steps read each other: pairs -> pairs" in problem
    (problem,) = problems_of(**{"key: id, cogroup": "from: orders, key: id, cogroup"})
    assert "`cogroup` names what the step reads; remove `from`" in problem
    (problem,) = problems_of(**{"right.note": "right.nota"})
    assert "steps.pairs.cogroup.take.note: there is no column `nota`" in problem
    (problem,) = problems_of(**{"{topic: payments,": "{topic: payments, format: debezium,"})
    assert "keeps rows that nothing takes back" in problem


def pairs_are_the_same_at_any_parallelism() -> None:
    spec = operator(plan_of(), "pairs")
    tasks = Subtasks(spec, ["id"])

    def frame(*rows: tuple[int, str, float, int]) -> pl.DataFrame:
        names = ["id", "note", "amount", "__tidegate_time"]
        return pl.DataFrame(rows, schema=names, orient="row").with_columns(__tidegate_behind=pl.lit(0))

    tasks.process(frame((1, "o", 10.0, 5), (2, "o", 20.0, 6)), 0)
    tasks.process(frame((2, "p", 2.0, 3), (2, "q", 3.0, 9), (3, "r", 4.0, 9)), 1)
    tasks.restart(3)
    tasks.process(frame((3, "o", 30.0, 7), (2, "o", 21.0, 8)), 0)
    found = pl.concat(tasks.out.batches).drop("__tidegate_behind").rows()
    assert sorted(found) == [
        (2, 20.0, 2.0, "p", 6),
        (2, 20.0, 3.0, "q", 9),
        (2, 21.0, 2.0, "p", 8),
        (2, 21.0, 3.0, "q", 9),
        (3, 30.0, 4.0, "r", 9),
    ]


SHOP = """\
parallelism: 2
sources:
  orders: {topic: orders, schema: {id: int, amount: double}}
  payments: {topic: payments, schema: {id: bigint, amount: double}}
steps:
  - {name: pairs, key: id, cogroup: {COGROUP, take: {asked: left.amount, paid: right.amount}}}
sinks:
  out: {from: pairs, topic: out, key: id}
"""
PLAIN = SHOP.replace("COGROUP", "left: orders, right: payments")


def a_case_of_the_file_runs() -> None:
    """Restarted at another parallelism, as each case is; a NULL key of the left side has a row of its own."""
    rows = [{"id": 1, "amount": 1.0}, {"id": None, "amount": 3.0}]
    pairs = [{"id": 1, "asked": 1.0, "paid": 9.0}, {"id": None, "asked": 3.0, "paid": None}]
    given = {name: [{"value": row} for row in rows] for name in ("orders", "payments")}
    given["payments"][0] = {"value": {"id": 1, "amount": 9.0}}
    case = f"given: {json.dumps(given)}, expect: {{out: {{set: {json.dumps([{'value': row} for row in pairs])}}}}}"
    text = HEAD + SHOP.replace("COGROUP", "left: orders, right: payments, outer: left") + "tests:\n"
    assert messages(run_one(case, text)) == []


def pairs_go_on_after_a_restart_and_exchanged_inputs_are_refused() -> None:
    life = Life(PLAIN)
    life.produce("orders", {"id": 1, "amount": 1.0}, {"id": 2, "amount": 2.0})
    life.produce("payments", {"id": 1, "amount": 9.0})
    life.checkpoint()
    assert life.output("out") == [{"id": 1, "asked": 1.0, "paid": 9.0}]
    try:
        Life(PLAIN.replace("left: orders, right: payments", "left: payments, right: orders"), life)
    except RestoreRefused as refused:
        assert "`amount` of orders" in refused.message, refused.message
    else:
        raise AssertionError("the sides of the state would be exchanged")
    again = Life(PLAIN.replace("parallelism: 2", "parallelism: 3"), life)
    again.produce("payments", {"id": 2, "amount": 8.0})
    again.produce("orders", {"id": 1, "amount": 3.0})
    again.checkpoint()
    assert again.output("out") == [{"id": 2, "asked": 2.0, "paid": 8.0}, {"id": 1, "asked": 3.0, "paid": 9.0}]


def it_keeps_the_contract_of_every_kind() -> None:
    (kind,) = [one for one in step_kinds() if one.key == "cogroup"]
    for example in kind.examples:
        tried = list(tried_of(contract_plan_of(kind, example)))
        assert [sorted(ports) for spec, ports in tried if spec.kind == "cogroup"] == [[0, 1]]
        found = {str(spec.name): find_breaches(spec, ports) for spec, ports in tried}
        assert not any(found.values()), found


def main() -> None:
    """Says `ok`, or raises."""
    each_input_is_a_port_and_columns_of_one_name_are_pruned_apart()
    the_explanation_has_both_inputs()
    the_explanation_has_the_order_of_the_inputs_and_the_common_type_of_their_keys()
    state_has_what_the_step_takes_whatever_is_read_of_it()
    a_state_that_goes_by_what_is_read_is_a_mistake()
    exchanged_inputs_are_another_meaning()
    a_step_may_read_one_upstream_twice()
    keys_have_one_type()
    null_keys_are_dropped_or_skip_the_exchange()
    requirements_are_per_port()
    only_what_is_upstream_of_a_gate_declares_that_it_has_caught_up()
    a_pair_is_of_no_single_record()
    headers_come_with_the_record_of_the_first_input()
    what_is_wrong_has_its_place()
    pairs_are_the_same_at_any_parallelism()
    a_case_of_the_file_runs()
    pairs_go_on_after_a_restart_and_exchanged_inputs_are_refused()
    it_keeps_the_contract_of_every_kind()
    print("ok")


main()
