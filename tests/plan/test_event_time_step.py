"""A step `event_time` in plans: what it accepts and carries, and what it changes for the state behind it."""

from __future__ import annotations

import pytest

from tests.plan.fingerprints import find_changes
from tests.plan.test_build import HEAD, ORDERS, check, operators, plan_of
from tidegate.config.errors import ConfigErrors
from tidegate.config.load import parse_pipeline
from tidegate.operators.kinds.event_time import PARTITION, EventTimeOperator
from tidegate.operators.spec import Requirement
from tidegate.plan.build import build_plan
from tidegate.plan.explain import derive_explanation, render_explanation
from tidegate.plan.state_fingerprints import derive_fingerprints

STEPS = """\
steps:
  - {name: timed, from: orders, event_time: at, watermark: {delay: 5s}}
  - {name: once, from: timed, dedup: {key: id, within: 1h}}
sinks: {out: {from: once, topic: out, key: customer}}
"""


def written(event_time: str, watermark: str = "{delay: 5s}") -> str:
    return ORDERS + STEPS.replace("event_time: at", f'event_time: "{event_time}"').replace("{delay: 5s}", watermark)


def timed_of(text: str) -> EventTimeOperator:
    found = operators(plan_of(text))["timed"]
    assert isinstance(found, EventTimeOperator)
    return found


def test_it_carries_event_time_and_requires_that_of_its_source() -> None:
    found = operators(plan_of(ORDERS + STEPS))
    assert Requirement.EVENT_TIME in found["timed"].planned.carries
    assert Requirement.EVENT_TIME in found["orders"].planned.carries
    assert found["timed"].describes() == ["event time: at; watermark: delay 5s, idle caught-up"]


def test_the_explanation_has_it() -> None:
    loaded = parse_pipeline(HEAD + ORDERS + STEPS.replace("5s", "5s, ahead: 1h"), "p.yaml", {})
    shown = render_explanation(derive_explanation(loaded, build_plan(loaded)))
    assert "event time: at, at most 1h after the event time before; watermark: delay 5s, idle caught-up" in shown


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("5", "`5` is the same for all records", "compute the event time from columns of the step's input"),
        ("qty", "`qty` is int", "for seconds write `timestamp_seconds(qty)`"),
        ("customer", "`customer` is string", "`to_timestamp(customer, 'dd/MM/yyyy HH:mm')` with its pattern"),
        ("sent", "there is no column `sent`", "the columns are amount, at, customer, id, qty"),
    ],
)
def test_what_is_no_event_time_is_refused_as_at_a_source(text: str, message: str, remedy: str) -> None:
    (problem,) = check(written(text)).problems
    assert problem.path == "steps.timed.event_time"
    assert message in problem.message
    assert remedy in problem.remedy


def test_what_only_a_source_can_do_is_refused() -> None:
    (problem,) = check(written("at", "{idle: never}")).problems
    assert (problem.path, problem.remedy) == (
        "steps.timed.watermark.idle",
        "set it at the source: its partitions can be idle",
    )


def test_a_watermark_belongs_to_an_event_time() -> None:
    loaded = parse_pipeline(HEAD + ORDERS + STEPS.replace("event_time: at", "where: id > 5"), "p.yaml", {})
    (problem,) = loaded.problems
    assert problem.path == "steps.timed.watermark"


def test_changes_of_a_table_are_refused() -> None:
    orders = ORDERS.replace("topic: orders", "topic: orders\n    format: debezium")
    problems = check(orders + STEPS).problems
    assert any("of which only one is late" in one.message for one in problems)


AHEAD = {
    "where: id > 5": True,
    "explode: {tags: tag}": True,
    "async: lookups:country, output: {country: string}": True,
    "async: lookups:country, output: {country: string}, order: unordered": False,
    "dedup: {key: id, within: 1h}": False,
    "key: customer, aggregate: {at: max(at), id: count(*)}": False,
}


@pytest.mark.parametrize(("step", "in_order"), AHEAD.items())
def test_rows_are_late_by_their_partition_if_it_is_in_order(step: str, in_order: bool) -> None:
    orders = ORDERS.replace("qty: int", "qty: int, tags: array<string>")
    before = f"steps:\n  - {{name: before, from: orders, {step}}}\n"
    text = orders + STEPS.replace("steps:\n", before).replace("timed, from: orders", "timed, from: before")
    assert timed_of(text).partition == ((PARTITION,) if in_order else ())


def test_a_union_has_no_order() -> None:
    text = ORDERS + STEPS.replace("from: orders,", "from: [big, small],").replace(
        "steps:\n",
        "steps:\n  - {name: big, from: orders, where: id > 5}\n  - {name: small, from: orders, where: id <= 5}\n",
    )
    assert timed_of(text).partition == ()


@pytest.mark.parametrize(("topics", "named"), [("topic: orders", False), ("topics: [orders, more]", True)])
def test_rows_carry_their_topic_where_a_partition_is_not_known_by_its_number(topics: str, named: bool) -> None:
    found = operators(plan_of(ORDERS.replace("topic: orders", topics) + STEPS))["orders"]
    assert (Requirement.TOPIC in found.planned.carries) is named


def test_state_behind_it_depends_on_the_expression_and_not_on_the_delay() -> None:
    def meaning(text: str) -> dict[str, dict[str, str]]:
        (found,) = derive_fingerprints(plan_of(text)).values()
        return found

    first = meaning(ORDERS + STEPS)
    assert find_changes(first, meaning(written("at", "{delay: 1m}"))) == []
    assert find_changes(first, meaning(written("at + interval 1 hour"))) != []
    assert find_changes(first, meaning(written("at").replace("timed", "other"))) == []


def test_W24_a_cycle_is_refused_since_a_watermark_would_wait_for_itself() -> None:
    text = ORDERS + STEPS.replace("from: orders", "from: [orders, once]")
    checked = check(text)
    (problem,) = checked.problems
    assert checked.plan is None
    assert problem.path == "steps.timed.from"
    assert problem.message == "these steps read each other: timed -> once -> timed"
    assert problem.remedy.startswith("break the cycle: in it, a watermark would wait for itself")
    with pytest.raises(ConfigErrors):
        build_plan(parse_pipeline(HEAD + text, "p.yaml", {}))
