"""The sections `delimited` of a pipeline file, from its checks to the plan, and what cases make of the format."""

from __future__ import annotations

import pytest

from tests.plan.test_build import HEAD, check, operators, plan_of
from tidegate.config.load import parse_pipeline
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.explain import derive_explanation, render_explanation

FILE = """\
sources:
  orders: {topic: in, format: delimited, delimited: {READ}, schema: {id: bigint, name: KIND}}
sinks:
  out: {from: orders, topic: out, format: delimited, delimited: {WRITTEN}}
"""


def file_of(read: str = "", written: str = "", kind: str = "string") -> str:
    return FILE.replace("READ", read).replace("WRITTEN", written).replace("KIND", kind)


@pytest.mark.parametrize(
    ("read", "written", "place", "said"),
    [
        ("sep: ';'", "", "sources.orders.delimited.sep", "unknown key; write `separator`"),
        ("nullValue: x", "", "sources.orders.delimited.nullValue", "unknown key; write `null_value`"),
        ("date_format: dd", "", "sources.orders.delimited.date_format", "unknown key; declare the column as a string"),
        ("quote_all: true", "", "sources.orders.delimited.quote_all", "unknown key"),
        ("", "header: true", "sinks.out.delimited.header", "unknown key; a sink writes records, which have no header"),
        (r"separator: \t", "", "sources.orders.delimited.separator", "the separator `\\t` has a backslash; a tab is"),
        ('separator: ""', "", "sources.orders.delimited.separator", "the separator has 0 characters"),
        ('separator: "a\\nb"', "", "sources.orders.delimited.separator", "a separator cannot hold a line break"),
        ("separator: 5", "", "sources.orders.delimited.separator", "expected a separator, got `5`; put it in quotes"),
        ("quote: é", "", "sources.orders.delimited.quote", "expected a quote, one ASCII character, got `é`"),
        ("quote: ','", "", "sources.orders.delimited.quote", "`quote` is part of the separator"),
        ("quote: '', escape: x", "", "sources.orders.delimited.escape", "an escape only occurs within quotes"),
        ("null_value: 'a,'", "", "sources.orders.delimited.null_value", "the text of NULL holds the separator"),
        (
            "separator: '||', null_value: '|'",
            "",
            "sources.orders.delimited.null_value",
            "the text of NULL holds the separator",
        ),
        ("null_value: '\"'", "", "sources.orders.delimited.null_value", "the text of NULL holds the quote"),
        ("header: 'yes'", "", "sources.orders.delimited.header", "expected true or false"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_at_its_place(read: str, written: str, place: str, said: str) -> None:
    (problem,) = parse_pipeline(HEAD + file_of(read, written), "p.yaml", {}).problems
    assert problem.path == place
    assert f"{problem.message}; {problem.remedy}".startswith(said)


def test_a_section_of_another_format_and_nested_columns_are_refused() -> None:
    text = file_of("header: true").replace("format: delimited", "format: json", 1)
    (problem,) = parse_pipeline(HEAD + text, "p.yaml", {}).problems
    assert (problem.path, problem.remedy) == ("sources.orders.delimited", "write `format: delimited`, or remove them")
    problem = check(file_of(kind="array<int>")).problems[0]
    assert problem.path == "sources.orders.schema"
    assert problem.message == "a field of a line holds a single value, but the column `name` is array<int>"


def test_settings_are_in_the_plan_and_explained() -> None:
    text = file_of(r'separator: "|", header: true, null_value: "\\N"', "quote_all: true")
    plan = plan_of(text)
    source = operators(plan)["orders"]
    assert isinstance(source, SourceOperator)
    assert source.options.settings == {"separator": "|", "header": True, "null_value": "\\N"}
    explained = render_explanation(derive_explanation(parse_pipeline(HEAD + text, "p.yaml", {}), plan))
    assert 'format settings: separator "|", null_value "\\\\N", header true' in explained
    assert "format settings: quote_all true" in explained
    assert "sources.orders.delimited.separator" in explained
