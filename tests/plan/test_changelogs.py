"""Steps and sinks after a source of changes: which may take them, by name and place."""

from __future__ import annotations

import pytest

from tests.plan.test_build import HEAD, check, names, operators, plan_of
from tidegate.config.load import parse_pipeline
from tidegate.operators.kinds.kafka_source import SourceOperator
from tidegate.plan.explain import derive_explanation, render_explanation

SOURCE = """\
sources:
  customers: {topic: customers, format: debezium, schema: {id: bigint, name: string, at: timestamp}}
  plain: {topic: plain, schema: {id: bigint, name: string, at: timestamp, _deleted: boolean, _op: string}}
"""
SINK = "sinks:\n  out: {from: last, topic: out}\n"
RETRACTION = "needs retraction, which is not supported yet: a delete would count as a row"
REFUSED = {
    "aggregate": "key: id, aggregate: {n: count(*)}",
    "window": "key: id, window: {tumbling: 1m}, aggregate: {n: count(*)}",
    "keep": "keep: {by: at, n: 2}, key: id",
    "dedup": "dedup: {key: id, within: 1m}",
}


def problems_of(steps: str, source: str = SOURCE) -> list[tuple[str, str]]:
    return [(f"{one.line}:{one.column}", one.message) for one in check(source + steps + SINK).problems]


@pytest.mark.parametrize("word", REFUSED)
@pytest.mark.parametrize("before", ["directly", "after steps", "in a union", "by a route"])
def test_steps_that_count_or_keep_rows_are_refused(word: str, before: str) -> None:
    steps = {
        "directly": ("customers", ""),
        "after steps": ("b", "  - {name: a, from: customers, where: id > 0}\n  - {name: b, from: a, where: id > 1}\n"),
        "in a union": ("[plain, customers]", ""),
        "by a route": ("r.one", "  - {name: r, from: customers, route: {one: id > 1, two: else}}\n"),
    }  # fmt: skip
    reads, others = steps[before]
    step = f"  - {{name: last, from: {reads}, {REFUSED[word]}}}\n"
    (found,) = problems_of(f"steps:\n{others}{step}")
    line = (HEAD + SOURCE + "steps:\n" + others).count("\n") + 1
    message = f"`{word}` of the inserts, updates and deletes of `customers` {RETRACTION}"
    assert found == (f"{line}:{step.index(f' {word}: ') + 2}", message)


@pytest.mark.parametrize("word", REFUSED)
def test_steps_beside_a_changelog_are_none_of_its_business(word: str) -> None:
    assert problems_of(f"steps:\n  - {{name: last, from: plain, {REFUSED[word]}}}\n") == []


@pytest.mark.parametrize(("order", "count"), [("unordered", 1), ("ordered", 0)])
def test_calls_without_order_would_swap_changes(order: str, count: int) -> None:
    call = f"async: f.py:look, output: {{x: string}}, order: {order}"
    found = problems_of(f"steps:\n  - {{name: last, from: customers, {call}}}\n")
    message = "needs `order: ordered`: an older change would overtake a newer one"
    assert [one.endswith(message) for _, one in found] == [True] * count


def test_a_source_of_changes_has_two_columns_more_and_leaves_tombstones_out() -> None:
    text = SOURCE.replace("debezium,", "debezium, written_as: {timestamps: ms, decimals: base64},")
    plan = plan_of(text + "sinks:\n  out: {from: customers, topic: out, key: id, on_null: {column: _deleted}}\n")
    source = operators(plan)["customers"]
    assert isinstance(source, SourceOperator)
    assert names(source.schema) == ["id", "name", "at", "_deleted", "_op"]
    assert (source.on_null, source.options.timestamps, source.options.decimals) == ("skip", "ms", "base64")
    assert source.explains()["written_as"] == {"timestamps": "ms", "decimals": "base64"}
    loaded = parse_pipeline(HEAD + text + "sinks:\n  out: {from: customers, topic: out}\n", "p.yaml", {})
    shown = render_explanation(derive_explanation(loaded, plan))
    assert "records without value: skip" in shown
    assert "written: timestamps as ms, decimals as base64" in shown


@pytest.mark.parametrize(
    ("step", "sink", "warned"),
    [
        ("select: {id: id}", "", True),
        ("where: id > 1", "", False),  # written as a field
        ("select: {id: id}, from: kept", "", False),
        ("select: {id: id}, from: both", "", True),
        ("select: {id: id, gone: _deleted}", ", key: id, on_null: {column: gone}", False),
    ],
)
def test_a_sink_that_writes_deleted_rows_like_others_is_warned_of(step: str, sink: str, warned: bool) -> None:
    reads = "" if "from" in step else "from: customers, "
    text = f"""\
{SOURCE}steps:
  - {{name: kept, from: customers, where: NOT _deleted}}
  - {{name: both, from: [plain, large]}}
  - {{name: large, from: customers, where: id > 1}}
  - {{name: last, {reads}{step}}}
sinks:
  out: {{from: last, topic: out{sink}}}
"""
    checked = check(text)
    assert checked.problems == ()
    found = [one.message for one in checked.warnings if one.path == "sinks.out"]
    message = "writes deleted rows of `customers` like any others: nothing reads `_deleted`"
    assert found == ([message] if warned else [])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("debezium,", "debezium, on_null: tombstone,", "a debezium source has rows of deletes already"),
        ("plain, ", "plain, written_as: {decimals: text}, ", "values of json are written in one way"),
        ("at: timestamp}}\n  p", "_op: string}}\n  p", "every debezium source has a column `_op` already"),
        ("topic: out", "topic: out, format: debezium", "`debezium` is not supported yet"),
        ("debezium, schema: {id: bigint, name: string, at: timestamp}", "debezium", "`schema` is missing"),
    ],
)  # fmt: skip
def test_words_that_do_not_go_together(old: str, new: str, message: str) -> None:
    text = SOURCE + "sinks:\n  out: {from: customers, topic: out}\n  more: {from: plain, topic: more}\n"
    assert old in text
    loaded = parse_pipeline(HEAD + text.replace(old, new, 1), "p.yaml", {})
    found = loaded.problems or check(text.replace(old, new, 1)).problems
    assert message in found[0].message
