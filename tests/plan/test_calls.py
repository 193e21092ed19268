"""Steps that call something outside, from the file to the plan: columns, pruning, secrets, words, meaning."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from tests.support.user_code import describe_here, with_async_functions
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.operators.kinds.http_calls import HttpOperator
from tidegate.plan.build import build_plan
from tidegate.plan.explain import derive_explanation, render_explanation
from tidegate.plan.graph import Plan
from tidegate.plan.state_fingerprints import derive_fingerprints

TEXT = """
version: 1
name: p
kafka: {bootstrap.servers: broker:9092}
checkpoints: {directory: /checkpoints}
sources:
  orders: {topic: orders, schema: {id: bigint, sku: string, note: string, amount: double}}
steps:
  - name: priced
    from: orders
    http: {url: "https://prices/{sku}", cache: 10m, headers: {Authorization: "${file:FILE}"}}
    output: {price: double, currency: string}
  - {name: located, from: priced, async: lookup.geo:resolve, output: {country: string}, order: unordered}
  - {name: totals, from: LAST, key: country, aggregate: {price: sum(price)}}
sinks:
  out: {from: totals, topic: out, key: country}
"""


def load(tmp_path: Path, last: str = "located", **changes: str) -> LoadedPipeline:
    secret = tmp_path / "token"
    secret.write_text("Bearer opensesame")
    text = TEXT.replace("FILE", str(secret)).replace("LAST", last)
    for old, new in changes.items():
        text = text.replace(old, new)
    return with_async_functions(parse_pipeline(text, "p.yaml", {}))


def http_of(plan: Plan) -> HttpOperator:
    (found,) = plan.operators(HttpOperator)
    return found


def test_a_function_gets_the_whole_row_and_an_answer_keeps_the_columns_that_are_read(tmp_path: Path) -> None:
    plan = build_plan(load(tmp_path))
    (edge,) = plan.edges
    assert [name for name, _ in edge.columns] == ["country", "price"]
    assert http_of(plan).reads() == {"id", "sku", "note", "amount"}


def test_an_http_lookup_reads_its_url_and_what_is_read_after_it(tmp_path: Path) -> None:
    plan = build_plan(load(tmp_path, last="priced", **{"key: country": "key: currency"}))
    spec = http_of(plan)
    assert spec.reads() == {"sku"}
    assert [name for name, _ in spec.pruned_columns()] == ["price", "currency"]
    assert [name for name, _ in spec.answers] == ["price", "currency"]
    assert dict(plan.vertices[0].nodes[0].operator.pruned_columns()).keys() == {"sku"}


def test_a_plan_with_calls_travels_to_the_slots(tmp_path: Path) -> None:
    plan = build_plan(load(tmp_path))
    plan = msgspec.structs.replace(plan, modules={"lookup/geo.py": "x = 1\n"})
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
    assert http_of(plan).headers == {"Authorization": "Bearer opensesame"}


def test_headers_are_secrets(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    explanation = derive_explanation(loaded, build_plan(loaded))
    assert "opensesame" not in json.dumps(explanation) + render_explanation(explanation)
    assert loaded.secrets("said Bearer opensesame") == "said ***"


def test_an_explanation_says_whom_a_step_asks_and_how(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    explanation = derive_explanation(loaded, build_plan(loaded))
    priced, located = explanation["vertices"][0]["operators"][1:3]
    assert priced["text"] == [
        "GET https://prices/{sku}, answers good for 10m",
        "adds price double, currency string",
        "100 rows at a time, in order",
        "5s an attempt, 3 retries, 20s in all",
    ]
    assert priced["state"] == "list"
    assert located["text"][:2] == ["calls lookup.geo:resolve", "adds country string"]
    assert located["text"][2] == "100 rows at a time, unordered within watermarks"


def test_a_single_retry_is_one(tmp_path: Path) -> None:
    spec = http_of(build_plan(load(tmp_path)))
    once = msgspec.structs.replace(spec, policy=msgspec.structs.replace(spec.policy, retries=1))
    assert once.describes()[-1] == "5s an attempt, 1 retry, 20s in all"


def test_what_is_asked_is_part_of_what_a_state_after_it_means(tmp_path: Path) -> None:
    fingerprints = [
        derive_fingerprints(build_plan(load(tmp_path, **changes)))
        for changes in ({}, {"timeout": "timeout"}, {"resolve": "other"}, {"prices/{sku}": "prices/v2/{sku}"})
    ]
    assert fingerprints[0] == fingerprints[1]
    assert len({json.dumps(one) for one in fingerprints}) == 3


def test_an_explanation_shows_which_code_a_step_runs_and_what_travels(tmp_path: Path) -> None:
    loaded = describe_here(load(tmp_path), {"lookup/geo.py": "async def resolve(row): ...\n"})
    explanation = derive_explanation(loaded, build_plan(loaded))
    text = render_explanation(explanation)
    (code,) = build_plan(loaded).code.values()
    assert f"code {code.digest[:12]}" in text
    assert "modules that are sent to the slots: lookup/geo.py (28 characters)" in text
    assert explanation["code"] == {"lookup/geo.py": 28}
