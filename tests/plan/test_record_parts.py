"""Metadata of sources and parts of what sinks write, from the file to the plan."""

from __future__ import annotations

import pytest

from tests.plan.fingerprints import find_changes
from tests.plan.test_build import HEAD, check, names, operators, plan_of, shape
from tidegate.config.load import parse_pipeline
from tidegate.operators.builtin.kafka_sink import SinkOperator, TopicChoice
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.builtin.projection import SelectOperator
from tidegate.operators.spec import Requirement
from tidegate.plan.build import build_plan
from tidegate.plan.explain import derive_explanation, render_explanation
from tidegate.plan.graph import Plan
from tidegate.plan.state_fingerprints import derive_fingerprints

SOURCE = """\
sources:
  orders:
    topic: orders
    schema: {id: bigint, customer: string}
    metadata: {key: k, headers: h, timestamp: sent, partition: p, offset: o, topic: t}
  more: {topic: more, schema: {id: bigint, customer: string}}
"""
SINK = "sinks:\n  out: "


def source_of(plan: Plan, name: str = "orders") -> SourceOperator:
    found = operators(plan)[name]
    assert isinstance(found, SourceOperator)
    return found


def sink_of(plan: Plan, name: str = "out") -> SinkOperator:
    found = operators(plan)[name]
    assert isinstance(found, SinkOperator)
    return found


def carried(plan: Plan) -> tuple[list[str], dict[str, bool]]:
    """Sources that carry headers, and edges on which they go, by where they lead."""
    sources = [str(one.name) for one in plan.operators(SourceOperator) if one.carries_headers]
    return sources, {f"{edge.upstream}>{edge.downstream}": Requirement.HEADERS in edge.carries for edge in plan.edges}


def test_metadata_are_columns_that_are_read_where_they_are_wanted() -> None:
    plan = plan_of(
        SOURCE + "steps:\n  - {name: big, from: orders, where: p > 1}\n" + SINK + "{from: big, topic: out}\n"
    )
    assert names(source_of(plan).pruned_columns()) == ["id", "customer", "k", "h", "sent", "p", "o", "t"]
    plan = plan_of(
        SOURCE + "steps:\n  - {name: s, from: orders, select: {id: id, p: p}}\n" + SINK + "{from: s, topic: out}\n"
    )
    assert names(source_of(plan).pruned_columns()) == ["id", "p"]
    assert [one.name for one in source_of(plan).checked] == ["k", "h", "sent", "p"]


def test_a_tombstone_column_is_written_by_nobody_and_read_by_the_sink() -> None:
    text = SOURCE.replace("    metadata", "    on_null: tombstone\n    metadata")
    plan = plan_of(text + SINK + "{from: orders, topic: out, key: k, on_null: {column: _deleted}}\n")
    assert names(sink_of(plan).columns) == ["id", "customer", "k", "h", "sent", "p", "o", "t"]
    assert names(source_of(plan).pruned_columns())[-1] == "_deleted"


def test_headers_are_carried_on_the_ways_to_sinks_that_pass_them_on_only() -> None:
    plan = plan_of(
        SOURCE
        + """\
steps:
  - {name: slim, from: orders, select: {id: id}}
  - {name: slim_more, from: more, select: {id: id}}
  - {name: both, from: [slim, slim_more]}
  - {name: once, from: both, dedup: {key: id, within: 1m}}
  - {name: last, from: once, key: id, keep: last}
  - {name: totals, from: slim, key: id, aggregate: {n: count(*)}}
sinks:
  out: {from: last, topic: out, headers: {pass: [a]}}
  sums: {from: totals, topic: sums}
"""
    )
    assert carried(plan) == (
        ["orders", "more"],
        {"orders>both": True, "more>both": True, "both>once": True, "once>last": True, "orders>totals": False},
    )


