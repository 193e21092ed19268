"""Keys of expressions: which are refused, who gets them, and where they must never be seen."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path

import msgspec
import pytest

from tests.testing.pipelines import HEAD, load, run
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.expressions.compiled import compile_projection
from tidegate.expressions.compiled.probe import find_problem
from tidegate.expressions.secrets import KeyUnusable, derive_key_bytes, put_stand_ins, reveal_secrets
from tidegate.plan.build import check_pipeline
from tidegate.plan.explain import derive_explanation, render_explanation
from tidegate.plan.graph import Plan
from tidegate.plan.state_fingerprints import derive_fingerprints

KEY = "opensesame-16byt"
HEX = "000102030405060708090a0b0c0d0e0f"
PIPELINE = (
    HEAD
    + """\
secrets: {cards: "${file:KEYS/cards}", other: "${file:KEYS/other}", small: "${file:KEYS/small}"}
sources:
  orders: {topic: orders, schema: {id: bigint, card: string}, bad_records: skip}
steps:
  - name: hidden
    from: orders
    select:
      id: id
      card: aes_encrypt(card, secret('cards'))
      same: aes_encrypt(card, secret('other', 'hex'), 'ECB')
  - {name: shown, from: hidden, select: {id: id, card: "decode(aes_decrypt(card, secret('cards')), 'utf-8')"}}
  - name: counted
    from: hidden
    key: same
    aggregate: {n: count(*), o: "max(aes_encrypt(cast(id as string), secret('cards'), 'ECB'))"}
sinks:
  out: {from: shown, topic: out, key: card}
  counts: {from: counted, topic: counts, key: n}
tests:
"""
)


@pytest.fixture
def pipeline(tmp_path: Path) -> str:
    for name, text in (("cards", KEY), ("other", HEX), ("small", "too short")):
        (tmp_path / name).write_text(f"{text}\n")
    return PIPELINE.replace("KEYS", str(tmp_path))


def loaded_of(pipeline: str) -> LoadedPipeline:
    loaded = parse_pipeline(pipeline.removesuffix("tests:\n"), "orders.yaml", {})
    assert not loaded.problems
    return loaded


def plan_of(pipeline: str) -> tuple[LoadedPipeline, Plan]:
    return load("  []\n", pipeline)


def test_what_is_encrypted_by_a_secret_is_decrypted_by_it(pipeline: str) -> None:
    case = """\
  - name: one
    given: {orders: [{value: {id: 1, card: "4711"}}, {value: {id: 2, card: "4711"}}, {value: {id: 3, card: null}}]}
    expect:
      out:
        - {key: "4711", value: {id: 1, card: "4711"}}
        - {key: "4711", value: {id: 2, card: "4711"}}
        - {value: {id: 3, card: null}}
