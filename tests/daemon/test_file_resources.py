"""The resources `plan` and `config`, as JSON."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from tests.testing.pipelines import HEAD
from tidegate.config.draft import SAMPLE
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.daemon.http.resources import ResourceQuery
from tidegate.daemon.resources import make_file_resources
from tidegate.plan.build import build_plan
from tidegate.plan.explain import derive_explanation, render_explanation

LOGIN = "security.protocol: sasl_ssl, sasl.mechanism: PLAIN, sasl.username: me".replace(", ", "\n  ")
TEXT = SAMPLE.replace("kafka:    ", f"kafka:\n  sasl.password: opensesame\n  {LOGIN}\n  #", 1)
JOIN = (
    HEAD
    + """\
sources:
  orders: {topic: orders, schema: {id: bigint, at: timestamp}, event_time: at, watermark: {delay: 1s}}
  payments: {topic: payments, schema: {id: bigint, at: timestamp}, event_time: at, watermark: {delay: 1s}}
steps:
  - {name: w, from: orders, key: id, window: {tumbling: 1m}, aggregate: {n: count(*)}, late: late_rows}
sinks:
  out: {from: [w], topic: out, key: id}
  late_rows: {topic: late}
  copy: {from: payments, topic: copy}
"""
)


def read(loaded: LoadedPipeline) -> dict[str, Any]:
    """Returns the JSON of every resource."""
    assert loaded.problems == ()

    async def read_all() -> dict[str, Any]:
        resources = make_file_resources(loaded, build_plan(loaded))
        answers = {one.name: await one.read(ResourceQuery()) for one in resources}
        for one in resources:
            msgspec.convert(msgspec.to_builtins(answers[one.name]), one.answer)
            assert await one.read(ResourceQuery()) is answers[one.name], "derived once"
        return {name: json.loads(msgspec.json.encode(answer)) for name, answer in answers.items()}

    return asyncio.run(read_all())


def test_the_plan_has_steps_with_inputs_and_their_places() -> None:
    loaded = parse_pipeline(SAMPLE, "p.yaml", {})
    plan = read(loaded)["plan"]
    steps = {one["name"]: one for one in plan["steps"]}
    assert steps["per_customer"] == {
        "name": "per_customer",
        "kind": "aggregate",
        "vertex": "per_customer",
        "inputs": [{"from": "per_customer.input", "port": 0, "alias": "", "output": "", "keys": ["customer"]}],
        "text": steps["per_customer"]["text"],
    }
    assert steps["big"]["vertex"] == "orders"
    assert [one["from"] for one in steps["big"]["inputs"]] == ["orders"]
    assert [one["output"] for one in steps["dead_letters.bytes"]["inputs"] if one["from"] == "orders"] == ["dead"]
    layout = plan["layout"]
    assert [one["step"] for one in layout["nodes"]] == [one["name"] for one in plan["steps"]]
    exchanged = {(one["from"], one["to"]) for one in layout["edges"] if one["exchanged"]}
    assert exchanged == {("per_customer.input", "per_customer")}
    assert (plan["pipeline"], plan["parallelism"]) == ("orders-per-customer", 2)
    assert plan["explain"] == render_explanation(derive_explanation(loaded, build_plan(loaded)))


def test_a_side_output_is_named() -> None:
    plan = read(parse_pipeline(JOIN, "p.yaml", {}))["plan"]
    (late,) = (one["inputs"] for one in plan["steps"] if one["name"] == "late_rows")
    assert [(one["from"], one["output"]) for one in late] == [("w", "late")]
    assert ("w", "late_rows", "late") in {(one["from"], one["to"], one["output"]) for one in plan["layout"]["edges"]}


def test_the_configuration_has_origins_and_no_secrets() -> None:
    answers = read(parse_pipeline(TEXT, "some/p.yaml", {"KAFKA_BOOTSTRAP": "broker:9092"}))
    config = answers["config"]
    settings = {one.pop("path"): one for one in config["settings"]}
    assert settings["kafka.bootstrap.servers"] == {
        "value": "broker:9092",
        "origin": "environment",
        "place": "p.yaml:11",
        "references": ["KAFKA_BOOTSTRAP"],
    }
    assert settings["kafka.sasl.password"]["value"] == "***"
    assert settings["steps.big.where"]["value"] == "amount >= 100"
    assert settings["checkpoints.mode"]["origin"] == "default"
    assert config["file"] == "some/p.yaml"
    assert "sasl.password: ***\n" in config["text"]
    assert "opensesame" not in json.dumps(answers)
