"""`select` with all columns: which there are then, in which order, and what it means to a state further down."""

from __future__ import annotations

import pytest

from tidegate.config.load import parse_pipeline
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.builtin.projection import SelectOperator
from tidegate.plan.build import build_plan, check_pipeline
from tidegate.plan.graph import Plan
from tidegate.plan.state_fingerprints import derive_fingerprints

FILE = """\
version: 1
name: w
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///tmp/w}
sources:
  orders: {topic: orders, schema: {id: bigint, cust: string, amount: double, debug: string}}
steps:
  - {name: slim, from: orders, select: SELECT}
  - {name: totals, from: slim, key: id, aggregate: {n: count(*), net: sum(amount)}}
sinks:
  out: {from: slim, topic: out}
  sums: {from: totals, topic: sums, key: id}
"""


def plan_of(select: str) -> Plan:
    return build_plan(parse_pipeline(FILE.replace("SELECT", select), "p.yaml", {}))


@pytest.mark.parametrize(
    ("select", "columns"),
    [
        ('{"*": all}', ["id = id", "cust = cust", "amount = amount", "debug = debug"]),
        ('{"*": all, except: debug}', ["id = id", "cust = cust", "amount = amount"]),
        ('{"*": all, rename: {cust: who}}', ["id = id", "who = cust", "amount = amount", "debug = debug"]),
        (
            '{"*": all, except: [debug], add: {net: amount * 2.0d, cust: upper(cust)}}',
            ["id = id", "cust = upper(cust)", "amount = amount", "net = amount * 2.0d"],
        ),
        (
            '{"*": all, except: [debug], add: {size: length(debug), debug: "\'none\'"}}',
            ["id = id", "cust = cust", "amount = amount", "size = length(debug)", "debug = 'none'"],
        ),
        (
            '{"*": all, rename: {cust: debug, debug: cust}, add: {twice: upper(cust)}}',
            ["id = id", "debug = cust", "amount = amount", "cust = debug", "twice = upper(cust)"],
        ),
        (
            '{"*": all, except: [debug], rename: {cust: debug}}',
            ["id = id", "debug = cust", "amount = amount"],
        ),
    ],
)
def test_columns_keep_their_order_and_new_ones_come_last(select: str, columns: list[str]) -> None:
    (operator,) = plan_of(select).operators(SelectOperator)[:1]
    assert operator.describes() == columns


@pytest.mark.parametrize(
    ("constant", "kind"),
    [
        ("1.10", "decimal(3,2)"),
        ("-0.500", "decimal(3,3)"),
        ("1e2", "double"),
        ("12345678901234567.89", "decimal(19,2)"),
        ("100", "int"),
    ],
)
def test_a_constant_without_quotes_is_what_is_written(constant: str, kind: str) -> None:
    (operator,) = plan_of(f"{{id: id, amount: amount, c: {constant}}}").operators(SelectOperator)[:1]
    assert str(dict(operator.output)["c"]) == kind


def test_a_column_that_is_left_out_is_not_read() -> None:
    (source,) = plan_of('{"*": all, except: [debug]}').operators(SourceOperator)
    assert [name for name, _ in source.pruned_columns()] == ["id", "cust", "amount"]


def test_a_column_may_have_the_name_of_a_word() -> None:
    (operator,) = plan_of("{except: cust, id: id, amount: amount}").operators(SelectOperator)[:1]
    assert operator.describes() == ["except = cust", "id = id", "amount = amount"]


def test_columns_that_pass_mean_what_they_meant() -> None:
    plain = plan_of("{id: id, cust: cust, amount: amount, debug: debug}")
    assert derive_fingerprints(plan_of('{"*": all, except: debug, rename: {cust: who}}')) == derive_fingerprints(plain)
    assert derive_fingerprints(plan_of('{"*": all, add: {amount: amount * 2.0d}}')) != derive_fingerprints(plain)


def test_an_expression_with_the_new_name_of_a_column_is_refused_with_the_old_one() -> None:
    select = '{"*": all, rename: {cust: who}, add: {loud: upper(who)}}'
    (problem,) = check_pipeline(parse_pipeline(FILE.replace("SELECT", select), "p.yaml", {})).problems
    assert problem.path == "steps.slim.select.add.loud"
    assert problem.message == "`who` is the new name of `cust`"
    assert problem.remedy.startswith("write `cust`")
    plan_of('{"*": all, rename: {cust: who}, add: {loud: "size(transform(array(1), who -> who + 1))"}}')