"""
    result = run(case, pipeline)["one"]
    assert not result.failures, result.failures


def test_the_key_is_in_nothing_that_people_or_files_see(pipeline: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    loaded, plan = plan_of(pipeline)
    explanation = derive_explanation(loaded, plan)
    seen = [
        json.dumps(explanation),
        render_explanation(explanation),
        msgspec.json.encode((plan.vertices, plan.edges)).decode(),
        json.dumps(derive_fingerprints(plan)),
        repr(loaded.settings),
        repr(plan.vertices),
        caplog.text,
    ]
    for text in seen:
        for key in (KEY, HEX, KEY.encode().hex(), base64.b64encode(KEY.encode()).decode()):
            assert key not in text
    assert "secret('cards')" in seen[1]
    assert loaded.secrets(f"x {KEY} y") == "x *** y", "logs are redacted, too"
    assert dict(plan.secrets) == {"cards": KEY, "other": HEX}, "only those that are used travel"


def test_a_new_key_is_no_other_meaning_of_the_state(pipeline: str, tmp_path: Path) -> None:
    before = plan_of(pipeline)[1]
    (tmp_path / "other").write_text(HEX[::-1])
    after = plan_of(pipeline)[1]
    assert derive_fingerprints(before) == derive_fingerprints(after)
    assert derive_fingerprints(after) == derive_fingerprints(reveal_keys(after)), (
        "nor does it come in where a slot looks"
    )


def reveal_keys(plan: Plan) -> Plan:
    return msgspec.structs.replace(plan, vertices=reveal_secrets(plan.vertices, plan.secrets))


def test_messages_of_failures_do_not_name_the_key(pipeline: str) -> None:
    _, plan = plan_of(pipeline)
    (select,) = (node.operator for node in reveal_keys(plan).nodes if node.operator.name == "shown")
    text = select.describes()[1]
    assert KEY.encode().hex() in repr(select), "the key is there"
    assert text == "card = decode(aes_decrypt(card, secret('cards')), 'utf-8')"


def test_expressions_are_tried_without_the_key(pipeline: str) -> None:
    checked = check_pipeline(loaded_of(pipeline))
    for one in checked.expressions:
        assert compile_projection([("value", put_stand_ins(one.expression))]) is not None


def test_a_constant_that_is_encrypted_is_taken(pipeline: str) -> None:
    salt = "aes_decrypt(unbase64('1HZYgCeAQ1qLPgUbOWaF4A=='), secret('cards'), 'ECB')"
    text = pipeline.replace("aes_encrypt(card, secret('cards'))", f"sha2(concat(card, cast({salt} as string)), 256)")
    checked = check_pipeline(loaded_of(text))
    assert [find_problem(one.expression) for one in checked.expressions] == [""] * len(checked.expressions)


@pytest.mark.parametrize(
    ("expression", "message", "remedy"),
    [
        ("aes_encrypt(card, secret('card'))", "there is no secret `card`", "did you mean `cards`?"),
        ("aes_encrypt(card, secret('zzz'))", "there is no secret `zzz`", "use one of `cards`, `other`, `small`"),
        ("aes_encrypt(card, secret('small'))", "secret `small` is not a key: it has 9 bytes", "'base64'"),
        ("aes_encrypt(card, secret('cards', 'hex'))", "secret `cards` is not a key: it is not hex", "'base64'"),
        ("base64(secret('cards'))", "`secret('cards')` would be visible", "as the key of aes_encrypt"),
        ("aes_encrypt(secret('cards'), secret('cards'))", "would be visible", "as the key of aes_encrypt"),
        ("coalesce(cast(secret('cards') as string), card)", "would be visible", "as the key of aes_encrypt"),
        ("cast(transform(array(1), x -> secret('cards')) as string)", "", ""),
    ],
)
def test_what_is_no_key_is_refused_at_its_place(pipeline: str, expression: str, message: str, remedy: str) -> None:
    text = pipeline.replace("aes_encrypt(card, secret('cards'))", expression)
    problems = check_pipeline(loaded_of(text)).problems
    assert problems
    assert problems[0].path == "steps.hidden.select.card"
    assert message in problems[0].message
    assert remedy in problems[0].remedy


def test_totals_of_changes_by_random_bytes_are_refused() -> None:
    text = (
        HEAD
        + """\
sources:
  orders: {topic: orders, format: debezium, schema: {id: bigint, card: string, own: binary}}
steps:
  - {name: hidden, from: orders, select: {id: id, card: "aes_encrypt(card, own, MODE)"}}
  - {name: counted, from: hidden, key: card, aggregate: {n: count(*)}}
sinks:
  counts: {from: counted, topic: counts, key: card, on_null: {column: _deleted}}
"""
    )
    refused = check_pipeline(loaded_of(text.replace("MODE", "'GCM'"))).problems
    assert "goes by `card` of `hidden`, which may differ when a row is taken back" in refused[0].message
    assert not check_pipeline(loaded_of(text.replace("MODE", "'ECB'"))).problems


@pytest.mark.parametrize(
    ("text", "form", "key"),
    [
        (KEY, "text", KEY.encode()),
        (HEX, "hex", bytes(range(16))),
        (base64.b64encode(bytes(32)).decode(), "base64", bytes(32)),
        ("é" * 8, "text", ("é" * 8).encode()),
    ],
)
def test_forms_of_keys(text: str, form: str, key: bytes) -> None:
    assert derive_key_bytes(text, form) == key


@pytest.mark.parametrize(("text", "form"), [("", "text"), ("zz", "hex"), ("€", "base64"), (KEY, "hex")])
def test_what_is_no_key_says_nothing_of_it(text: str, form: str) -> None:
    with pytest.raises(KeyUnusable) as caught:
        derive_key_bytes(text, form)
    assert not text or text not in str(caught.value)
