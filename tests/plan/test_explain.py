"""What `explain` says."""

from __future__ import annotations

import json

from tests.testing.pipelines import HEAD
from tidegate.config.draft import SAMPLE
from tidegate.config.load import parse_pipeline
from tidegate.plan.build import build_plan
from tidegate.plan.explain import derive_explanation, render_explanation

LOGIN = "security.protocol: sasl_ssl, sasl.mechanism: PLAIN, sasl.username: me".replace(", ", "\n  ")
TEXT = SAMPLE.replace("kafka:    ", f"kafka:\n  sasl.password: opensesame\n  {LOGIN}\n  #", 1)


def test_an_explanation_names_operators_exchanges_state_and_subtasks() -> None:
    loaded = parse_pipeline(TEXT, "p.yaml", {})
    explanation = derive_explanation(loaded, build_plan(loaded))
    kinds = [[operator["kind"] for operator in vertex["operators"]] for vertex in explanation["vertices"]]
    assert kinds == [
        ["source", "filter", "select", "select", "sink"],
        ["aggregate", "sink"],
        ["read-back", "dead-letters"],
    ]
    assert [vertex["subtasks"] for vertex in explanation["vertices"]][1] == ["per_customer[0]", "per_customer[1]"]
    exchange, *letters = explanation["exchanges"]
    assert (exchange["by"], exchange["channels"]) == (["customer"], 4)
    assert {(one["to"], one["by"]) for one in letters} == {("dead_letters.bytes", "same slot")}
    assert [operator["state"] for operator in explanation["vertices"][1]["operators"]] == ["keyed", "none"]


def test_an_explanation_says_where_late_rows_go() -> None:
    text = (
        HEAD
        + """\
sources:
  orders: {topic: orders, schema: {at: timestamp, region: string}, event_time: at, watermark: {delay: 1s}}
steps:
  - {name: w, from: orders, key: region, window: {tumbling: 1m}, aggregate: {n: count(*)}, late: late_rows}
sinks:
  out: {from: w, topic: out, key: region}
  late_rows: {topic: late}
"""
    )
    loaded = parse_pipeline(text, "p.yaml", {})
    explanation = derive_explanation(loaded, build_plan(loaded))
    named = {one["name"]: one.get("late_rows_to") for vertex in explanation["vertices"] for one in vertex["operators"]}
    assert named == {"orders": None, "w.input": None, "w": ["late_rows"], "out": None, "late_rows": None}
    assert "      late rows go to late_rows\n" in render_explanation(explanation)


def test_an_explanation_has_what_decides_the_size_of_the_output_of_each_sink() -> None:
    text = (
        HEAD
        + """\
sources:
  orders: {topic: orders, schema: {id: bigint}}
sinks:
  small: {from: orders, topic: small, kafka: {compression.codec: zstd, linger.ms: 200}}
  fast: {from: orders, topic: fast}
"""
    )
    loaded = parse_pipeline(text, "p.yaml", {})
    explanation = derive_explanation(loaded, build_plan(loaded))
    (vertex,) = explanation["vertices"]
    shapes = {one["name"]: one.get("producer") for one in vertex["operators"]}
    defaults = {"batch.size": "1048576", "batch.num.messages": "10000", "message.max.bytes": "1048588"}
    assert shapes == {
        "orders": None,
        "small": {"compression.type": "zstd", "linger.ms": "200", **defaults},
        "fast": {"compression.type": "none", "linger.ms": "50", **defaults},
    }
    assert "producer: compression.type zstd, linger.ms 200, batch.size 1048576" in render_explanation(explanation)


def test_an_explanation_tells_where_each_setting_came_from_and_hides_secrets() -> None:
    loaded = parse_pipeline(TEXT, "p.yaml", {"KAFKA_BOOTSTRAP": "broker:9092"})
    explanation = derive_explanation(loaded, build_plan(loaded))
    settings = {setting["path"]: (setting["value"], setting["origin"]) for setting in explanation["settings"]}
    assert settings["checkpoints.timeout"] == ("10m", "default")
    assert settings["spark.master"] == ("local[2]", "default")
    assert settings["kafka.sasl.password"] == ("***", "file line 6")
    assert settings["kafka.bootstrap.servers"] == ("broker:9092", "file line 11 (KAFKA_BOOTSTRAP)")
    assert "opensesame" not in json.dumps(explanation) + render_explanation(explanation)


def test_an_explanation_reads_as_text() -> None:
    loaded = parse_pipeline(SAMPLE, "p.yaml", {})
    lines = render_explanation(derive_explanation(loaded, build_plan(loaded))).split("\n")
    assert lines[0] == "pipeline orders-per-customer: exactly-once, 2 slots, 128 key groups"
    assert "  <- orders by customer (4 channels): customer string, net double" in lines
    assert all(line == line.rstrip() for line in lines)


def test_a_mapping_reads_as_the_file_has_it() -> None:
    loaded = parse_pipeline(SAMPLE.replace("start: earliest", "start: {0: 17, 1: 4}"), "p.yaml", {})
    text = render_explanation(derive_explanation(loaded, build_plan(loaded)))
    assert "sources.orders.start" in text
    assert " {0: 17, 1: 4} " in text


def test_an_explanation_names_the_text_constants_in_which_a_variable_was_replaced() -> None:
    """`${HOME}` that was meant as a text is replaced without a word. Values of variables may be secret."""
    text = (
        HEAD
        + """\
sources:
  mails: {topic: "${PREFIX:x}-mails", schema: {id: int, body: string}}
steps:
  - {name: low, from: mails, where: "id > ${LOW:0} and ${COND:true}"}
  - name: host
    from: low
    select:
      id: id
      body: "replace(concat(body, '$${HOME}'), '${HOME}', '~')"
      kind: "'${A}' || '-' || ${QUOTED}"
  - {name: best, from: host, key: kind, aggregate: {n: "max(concat(body, '${A}'))"}}
sinks:
  out: {from: best, topic: out}
"""
    )
    loaded = parse_pipeline(text, "p.yaml", {"HOME": "/root", "A": "opensesame", "QUOTED": "'q'"})
    explanation = derive_explanation(loaded, build_plan(loaded))
    found = [(one["path"], one["constant"], one["variables"]) for one in explanation["replaced_texts"]]
    assert found == [
        ("steps.host.select.body", "'${HOME}'", ["HOME"]),
        ("steps.host.select.kind", "'${A}'", ["A"]),
        ("steps.host.select.kind", "${QUOTED}", ["QUOTED"]),
        ("steps.best.aggregate.n", "'${A}'", ["A"]),
    ]
    shown = render_explanation(explanation).partition("\ntext constants")[2].split("\n")
    origin = explanation["replaced_texts"][0]["origin"]
    assert origin.endswith(" (HOME)")
    assert shown[:2] == [
        " in which a variable was replaced (write `$${` for a literal `${`)",
        f"  steps.host.select.body  '${{HOME}}'  {origin}",
    ]
    assert "opensesame" not in "\n".join(shown)
