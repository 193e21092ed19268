"""`join` in a file: what is refused, what state holds and means, and files that change between attempts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.testing.changed_pipeline import HEAD, Life
from tidegate.config.load import parse_pipeline
from tidegate.coordinator.recovery import RestoreRefused
from tidegate.ids import OperatorName
from tidegate.operators.fingerprint import StateFingerprint
from tidegate.operators.kinds.join import JoinOperator
from tidegate.operators.spec import InputOrder
from tidegate.plan.build import CheckedPipeline, check_pipeline
from tidegate.plan.explain import derive_explanation, render_explanation
from tidegate.plan.graph import Plan
from tidegate.plan.state_fingerprints import compare_fingerprints, derive_fingerprints

JOIN = """\
    join: {order: orders, payment: payments}
    on: {id: order_id}
    within: {before: 5m, after: 1h}
    rows: left
    where: payment.amount > 0
    select: {id: order.id, customer: order.customer, paid: payment.amount}
"""
REST = """\
sources:
  orders: {{topic: orders, schema: {{id: bigint, customer: string, amount: double, at: bigint}}, event_time: at}}
  payments: {{topic: payments, schema: {{order_id: bigint, amount: double, at: bigint}}, event_time: at}}
  changes: {{topic: changes, format: debezium, schema: {{id: bigint}}}}
steps:
  - name: settled
{join}sinks:
  out: {{from: settled, topic: out, key: id}}
  rest: {{from: changes, topic: rest}}
