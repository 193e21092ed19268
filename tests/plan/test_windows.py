"""Steps with windows: what a file may say of them, what they become, and what their state means."""

from __future__ import annotations

import pytest

from tidegate.config.load import parse_pipeline
from tidegate.ids import OperatorName
from tidegate.operators.kinds.kafka_sink import SinkOperator
from tidegate.operators.kinds.window import WindowOperator
from tidegate.plan.build import build_plan, check_pipeline
from tidegate.plan.graph import Plan
from tidegate.plan.growth import derive_batch_limits
from tidegate.plan.meaning import derive_meanings, find_changes

STEP = "window: {tumbling: 1m}, aggregate: {n: count(*), net: sum(amount * 2)}"
FILE = """\
version: 1
name: w
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///tmp/w}
sources:
  orders: {topic: orders, schema: {id: bigint, customer: string, amount: double, at: timestamp}, event_time: at}
  bytes: {topic: bytes, format: raw}
steps:
  - {name: totals, from: orders, key: customer, STEP}
sinks:
  out: {from: totals, topic: out, key: customer}
"""


def pipeline(step: str = STEP, more: str = "") -> str:
    return FILE.replace("STEP", step) + more


def problems_of(step: str, more: str = "") -> list[str]:
    found = check_pipeline(parse_pipeline(pipeline(step, more), "p.yaml", {})).problems
    return [f"{'.'.join(one.path.split('.')[2:])}: {one.message}; {one.remedy}" for one in found]


def plan_of(step: str = STEP, more: str = "") -> Plan:
    return build_plan(parse_pipeline(pipeline(step, more), "p.yaml", {}))


def window_of(plan: Plan) -> WindowOperator:
    (operator,) = plan.operators(WindowOperator)
    return operator


def test_results_have_keys_window_and_aggregates() -> None:
    operator = window_of(plan_of())
    assert [f"{name} {kind}" for name, kind in operator.output] == [
        "customer string",
        "window_start timestamp",
        "window_end timestamp",
        "n bigint",
        "net double",
    ]


def test_a_window_makes_its_source_carry_event_time() -> None:
    (source,) = plan_of().vertices[0].nodes[:1]
    assert source.operator.explains()["event_time"]["carried"]


@pytest.mark.parametrize(
    ("window", "problem"),
    [
        ("{tumbling: 1d, time_zone: Europe/Berln}", "window.time_zone: `Europe/Berln` is not a time zone"),
        ("{tumbling: 0s}", "window.tumbling: `0s` is out of range; use 1ms to 366d"),
        ("{sliding: 1m, every: 2m}", "window.every: is more than the size, 1m"),
        ("{sliding: 1m}", "window: `every` is missing"),
        ("{sliding: 366d, every: 1ms}", "window.every: a record would be in 31,622,400,000 windows"),
        ("{tumbling: 1m, every: 1m}", "window.every: a tumbling window has no `every`"),
        ("{tumbling: 1m, session: 1m}", "window.session: both `tumbling` and `session` are given"),
        ("{offset: 1m}", "window: no kind of window is given"),
        ("{tumbling: 1m, offset: 1m}", "window.offset: is not less than 1m"),
        ("{session: 1m, offset: 1s}", "window.offset: a session has no `offset`"),
        ("{tumbling: 1h, time_zone: UTC}", "window.tumbling: a window in a time zone lasts whole days"),
        ("{sliding: 2d, every: 1h, time_zone: UTC}", "window.every: a window in a time zone lasts whole days"),
        ("{tumbling: 1 month}", "window.tumbling: `1 month` is not a duration"),
    ],
)
def test_a_window_that_cannot_be_is_refused_at_its_key(window: str, problem: str) -> None:
    (found,) = problems_of(f"window: {window}, aggregate: {{n: count(*)}}")
    assert found.startswith(problem)


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (f"{STEP}, emit: each", "emit: `each` is for running totals"),
        (f"{STEP}, emit: {{every: 7s}}", "emit: the window is not a multiple of 7s"),
        (
            "window: {session: 1m}, aggregate: {n: count(*)}, emit: {every: 1s}",
            "emit: there are no early results of a session window",
        ),
        (
            "window: {session: 1m}, aggregate: {n: count(*)}, allowed_lateness: 1s",
            "allowed_lateness: sessions have no `allowed_lateness` yet",
        ),
        ("window: {tumbling: 1m}, aggregate: {window_end: count(*)}", "aggregate.window_end: `window_end` is a column"),
        ("aggregate: {n: count(*)}, allowed_lateness: 1s", "allowed_lateness: `allowed_lateness` without `window`"),
        ("aggregate: {n: count(*)}, emit: on close", "emit: this is for windows"),
        ("window: {tumbling: 1m}", ": `aggregate` is missing"),
        (f"{STEP}, late: nobody", "late: there is no sink `nobody`"),
    ],
)
def test_what_does_not_go_with_a_window_is_refused(step: str, problem: str) -> None:
    (found,) = problems_of(step)
    assert found.startswith(problem)


