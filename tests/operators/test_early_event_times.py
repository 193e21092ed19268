"""What is said of event times before 1971, and that the remedy is one."""

from __future__ import annotations

import re

import pytest

from tests.plan.test_build import ORDERS, check, operators, plan_of
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_source import SourceOperator, derive_early_remedy, describe_early

SINK = "sinks: {out: {from: orders, topic: out, key: customer}}\n"


def remedy_of(event_time: str, schema: str = ORDERS) -> str:
    found = operators(plan_of(f"{schema}    event_time: {event_time}\n{SINK}"))["orders"]
    assert isinstance(found, SourceOperator)
    return derive_early_remedy(found)


@pytest.mark.parametrize("text", ["id", "id + 1", "unix_seconds(at)", "a-b"])
def test_a_number_may_be_in_seconds_and_the_remedy_is_taken(text: str) -> None:
    schema = ORDERS.replace("qty: int", "qty: int, a-b: bigint")
    remedy = remedy_of(text, schema)
    assert remedy.startswith(f"`{text}` is read as ms since 1970: if it is in seconds, write `event_time: ")
    (written,) = re.findall("`(event_time: .*)`$", remedy)
    assert check(f"{schema}    {written}\n{SINK}").problems == ()


def test_a_timestamp_may_have_been_made_by_another_unit() -> None:
    assert remedy_of("at") == "`at` is a timestamp: correct the unit in which it is read or computed, or the producer"
    assert remedy_of("timestamp_seconds(id)").startswith("`timestamp_seconds(id)` is a timestamp: ")


def test_a_kafka_timestamp_is_the_producers() -> None:
    found = operators(plan_of(ORDERS + SINK))["orders"]
    assert isinstance(found, SourceOperator)
    assert derive_early_remedy(found).startswith(
        "set `event_time` to the column that has the time, or correct the producer"
    )


def test_the_line_says_how_many() -> None:
    name = OperatorName("orders")
    assert describe_early(name, 1, "do this") == "source orders: 1 record has an event time before 1971; do this"
    assert describe_early(name, 2000, "do") == "source orders: 2,000 records have event times before 1971; do"