"""


def text_of(*changes: tuple[str, str]) -> str:
    text = REST.format(join=JOIN)
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def check(*changes: tuple[str, str]) -> CheckedPipeline:
    return check_pipeline(parse_pipeline(HEAD + text_of(*changes), "p.yaml", {}))


def plan_of(*changes: tuple[str, str]) -> Plan:
    found = check(*changes)
    assert found.plan is not None, found.problems
    return found.plan


def operator(plan: Plan) -> JoinOperator:
    (one,) = plan.operators(JoinOperator)
    return one


def meaning_of(*changes: tuple[str, str]) -> StateFingerprint:
    return derive_fingerprints(plan_of(*changes))[OperatorName("settled")]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("payment: payments}", "payment: payments, more: orders}", "join: a join has two inputs, not 3; write {order"),
        ("payment: payments}", "Order: payments}", "join: the names of both sides differ only in case; choose another"),
        ("payment: payments}", "payment: payment}", "there is no source or step `payment`"),
        ("payment: payments}", "payment: changes}", "`join` of the inserts, updates and deletes of `changes` needs"),
        ("    on: {id: order_id}\n", "", "`on` is missing; add it"),
        (
            "{id: order_id}",
            "{order_id: id}",
            "on.order_id: the left column must be one of `order`, without the alias; write {id: ord",
        ),
        ("{id: order_id}", "{order.id: payment.order_id}", "without the alias; write {id: order_id}"),
        ("{order: orders", "{order-1: orders", "join: `order-1.id` would be a subtraction; name the side `order_1`"),
        ("{id: order_id}", "{id: order}", "on.id: there is no column `order`; did you mean `order_id`?"),
        (
            "{id: order_id}",
            "{amount: amount}",
            "on.amount: `amount` is double, whose values cannot be compared exactly",
        ),
        ("    within: {before: 5m, after: 1h}\n", "", "`within` is missing; add it, as {before: 5m, after: 1h}"),
        ("    within: {before: 5m, after: 1h}\n", "    window: {session: 1m}\n", "with `session` is not supported yet"),
        ("    within: {before: 5m, after: 1h}\n", "    window: {sliding: 1h, every: 1s}\n", "in more than 100 windows"),
        ("rows: left\n", "rows: left\n    window: {tumbling: 1m}\n", "both `within` and `window` are given"),
        ("rows: left", "rows: outer", "rows: `outer` is not one of the choices"),
        (
            "rows: left",
            "rows: anti",
            "select.paid: `rows: anti` emits rows of `order` only; use columns of `order`, or exchange the inputs",
        ),
        ("payment.amount > 0", "payment.amount", "where: is double, not boolean"),
        ("payment.amount > 0", "amount > 0", "there is no column `amount`; write `order.amount` or `payment.amount`"),
        ("paid: payment.amount", "paid: payment.sum", "select.paid: `payment` has no column `sum`"),
        ("paid: payment.amount", "paid: window_start", "there is no column `window_start`"),
        (
            "{id: order.id, customer: order.customer, paid: payment.amount}",
            '{"*": all}',
            "`all` would take the columns of both inputs",
        ),
    ],
)
def test_what_is_wrong_has_its_place_and_what_to_write(old: str, new: str, problem: str) -> None:
    problems = [str(one) for one in check((old, new)).problems]
    assert any(problem in one for one in problems), problems


def test_keys_have_one_type_and_null_keys_of_a_preserved_side_skip_the_exchange() -> None:
    plan = plan_of(("order_id: bigint", "order_id: int"))
    edges = [(edge.upstream, edge.port, edge.keys) for edge in plan.edges if edge.port or edge.upstream == "orders"]
    assert edges == [("orders", 0, ("id",)), ("orders", 0, ()), ("payments", 1, ("order_id.key",))]


def test_an_input_may_be_joined_with_itself() -> None:
    plan = plan_of(("payment: payments", "payment: orders"), ("order_id}", "id}"))
    assert operator(plan).aliases == ("order", "payment")
    assert len([edge for edge in plan.edges if edge.upstream == "orders"]) == 3


def test_state_holds_what_the_step_names_whatever_is_read_of_it() -> None:
    one = operator(plan_of())
    assert [state.name for state in one.states(128)] == [
        "left_rows",
        "left_waiting",
        "right_rows",
        "bucket",
        "watermark",
    ]
    assert [[name for name, _ in side] for side in one.sides] == [["id", "customer"], ["amount"]]
    less = operator(plan_of(("out: {from: settled", "out: {from: ids"), ("sinks:", IDS)))
    assert less.states(128) == one.states(128)


IDS = "  - {name: ids, from: settled, select: {id: id}}\nsinks:"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{order: orders, payment: payments}", "{payment: payments, order: orders}"),
        ("{id: order_id}", "{id: order_id, amount: order_id}"),
        ("rows: left", "rows: full"),
        ("payment.amount > 0", "payment.amount > 1"),
        ("    within: {before: 5m, after: 1h}\n", "    window: {tumbling: 1h}\n"),
    ],
)
def test_another_join_is_another_meaning(old: str, new: str) -> None:
    changes = [(old, new)]
    if old.startswith("{order"):
        changes.append(("{id: order_id}", "{order_id: id}"))
    if "amount: order_id" in new:
        changes.append(("customer: string, amount: double", "customer: string, amount: bigint"))
    assert compare_fingerprints(meaning_of(), meaning_of(*changes)).other


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{before: 5m, after: 1h}", "{after: 5h}"),
        ("paid: payment.amount", "paid: payment.amount, more: payment.amount * 2"),
        ("rows: left", "rows: left\n    ahead: 1d"),
        ("{order: orders, payment: payments}", "{order: big, payment: payments}"),
    ],
)
def test_what_does_not_change_what_is_kept_is_the_same_meaning(old: str, new: str) -> None:
    big = ("steps:\n", "steps:\n  - {name: big, from: orders, select: {id: id, customer: customer}}\n")
    changes = [(old, new), *([big] if "big" in new else [])]
    assert not compare_fingerprints(meaning_of(), meaning_of(*changes)).other


def test_one_side_waits_for_the_other_as_long_as_rows_may_be_apart() -> None:
    assert operator(plan_of()).order == (InputOrder(ahead_ms=3_900_000),) * 2
    assert operator(plan_of(("{before: 5m, after: 1h}", "{after: 1s}"))).order[0].ahead_ms == 10_000
    assert operator(plan_of(("rows: left", "rows: left\n    ahead: 1m"))).order[1].ahead_ms == 60_000


def test_the_explanation_has_both_sides() -> None:
    loaded = parse_pipeline(HEAD + text_of(), "p.yaml", {})
    text = render_explanation(derive_explanation(loaded, plan_of()))
    for part in (
        "left join of order and payment by id bigint: payment within 5m before and 1h after order",
        "where payment.amount > 0",
        "paid = payment.amount",
        "at most 100,000 rows or 16 MiB of a key",
    ):
        assert part in text


def record(number: int, at: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "order_id": number, "customer": "ann", "amount": 1.0, "at": at * 60_000, **more}


def test_state_goes_on_with_another_interval_and_parallelism_and_not_with_other_keys() -> None:
    life = Life(text_of())
    life.produce("orders", record(1, 10), record(2, 10))
    life.produce("payments", record(1, 11))
    life.checkpoint()
    assert life.output("out") == [{"id": 1, "customer": "ann", "paid": 1.0}]
    with pytest.raises(RestoreRefused) as refused:
        Life(text_of(("{id: order_id}", "{id: at}")), life)
    assert "settled" in refused.value.message
    longer = ("{before: 5m, after: 1h}", "{before: 5m, after: 3h}")
    again = Life(text_of(longer, ("sources:", "parallelism: 3\nsources:")), life)
    again.produce("payments", record(2, 150))
    again.checkpoint()
    assert again.output("out") == [{"id": 2, "customer": "ann", "paid": 1.0}]