def test_headers_go_through_steps_that_make_several_rows_of_one_or_choose_among_outputs() -> None:
    plan = plan_of(
        SOURCE.replace("customer: string}\n    metadata", "customer: string, items: array<string>}\n    metadata")
        + """\
steps:
  - {name: lines, from: orders, explode: {items: item}}
  - {name: kinds, from: lines, route: {big: id > 5, small: else}}
sinks:
  big: {from: kinds.big, topic: big, headers: {pass: all}}
  small: {from: kinds.small, topic: small}
"""
    )
    assert carried(plan)[0] == ["orders"]


def test_late_rows_have_the_headers_that_they_came_with() -> None:
    plan = plan_of(
        SOURCE
        + """\
steps:
  - {name: w, from: orders, key: id, window: {tumbling: 1m}, aggregate: {n: count(*)}, late: late}
sinks:
  out: {from: w, topic: out}
  late: {topic: late, headers: {pass: all}}
"""
    )
    assert carried(plan) == (["orders"], {"orders>w": True})


@pytest.mark.parametrize("headers", ["{pass: none}", "{add: {a: customer}}"])
def test_headers_that_nobody_passes_on_are_not_carried(headers: str) -> None:
    plan = plan_of(SOURCE + SINK + f"{{from: orders, topic: out, headers: {headers}}}\n")
    assert carried(plan) == ([], {})


def test_added_headers_are_computed_before_the_sink() -> None:
    plan = plan_of(SOURCE + SINK + "{from: more, topic: out, headers: {add: {a: upper(customer), b: \"'x'\"}}}\n")
    assert shape(plan) == {"more": ["more", "out.headers", "out"]}
    before = operators(plan)["out.headers"]
    assert isinstance(before, SelectOperator)
    assert names(before.output) == ["id", "customer", "headers.0", "headers.1"]
    rules = sink_of(plan).headers
    assert rules is not None
    assert rules.added == (("a", "headers.0"), ("b", "headers.1"))
    assert names(sink_of(plan).columns) == ["id", "customer"]


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        (
            "headers: {pass: all}",
            "the headers of records are lost in `totals`, whose rows are made from several records",
        ),
        ("headers: {drop: a}", "no headers are passed on"),
        ("headers: {add: {a: n}}", "is bigint, not a string or binary"),
        ("headers: {add: {a: m}}", "there is no column `m`"),
        ("partition: customer", "`customer` is string, not a whole number"),
        ("key: customer, key_format: raw", "`customer` is string, not binary, as a raw key requires"),
        ("key_format: json", "the sink has no key"),
        ("key: d, key_format: json", "`d` is double, whose values cannot be compared exactly"),
        ("on_null: {column: b}", "a tombstone needs a key, and this sink has none"),
        ("key: n, on_null: {column: n}", "`n` is bigint, not boolean"),
        ("key: b, on_null: {column: b}", "`b` is the key"),
    ],
)
def test_what_a_sink_cannot_write_is_reported(sink: str, message: str) -> None:
    checked = check(
        """\
sources:
  orders: {topic: orders, schema: {id: bigint, customer: string, f: boolean, amount: double}}
steps:
  - {name: totals, from: orders, key: customer, aggregate: {n: count(*), b: max(f), d: max(amount)}}
"""
        + SINK
        + f"{{from: totals, topic: out, {sink}}}\n"
    )
    assert message in [problem.message for problem in checked.problems]


def test_names_are_taken_once() -> None:
    text = SOURCE.replace("key: k, headers: h", "key: id, headers: t").replace(
        "    metadata", "    on_null: tombstone\n    metadata"
    )
    checked = check(
        text.replace("customer: string}\n    on", "_deleted: string}\n    on") + SINK + "{from: orders, topic: out}\n"
    )
    assert [(problem.path, problem.message) for problem in checked.problems] == [
        ("sources.orders.on_null", "`_deleted` is a column of `schema`, but it marks tombstones"),
        ("sources.orders.metadata.key", "`id` is a column of `schema` already"),
        ("sources.orders.metadata.topic", "`t` is a column of `metadata.headers` already"),
    ]


