"""Where event time is carried, and what a source's settings become."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.plan.test_build import HEAD, ORDERS, check, operators, plan_of
from tidegate.config.fields.records import Idle
from tidegate.config.load import parse_pipeline
from tidegate.datatypes import BIGINT, DOUBLE, INT, STRING, TIMESTAMP
from tidegate.expressions.parse import parse_expression
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_source import EventTime, SourceOperator
from tidegate.operators.builtin.union import UnionOperator
from tidegate.operators.spec import Columns, Operator, Planned, Requirement
from tidegate.plan.explain import derive_explanation, render_explanation
from tidegate.plan.logical import Input, LogicalGraph, LogicalNode, derive_planned

COLUMNS: Columns = (("id", BIGINT), ("at", BIGINT))


class Step(Operator, frozen=True, tag="step"):
    """Reads `id`; whether it needs event time a test says."""

    timely: bool = False

    def requires(self, port: int = 0) -> frozenset[Requirement]:
        return frozenset({Requirement.EVENT_TIME} if self.timely else ())

    def reads(self, port: int = 0) -> set[str]:
        return {"id"}


CARRIED = Planned(carries=(Requirement.EVENT_TIME,))


def source(name: str, event_time: EventTime | None = None, planned: Planned = CARRIED) -> SourceOperator:
    return SourceOperator(
        OperatorName(name),
        (name,),
        "json",
        COLUMNS,
        COLUMNS,
        "earliest",
        "never",
        BadRecordPolicy.FAIL,
        {},
        event_time or EventTime(),
        planned=planned,
    )


def graph_of(*nodes: tuple[Operator, tuple[str, ...]]) -> LogicalGraph:
    return {
        operator.name: LogicalNode(operator, tuple(Input(OperatorName(one)) for one in inputs))
        for operator, inputs in nodes
    }


def step(name: str, *, timely: bool = False) -> Step:
    return Step(OperatorName(name), timely)


def times(graph: LogicalGraph) -> dict[str, EventTime | None]:
    found = (node.operator for node in derive_planned(graph).values())
    return {str(one.name): one.timing for one in found if isinstance(one, SourceOperator)}


def test_only_sources_of_a_step_that_needs_event_time_carry_it_and_all_inputs_of_a_union_do() -> None:
    union = UnionOperator(OperatorName("both"), COLUMNS, BadRecordPolicy.FAIL)
    graph = graph_of(
        (source("a", planned=Planned()), ()),
        (source("b", planned=Planned()), ()),
        (source("c", planned=Planned()), ()),
        (union, ("a", "b")),
        (step("between"), ("both",)),
        (step("windows", timely=True), ("between",)),
        (step("plain"), ("c",)),
        (step("beside"), ("b",)),
    )
    assert times(graph) == {"a": EventTime(), "b": EventTime(), "c": None}


def test_a_declared_column_is_checked_where_nobody_needs_it_and_survives_pruning() -> None:
    declared = EventTime("at", 5000, Idle.NEVER)
    graph = graph_of((source("a", declared, Planned()), ()), (step("plain"), ("a",)))
    pruned = derive_planned(graph)[OperatorName("a")].operator
    assert isinstance(pruned, SourceOperator)
    assert pruned.event_time == declared
    assert pruned.pruned_columns() == COLUMNS[:1]
    assert pruned.decodes == COLUMNS


SINK = "sinks: {out: {from: orders, topic: out, key: customer}}\n"


def time_of(setting: str) -> EventTime | None:
    found = operators(plan_of(ORDERS + setting + SINK))["orders"]
    assert isinstance(found, SourceOperator)
    return found.timing


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("", None),
        ("    watermark: {delay: 5s}\n", None),
        ("    event_time: at\n", EventTime("at")),
        ("    event_time: id\n    watermark: {delay: 1m30s, idle: never}\n", EventTime("id", 90_000, Idle.NEVER)),
        ("    event_time: at\n    watermark: {idle: caught-up}\n", EventTime("at")),
        ("    event_time: at\n    watermark: {ahead: 1h}\n", EventTime("at", ahead_ms=3_600_000)),
        (
            "    event_time: at\n    watermark: {idle: {advance: wall-clock}}\n",
            EventTime("at", 0, Idle.WALL_CLOCK),
        ),
        ("    time: event\n    event_time: at\n", EventTime("at")),
    ],
)
def test_what_the_file_says_of_event_time(setting: str, found: EventTime | None) -> None:
    assert time_of(setting) == found


def test_the_explanation_has_the_event_time_of_a_source() -> None:
    text = ORDERS + "    event_time: at\n    watermark: {delay: 5s, idle: {advance: wall-clock}}\n" + SINK
    checked = check(text)
    assert checked.plan is not None
    loaded = parse_pipeline(HEAD + text, "p.yaml", {})
    explanation = derive_explanation(loaded, checked.plan)
    shown = render_explanation(explanation)
    assert "event time: at, checked; no step needs it" in shown
    (idle,) = [line for line in shown.splitlines() if line.startswith("  sources.orders.watermark.idle ")]
    assert idle.split()[1:3] == ["{advance:", "wall-clock}"]


def test_the_time_of_arrival_is_the_kafka_timestamp_and_follows_the_clock() -> None:
    text = ORDERS + "    time: arrival\n    watermark: {delay: 2s}\n" + SINK
    (found,) = [one for one in operators(plan_of(text)).values() if isinstance(one, SourceOperator)]
    assert found.event_time == EventTime(None, 2000, Idle.WALL_CLOCK, arrival=True)
    assert found.timing is None, "no step needs it"
    carried = EventTime(None, 0, Idle.WALL_CLOCK, arrival=True)
    line = "event time: arrival; watermark: delay 0s, idle {advance: wall-clock}"
    assert source("a", carried).describes()[-1] == line
    assert source("a", carried).lineage(()) == source("a", EventTime()).lineage(()), "states keep their meaning"


def test_a_source_that_carries_event_time_says_how_it_advances() -> None:
    carried = EventTime(None, 5000, Idle.CAUGHT_UP)
    assert source("a", carried).describes()[-1] == "event time: Kafka timestamp; watermark: delay 5s, idle caught-up"


def test_what_the_event_time_is_read_from_is_part_of_what_reaches_a_step_and_how_it_advances_is_not() -> None:
    declared = [None, EventTime("at"), EventTime("at"), EventTime("at", 5, Idle.NEVER), EventTime("id"), EventTime()]
    times = []
    for place, one in enumerate(declared):
        (branch,) = source("a", one, Planned() if place < 2 else CARRIED).lineage(())
        times.append(branch.time)
    assert times[:2] == ["", ""]
    assert times[2] == times[3]
    assert len(set(times[2:])) == 3


def test_how_far_ahead_is_for_event_times_of_a_column() -> None:
    (problem,) = check(ORDERS + "    watermark: {ahead: 1h}\n" + SINK).problems
    assert problem.path == "sources.orders.watermark.ahead"
    assert "the Kafka timestamp is the event time" in problem.message
    assert "message.timestamp.after.max.ms" in problem.remedy


def test_the_explanation_says_how_far_ahead_a_record_may_be() -> None:
    declared = EventTime("at", 5000, ahead_ms=60_000)
    shown = "event time: at, at most 1m after the Kafka timestamp; watermark: delay 5s, idle caught-up"
    assert source("a", declared).describes()[-1] == shown


def computed(text: str, **more: Any) -> EventTime:
    columns = {"id": BIGINT, "customer": STRING, "amount": DOUBLE, "qty": INT, "at": TIMESTAMP}
    return EventTime(expression=parse_expression(text, columns), written=text, **more)


@pytest.mark.parametrize(
    "text",
    [
        "timestamp_seconds(id)",
        "cast(amount as timestamp)",
        "to_timestamp(customer, 'dd/MM/yyyy HH:mm')",
        "coalesce(at, timestamp_millis(id))",
        "id * 1000",
        "cast(qty as bigint)",
    ],
)
def test_event_time_is_computed_from_columns(text: str) -> None:
    assert time_of(f'    event_time: "{text}"\n') == computed(text)


@pytest.mark.parametrize("text", ["`at`", "AT", " at "])
def test_an_expression_that_is_a_column_is_that_column(text: str) -> None:
    assert time_of(f'    event_time: "{text}"\n') == EventTime("at")


def test_the_columns_of_a_computed_event_time_survive_pruning_and_go_no_further() -> None:
    declared = EventTime(expression=parse_expression("timestamp_seconds(at)", dict(COLUMNS)), written="...")
    graph = graph_of((source("a", declared, Planned()), ()), (step("plain"), ("a",)))
    pruned = derive_planned(graph)[OperatorName("a")].operator
    assert isinstance(pruned, SourceOperator)
    assert (pruned.event_time, pruned.pruned_columns(), pruned.decodes) == (declared, COLUMNS[:1], COLUMNS)


@pytest.mark.parametrize(
    ("text", "column", "message", "remedy"),
    [
        ("5", 17, "`5` is the same for all records", "compute the event time from columns of the source"),
        ("timestamp_seconds(5)", 17, "is the same for all records", "compute the event time from columns"),
        ("qty", 17, "`qty` is int", "for seconds write `timestamp_seconds(qty)`"),
        ("amount", 17, "`amount` is double", "for seconds write `cast(amount as timestamp)`"),
        ("customer", 17, "`customer` is string", "`to_timestamp(customer, 'dd/MM/yyyy HH:mm')` with its pattern"),
        ("cast(at as date)", 17, "is date", "`cast(cast(at as date) as timestamp)`"),
        ("id > 5", 17, "`id > 5` is boolean", "use a timestamp, or a bigint in ms since 1970"),
        ("sent", 17, "there is no column `sent`", "the columns are amount, at, customer, id, qty"),
        ("timestamp_seconds(sent)", 35, "there is no column `sent`", "the columns are"),
        ("max(at)", 17, "the aggregate function `max` is not allowed here", ""),
        ("crc32(aes_encrypt(customer, secret('k')))", 17, "is encrypted, or needs a secret", "that are not encrypted"),
    ],
)
def test_what_is_no_event_time_is_refused_at_its_place(text: str, column: int, message: str, remedy: str) -> None:
    secret = "secrets: {k: sixteen letters!}\n" if "secret" in text else ""
    (problem,) = check(f"{secret}{ORDERS}    event_time: {text}\n{SINK}").problems
    assert (problem.path, problem.column) == ("sources.orders.event_time", column)
    assert message in problem.message
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("qty", 1),
        ("amount", 1),
        ("cast(amount as decimal(9,2))", 1),
        ("customer", 2),
        ("cast(at as date)", 1),
        ("`a-b`", 1),
    ],
)
def test_the_remedy_of_a_refusal_is_taken(text: str, count: int) -> None:
    orders = ORDERS.replace("qty: int", "qty: int, a-b: int")
    (problem,) = check(f'{orders}    event_time: "{text.strip("`")}"\n{SINK}').problems
    named = re.findall(r"`([a-z].*?\))`(?!\))", problem.remedy)
    assert len(named) == count
    for one in named:
        assert check(f'{orders}    event_time: "{one}"\n{SINK}').problems == ()


def test_another_expression_is_another_event_time_and_another_spelling_is_not() -> None:
    texts = ["timestamp_seconds(at)", "TIMESTAMP_SECONDS( at )", "timestamp_millis(at)", "at"]
    times = []
    for text in texts:
        one = EventTime(expression=parse_expression(text, dict(COLUMNS)), written=text)
        (branch,) = source("a", one).lineage(())
        times.append(branch.time)
    (plain,) = source("a", EventTime("at")).lineage(())
    assert times[0] == times[1]
    assert times[3] == plain.time
    assert len(set(times)) == 3


def test_the_explanation_has_the_expression() -> None:
    declared = EventTime(
        expression=parse_expression("timestamp_seconds(at)", dict(COLUMNS)), written="timestamp_seconds(at)"
    )
    shown = "event time: timestamp_seconds(at), checked; no step needs it"
    assert source("a", declared, Planned()).describes()[-1] == shown
