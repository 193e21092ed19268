"""How the values of a source of changes were written: what its file has to say, and what it may not."""

from __future__ import annotations

import pytest

from tests.plan.test_build import HEAD, operators, plan_of
from tests.plan.test_changelogs import SOURCE
from tidegate.config.load import parse_pipeline
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.explain import derive_explanation, render_explanation

DECIMALS = ("decimal(20,0)", "array<decimal(10,2)>", "struct<a: struct<b: decimal(3,1)>>", "map<string, decimal(4,2)>",
            "map<decimal(4,2), string>")  # fmt: skip


@pytest.mark.parametrize("kind", [*DECIMALS, "string", "array<double>", "struct<a: bigint>"])
@pytest.mark.parametrize("said", ["", "written_as: {timestamps: ms}, ", "written_as: {decimals: WORD}, "])
def test_a_source_of_changes_says_what_texts_in_decimals_are(kind: str, said: str) -> None:
    """Which records are bad must not depend on the digits of a number."""
    for word in ("text", "base64", "schema") if "WORD" in said else ("",):
        text = SOURCE.replace("debezium, ", f"debezium, {said.replace('WORD', word)}", 1)
        text = text.replace("name: string", f'name: "{kind}"', 1)
        found = parse_pipeline(HEAD + text + "sinks:\n  out: {from: customers, topic: out}\n", "p.yaml", {}).problems
        if kind not in DECIMALS or word:
            assert found == ()
            continue
        (one,) = found
        assert one.path == "sources.customers.schema.name"
        assert one.message.startswith("the column `name` is ")
        assert "`written_as: {decimals: text}`" in one.remedy


def test_columns_count_in_units_of_their_own() -> None:
    text = SOURCE.replace("debezium,", "debezium, written_as: {timestamps: {at: us}},")
    sink = "sinks:\n  out: {from: customers, topic: out, key: id, on_null: {column: _deleted}}\n"
    plan = plan_of(text + sink)
    source = operators(plan)["customers"]
    assert isinstance(source, SourceOperator)
    assert (source.options.timestamps, source.options.timestamps_of) == ("", (("at", "us"),))
    shown = render_explanation(derive_explanation(parse_pipeline(HEAD + text + sink, "p.yaml", {}), plan))
    assert "written: timestamps as {at: us}" in shown


@pytest.mark.parametrize(
    ("units", "place", "message"),
    [
        ("{ad: us}", "ad", "`ad` is no column of `schema`"),
        ("{id: us}", "id", "the column `id` is bigint and holds no timestamp"),
        ("{at: s}", "at", "`s` is not one of the choices"),
        ("{}", "", "the mapping is empty"),
        ("seconds", "", "`seconds` is not one of the choices"),
        ("[us]", "", "expected one of ms, us, ns, got a list"),
    ],
)
def test_units_of_no_timestamp_are_refused(units: str, place: str, message: str) -> None:
    text = SOURCE.replace("debezium,", f"debezium, written_as: {{timestamps: {units}}},")
    (found,) = parse_pipeline(HEAD + text + "sinks:\n  out: {from: customers, topic: out}\n", "p.yaml", {}).problems
    assert found.path == f"sources.customers.written_as.timestamps{'.' * bool(place)}{place}"
    assert found.message == message
    assert found.remedy