def test_the_explanation_has_what_the_file_says_and_nothing_where_it_says_nothing() -> None:
    text = HEAD + SOURCE.replace("    metadata", "    on_null: tombstone\n    metadata") + SINK
    text += "{from: orders, topic: out, key: k, partition: p, on_null: {column: _deleted}, headers: "
    text += "{pass: all, drop: [x], rename: {a: b}, add: {c: customer}}}\n  plain: {from: more, topic: plain}\n"
    loaded = parse_pipeline(text, "p.yaml", {})
    explanation = derive_explanation(loaded, build_plan(loaded))
    found = {one["name"]: one for vertex in explanation["vertices"] for one in vertex["operators"]}
    set_, unset = found["orders"]["text"] + found["out"]["text"], found["more"]["text"] + found["plain"]["text"]
    assert "headers: pass all; without x; a as b; c = customer" in set_
    assert any(line.startswith("metadata: key as k, headers as h, timestamp as sent") for line in set_)
    assert {"records without value: tombstone", "tombstones where _deleted"} <= {*set_}
    assert not [line for line in unset if line.startswith(("headers", "metadata", "records without", "tombstones"))]


AGGREGATE = (
    "steps:\n  - {name: totals, from: orders, key: k, aggregate: {n: sum(p)}}\n" + SINK + "{from: totals, topic: out}\n"
)


@pytest.mark.parametrize(
    ("edits", "changes"),
    [
        ([("partition: p", "partition: q"), ("sum(p)", "sum(q)")], []),
        ([("    metadata", "    on_null: skip\n    metadata")], []),
        ([("    metadata", "    key_format: raw\n    metadata")], ["key `k` of orders"]),
        ([("    metadata", "    on_null: tombstone\n    metadata")], ["the choice of records of orders"]),
        ([("partition: p, offset: o", "partition: o, offset: p")], ["`n` of orders"]),
    ],
)
def test_the_meaning_of_a_state_goes_by_the_part_of_the_record(
    edits: list[tuple[str, str]], changes: list[str]
) -> None:
    text = SOURCE + AGGREGATE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    before, after = (derive_fingerprints(plan_of(one)) for one in (SOURCE + AGGREGATE, text))
    assert [find_changes(before[name], after[name]) for name in before] == [changes]


CHOICE = "{expression: \"concat('o-', customer)\", allow: [o-a, o-b]}"


def test_a_sink_that_chooses_topics_has_a_column_for_the_choice_and_writes_what_arrives() -> None:
    text = SOURCE + SINK + f"{{from: orders, topic: {CHOICE}, key: k, headers: {{add: {{a: customer}}}}}}\n"
    plan = plan_of(text)
    sink = sink_of(plan)
    assert sink.topic == TopicChoice("topic", ("o-a", "o-b"), "concat('o-', customer)")
    assert sink.topics == ("o-a", "o-b")
    assert "topic" not in names(sink.columns)
    made = operators(plan)["out.headers"]
    assert isinstance(made, SelectOperator)
    assert {"topic", "headers.0"} <= {name for name, _ in made.output}
    alone = plan_of(SOURCE.replace("topic: t}", "topic: topic}") + SINK + f"{{from: orders, topic: {CHOICE}}}\n")
    assert isinstance(operators(alone)["out.topic"], SelectOperator)
    found = sink_of(alone)
    assert isinstance(found.topic, TopicChoice)
    assert found.topic.column == "topic_", "the name is taken by a column that is written"
    data = derive_explanation(parse_pipeline(HEAD + text, "p.yaml", {}), plan)
    assert "topic concat('o-', customer), one of o-a, o-b; json" in render_explanation(data)


def test_topics_that_are_chosen_may_feed_the_pipeline_or_hold_dead_letters() -> None:
    sink = SINK + "{from: orders, topic: {expression: customer, allow: [orders, other, dead]}}\n"
    (warning,) = [one for one in check(SOURCE + sink).warnings if "feeds itself" in one.message]
    assert warning.message.startswith("`orders` is read by")
    letters = SOURCE.replace("topic: orders", "bad_records: dead-letter\n    topic: orders")
    (problem,) = check(letters + sink + "dead_letters: {topic: dead}\n").problems
    assert problem.message == "`dead` is written by the sink `out`"