def test_a_window_without_key_is_refused_with_a_way_out() -> None:
    text = pipeline().replace("key: customer, window", "window")
    (problem,) = check_pipeline(parse_pipeline(text, "p.yaml", {})).problems
    assert problem.message == "`key` is missing"
    assert "select a constant" in problem.remedy


def test_late_rows_go_to_the_sink_that_is_named_with_the_columns_that_arrive() -> None:
    plan = plan_of(f"{STEP}, late: too_late", "  too_late: {topic: late}\n")
    sinks = {sink.name: sink for sink in plan.operators(SinkOperator)}
    assert [name for name, _ in sinks[OperatorName("too_late")].columns] == [
        "id",
        "customer",
        "amount",
        "at",
        "_reason",
        "_watermark",
    ]
    (vertex,) = [vertex for vertex in plan.vertices if vertex.id == "totals"]
    (index,) = vertex.nodes[0].sides["late"].children
    assert vertex.nodes[index].operator.name == "too_late"
    assert derive_batch_limits(vertex).rows > 1


def test_late_rows_of_a_raw_source_have_their_bytes() -> None:
    step = "window: {tumbling: 1m}, aggregate: {n: count(*)}, late: too_late"
    sink = "  too_late: {topic: late, format: raw}\n"
    text = pipeline(step, sink).replace("from: orders, key: customer", "from: bytes, key: topic")
    (late,) = [
        one
        for one in build_plan(parse_pipeline(text.replace("key: customer}", "key: topic}"), "p", {})).operators(
            SinkOperator
        )
        if one.name == "too_late"
    ]
    assert (late.key, [name for name, _ in late.columns]) == ("key", ["value"])
    (problem,) = problems_of(step, sink)
    assert problem.startswith("format: a raw sink writes the column `value`, which is not there")


def test_a_sink_has_from_or_is_named_as_late() -> None:
    (both,) = problems_of(f"{STEP}, late: out")
    assert both.startswith("from: it gets the late records of `totals`, and nothing else")
    (neither,) = problems_of(STEP, "  more: {topic: more}\n")
    assert neither.startswith(": `from` is missing")


def changes(*ways: str) -> list[list[str]]:
    found = [derive_meanings(plan_of(way))[OperatorName("totals")] for way in ways]
    return [find_changes(found[0], one) for one in found[1:]]


def test_a_window_that_changes_means_another_state() -> None:
    plain, sliding = STEP, STEP.replace("tumbling: 1m", "sliding: 1m, every: 10s")
    assert (
        changes(plain, STEP.replace("1m", "2m"), STEP.replace("1m", "1m, offset: 3s"), sliding)
        == [["the window of orders"]] * 3
    )
    assert changes(plain, STEP.replace("amount * 2", "amount * 3")) == [["`net` of orders"]]
    assert changes(f"{plain}, allowed_lateness: 1m", f"{plain}, allowed_lateness: 5m") == [[]]
