"""Which columns are never shown: those that the file names, and those made with `secret()`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.pipelines import HEAD, load
from tidegate.config.load import parse_pipeline
from tidegate.plan.build import check_pipeline
from tidegate.plan.taps import derive_masked_columns

PIPELINE = (
    HEAD
    + """\
secrets: {cards: "${file:KEY}"}
sources:
  orders: {topic: orders, schema: {id: bigint, number: string, city: string}, bad_records: skip}
steps:
  - name: hidden
    from: orders
    select:
      id: id
      city: city
      card: aes_encrypt(number, secret('cards'), 'ECB')
      note: concat(city, hex(aes_encrypt(city, secret('cards'), 'ECB')))
      plain: upper('x')
  - {name: shown, from: hidden, select: {id: id, plain: plain, card: card, length: length(card)}}
  - {name: totals, from: shown, key: plain, aggregate: {n: count(*), longest: max(length), newest: last(id)}}
sinks:
  out: {from: totals, topic: out, key: plain}
  copy: {from: hidden, topic: copy, key: id}
tests:
"""
)


def test_what_is_made_with_a_secret_is_masked_and_so_is_what_is_computed_from_it(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("opensesame-16byt\n")
    _, plan = load("  []\n", PIPELINE.replace("KEY", str(tmp_path / "key")))
    found = derive_masked_columns(plan, ["id"])
    assert {"id", "number", "city", "card", "note", "length", "longest", "newest"} <= found
    assert not {"plain", "n"} & found


def test_fields_of_structs_and_keys_of_maps_count_as_columns() -> None:
    text = """\
sources:
  orders: {topic: orders, schema: {payer: "struct<Card: string, city: string>", more: "map<string, string>"}}
steps:
  - {name: flat, from: orders, select: {a: payer.card, b: "upper(more['card'])", c: payer.city, d: "more['city']"}}
sinks: {out: {from: flat, topic: out}}
tests:
"""
    _, plan = load("  []\n", HEAD + text)
    assert derive_masked_columns(plan, ["CARD"]) == {"card", "a", "b"}


@pytest.mark.parametrize(
    ("redact", "remedy"),
    [
        ("[customer, Amount]", None),
        ("[street]", None),
        ("[custmer]", "did you mean `customer`?"),
        ("[zzz]", "use one of `amount`, `customer`, `place`, `street`"),
    ],
)
def test_a_name_that_no_column_has_is_a_warning(redact: str, remedy: str | None) -> None:
    text = f"""\
http: {{redact: {redact}}}
sources:
  orders: {{topic: orders, schema: {{customer: string, amount: double, place: "array<struct<street: string>>"}}}}
sinks: {{out: {{from: orders, topic: out}}}}
"""
    checked = check_pipeline(parse_pipeline(HEAD + text, "orders.yaml", {}))
    assert not checked.problems
    assert [(one.path, one.line, one.remedy) for one in checked.warnings] == (
        [] if remedy is None else [("http.redact.0", 5, remedy)]
    )