@pytest.mark.parametrize(
    ("sink", "dropped"),
    [
        ("format: json, headers: {pass: all}", ("__value_schema_id", "__key_schema_id")),
        ("format: json, key_format: raw, key: v, headers: {pass: all}", ("__value_schema_id",)),
        ("format: json, headers: {pass: [__value_schema_id]}", ()),
    ],
)
def test_headers_that_say_how_a_record_was_written_are_not_passed_on_to_another_one(
    sink: str, dropped: tuple[str, ...]
) -> None:
    text = (
        'registry: {url: "http://h:1"}\nsources:\n  orders: {topic: orders, format: avro, schema: {v: binary}, '
        f"schema_id: ID}}\n{SINK}{{from: orders, topic: out, {sink}}}\n"
    )
    rules = sink_of(plan_of(text.replace("ID", "header"))).headers
    assert rules is not None
    assert rules.dropped == dropped
    rules = sink_of(plan_of(text.replace("ID", "prefix"))).headers
    assert rules is not None
    assert rules.dropped == ()


KEEPS_NEITHER = ("__value_schema_id", "__key_schema_id")


@pytest.mark.parametrize(
    ("source", "sink", "dropped"),
    [
        ("format: raw", "format: raw", ()),  # the key, a binary column, is written byte for byte
        ("format: raw", "format: raw, key_format: json", ("__key_schema_id",)),
        ("format: raw, metadata: {key: k}, key_format: string", "format: raw, key: k", ("__key_schema_id",)),
        ("format: raw, metadata: {key: k}, key_format: json, key_schema: {a: int}",
         "format: raw, key: k, key_format: json", ("__key_schema_id",)),
        ("format: raw", "format: raw, headers: {pass: all, rename: {__key_schema_id: was}}", ()),
        ("format: json, schema: {id: bigint}",
         "format: json, headers: {pass: all, rename: {__value_schema_id: was}}", ("__key_schema_id",)),
        ("format: json, schema: {id: bigint}",
         "format: json, headers: {pass: all, drop: a}", ("a", *KEEPS_NEITHER)),
    ],
)  # fmt: skip
def test_headers_stay_that_are_true_of_what_is_written_or_are_renamed(
    source: str, sink: str, dropped: tuple[str, ...]
) -> None:
    """A source that has nothing to do with the sink took the header of its keys, without which nobody can read them."""
    text = (
        'registry: {url: "http://h:1"}\nsources:\n'
        "  other: {topic: o, format: avro, schema: {v: int}, schema_id: header}\n"
        f"  orders: {{topic: orders, {source}}}\n{SINK}{{from: orders, topic: out, {sink}"
    )
    text += "" if "pass: all" in sink else ", headers: {pass: all}"
    rules = sink_of(plan_of(text + "}\n  rest: {from: other, topic: rest, format: json}\n")).headers
    assert rules is not None
    assert rules.dropped == dropped


@pytest.mark.parametrize(
    ("sink", "dropped"),
    [
        ("format: avro", ("__value_schema_id",)),
        ("format: json-schema", ("__value_schema_id",)),
        ("format: json, key: id, key_format: avro", ("__key_schema_id",)),
        ("format: json", ()),
    ],
)
def test_a_sink_that_writes_with_a_schema_passes_on_no_other_one(sink: str, dropped: tuple[str, ...]) -> None:
    """No source says `header`, and records have the header all the same: its readers would look there first."""
    text = (
        'registry: {url: "http://h:1"}\nsources:\n  orders: {topic: orders, format: json, schema: {id: bigint}}\n'
        f"{SINK}{{from: orders, topic: out, {sink}, headers: {{pass: all}}}}\n"
    )
    rules = sink_of(plan_of(text)).headers
    assert rules is not None
    assert rules.dropped == dropped
