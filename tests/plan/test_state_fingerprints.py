"""What changes the meaning of a state, and what does not (X16)."""

from __future__ import annotations

import hashlib
import json
from functools import partial

import pytest

from tests.plan.fingerprints import find_changes
from tidegate.config.load import parse_pipeline
from tidegate.operators.fingerprint import VERSION, StateFingerprint
from tidegate.plan.build import build_plan
from tidegate.plan.state_fingerprints import derive_fingerprints

PIPELINE = """\
version: 1
name: orders
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///tmp/orders}
sources:
  orders: {topic: orders, schema: {id: bigint, customer: string, amount: double, qty: int}}
  returns: {topic: returns, schema: {id: bigint, customer: string, amount: double, qty: int}}
steps:
  - {name: big, from: orders, where: amount > 100 and qty > 0}
  - {name: priced, from: big, select: {who: customer, net: amount * qty, note: "'x'"}}
  - {name: totals, from: priced, key: who, aggregate: {n: count(*), total: sum(net)}}
  - {name: high, from: totals, where: total > 5}
  - {name: again, from: high, key: n, aggregate: {most: max(total)}}
  - {name: both, from: [orders, returns], key: customer, aggregate: {sum: sum(qty)}}
sinks:
  out: {from: totals, topic: out, key: who}
  more: {from: again, topic: more, key: n}
  all: {from: both, topic: all, key: customer}
"""


def meanings_of(*changes: tuple[str, str], text: str = PIPELINE) -> dict[str, StateFingerprint]:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return {
        str(name): meaning for name, meaning in derive_fingerprints(build_plan(parse_pipeline(text, "p", {}))).items()
    }


def changed(*changes: tuple[str, str]) -> dict[str, list[str]]:
    old, new = meanings_of(), meanings_of(*changes)
    found = {name: find_changes(old[name], new.get(name, {})) for name in old}
    return {name: what for name, what in found.items() if what}


def test_the_meaning_is_told_by_step_source_and_part() -> None:
    found = meanings_of()
    assert {name: {origin: list(parts) for origin, parts in meaning.items()} for name, meaning in found.items()} == {
        "totals": {"orders": ["the choice of records", "key `who`", "`n`", "`total`"]},
        "again": {"totals": ["the choice of records", "key `n`", "`most`"]},
        "both": {
            "orders": ["the choice of records", "key `customer`", "`sum`"],
            "returns": ["the choice of records", "key `customer`", "`sum`"],
        },
    }
    assert all(
        digest.startswith(f"{VERSION}:") and len(digest) == 18
        for meaning in found.values()
        for parts in meaning.values()
        for digest in parts.values()
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("sum(net)", "sum(net * 2)"), {"totals": ["`total` of orders"]}),
        (("sum(net)", "max(net)"), {"totals": ["`total` of orders"]}),
        (("amount * qty", "amount / qty"), {"totals": ["`total` of orders"]}),
        (("amount > 100", "amount > 50"), {"totals": ["the choice of records of orders"]}),
        (("who: customer", "who: upper(customer)"), {"totals": ["key `who` of orders"]}),
        (("where: total > 5", "where: total > 6"), {"again": ["the choice of records of totals"]}),
        (
            ("total: sum(net)}}", "total: sum(net)}, emit: latest}"),
            {"again": ["the choice of records of totals", "key `n` of totals", "`most` of totals"]},
        ),
        (("from: [orders, returns]", "from: orders"), {"both": ["it no longer gets records of returns"]}),
        (("{sum: sum(qty)}", "{sum: sum(qty), n: count(*)}"), {"both": ["`n` is new"]}),
        (("sum(net)", "sum(net) filter (where net > 0)"), {"totals": ["`total` of orders"]}),
        (("count(*)", "count(*) filter (where net > 0)"), {"totals": ["`n` of orders"]}),
        (("from: big, select", "from: orders, select"), {"totals": ["the choice of records of orders"]}),
    ],
)
def test_X16_what_changes_a_total_changes_its_meaning(change: tuple[str, str], expected: dict[str, list[str]]) -> None:
    assert changed(change) == expected


FILTERED = ("sum(net)", "last(net) filter (where net > 0)")


@pytest.mark.parametrize(
    ("text", "differs"),
    [
        ("LAST(net) FILTER (WHERE NET>0)", False),
        ("last(net) filter (where net > 0) respect nulls", False),
        ("last(net) filter (where net > 1)", True),
        ("last(net)", True),
        ("last(net) filter (where net > 0) ignore nulls", True),
    ],
)
def test_X16_which_rows_an_aggregate_counts_belongs_to_its_meaning(text: str, differs: bool) -> None:
    old, new = meanings_of(FILTERED), meanings_of(("sum(net)", text))
    assert find_changes(old["totals"], new["totals"]) == ["`total` of orders"] * differs


@pytest.mark.parametrize(
    "changes",
    [
        [("amount > 100 and qty > 0", "AMOUNT>100  AND  Qty > 0")],
        [("amount > 100 and qty > 0", "qty > 0 and amount > 100")],
        [("name: big", "name: large"), ("from: big", "from: large")],
        [("net: amount", "nett: amount"), ("sum(net)", "sum(nett)")],
        [("note: \"'x'\"", "other: id + 1")],
        [("amount: double, qty: int", "amount: double, qty: bigint")],
        [("{name: both, from: [orders, returns]", "{name: both, from: [returns, orders]")],
        [("topic: orders, schema", "topics: [orders, more-orders], bad_records: skip, schema")],
        [("key: n, aggregate", "key: n, emit: latest, aggregate")],
        [("topic: out,", "topic: elsewhere,")],
        [
            ("where: amount > 100 and qty > 0}", "where: qty > 0}\n  - {name: rest, from: big, where: amount > 100}"),
            ("from: big, select", "from: rest, select"),
        ],
        [("  - {name: again", "  - {name: third, from: big, key: id, aggregate: {n: count(*)}}\n  - {name: again")],
    ],
)
def test_X16_what_changes_no_total_changes_no_meaning(changes: list[tuple[str, str]]) -> None:
    assert changed(*changes) == {}


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (("within: 1h", "within: 2h"), True),
        (("key: id, within", "key: [id, customer], within"), True),
        (("where: amount > 100", "where: amount > 200"), True),
        (("within: 1h", "within: 60m"), False),
        (("where: amount > 100", "where: 100 < amount"), True),
    ],
)
def test_X16_what_a_duplicate_is_belongs_to_the_meaning_of_what_follows(change: tuple[str, str], differs: bool) -> None:
    def fingerprints(text: str) -> dict[str, StateFingerprint]:
        return {str(name): one for name, one in derive_fingerprints(build_plan(parse_pipeline(text, "p", {}))).items()}

    text = PIPELINE.replace(
        "  - {name: priced, from: big,",
        "  - {name: once, from: big, dedup: {key: id, within: 1h}}\n  - {name: priced, from: once,",
    )
    old, new = fingerprints(text), fingerprints(text.replace(*change))
    assert find_changes(old["once"], new["once"]) == (["what a duplicate is of orders"] if differs else [])
    assert find_changes(old["totals"], new["totals"]) == (["the choice of records of orders"] if differs else [])


TIMED = [
    "{key: customer, window: {tumbling: 1m}, aggregate: {n: count(*)}}",
    "{key: customer, window: {tumbling: 1m}, aggregate: {n: count(*)}, emit: {every: 10s}}",
    "{key: customer, window: {session: 1m}, aggregate: {n: count(*)}}",
    "{key: customer, keep: last}",
    "{key: customer, keep: {by: qty, n: 2}}",
    "{dedup: {key: customer, within: 1m}}",
    "{key: customer, aggregate: {n: count(*)}, ttl: {event_time: 1d}}",
]


@pytest.mark.parametrize("step", TIMED)
@pytest.mark.parametrize("between", [False, True])
def test_what_the_event_time_is_read_from_belongs_to_the_meaning_of_a_step_that_goes_by_it(
    step: str, between: bool
) -> None:
    columns = "schema: {id: bigint, customer: string, amount: double, qty: int"
    timed = (columns, f"event_time: at, {columns}, at: timestamp, seen: timestamp")
    reads = (
        "{name: kept, from: orders, keep: last, key: id}" if between else "{name: kept, from: orders, where: id > 0}"
    )
    added = (
        "sinks:\n",
        f"  - {reads}\n  - {{name: timed, from: kept, {step[1:]}\nsinks:\n  t: {{from: timed, topic: t}}\n",
    )
    old, same, new = (meanings_of(timed, added, ("event_time: at", f"event_time: {of}")) for of in ("at", "at", "seen"))
    assert old == same
    changes = {name: find_changes(old[name], new[name]) for name in old}
    assert changes["kept" if between else "timed"], changes
    assert not changes["totals"]


@pytest.mark.parametrize(("before", "after"), [("", ", ttl: 1d"), (", ttl: 1d", ""), (", ttl: 1d", ", ttl: 2d")])
def test_a_ttl_by_event_time_may_be_added_changed_and_removed(before: str, after: str) -> None:
    """The page says so: totals that had none begin their time at the restart."""
    total = "aggregate: {n: count(*), total: sum(net)}"
    old, new = (meanings_of((total, total + ttl)) for ttl in (before, after))
    assert {name: find_changes(old[name], new[name]) for name in old} == {name: [] for name in old}


def test_the_timestamp_in_kafka_is_the_same_event_time_by_whatever_name() -> None:
    columns = "schema: {id: bigint, customer: string, amount: double, qty: int"
    window = "{name: timed, from: orders, key: customer, window: {tumbling: 1m}, aggregate: {n: count(*)}}"
    added = ("sinks:\n", f"  - {window}\nsinks:\n  t: {{from: timed, topic: t, key: customer}}\n")
    named = (columns, f"metadata: {{timestamp: t, offset: o}}, {columns}")
    timed = (columns, f"event_time: t, metadata: {{timestamp: t, offset: o}}, {columns}")
    offset = (columns, f"event_time: o, metadata: {{timestamp: t, offset: o}}, {columns}")
    plain, same, other = (meanings_of(one, added)["timed"] for one in (named, timed, offset))
    assert find_changes(plain, same) == []
    assert find_changes(plain, other) == ["the event time of orders"]


def test_X16_a_source_may_join_what_feeds_a_step() -> None:
    old = meanings_of(("from: [orders, returns]", "from: orders"))
    assert find_changes(old["both"], meanings_of()["both"]) == []


def test_X16_two_ways_from_one_source_are_told_apart() -> None:
    ways = """\
  - {name: small, from: orders, where: amount <= 100}
  - {name: paid, from: big, select: {customer: customer, qty: qty}}
  - {name: free, from: small, select: {customer: customer, qty: qty * 0}}
  - {name: both, from: [paid, free], key: customer"""
    old = meanings_of(("  - {name: both, from: [orders, returns], key: customer", ways))
    swapped = ways.replace("qty: qty}", "qty: X}").replace("qty: qty * 0}", "qty: qty}").replace("X", "qty * 0")
    new = meanings_of(("  - {name: both, from: [orders, returns], key: customer", swapped))
    assert find_changes(old["both"], new["both"]) == ["`sum` of orders"]


def test_digests_of_another_version_are_not_compared() -> None:
    old: StateFingerprint = {"orders": {"`total`": "0:1234", "key `k`": f"{VERSION}:a"}}
    new: StateFingerprint = {"orders": {"`total`": f"{VERSION}:5678", "key `k`": f"{VERSION}:b"}}
    assert find_changes(old, new) == ["key `k` of orders"]


def test_a_part_that_an_older_version_did_not_have_is_no_change() -> None:
    new: StateFingerprint = {"orders": {"the window": f"{VERSION}:a", "the allowed lateness": f"{VERSION}:b"}}
    assert find_changes({"orders": {"the window": f"{VERSION - 1}:c"}}, new) == []
    assert find_changes({"orders": {"the window": f"{VERSION}:a"}}, new) == ["the allowed lateness of orders"]


TYPED = """\
version: 1
name: orders
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///tmp/orders}
sources:
  orders: {topic: orders, schema: {id: int, customer: string, qty: int, price: "decimal(10,2)", day: date}}
steps:
  - {name: made, from: orders, select: {k: "concat(customer, '/', qty)", at: "xxhash64(id)"}}
  - {name: totals, from: made, key: [k, at], aggregate: {n: count(*)}}
  - {name: newest, from: made, key: [k, at], keep: last}
sinks:
  out: {from: totals, topic: out}
  more: {from: newest, topic: more}
"""
typed = partial(meanings_of, text=TYPED)


@pytest.mark.parametrize(
    ("text", "change", "differs"),
    [
        ("concat(customer, '/', qty)", ("qty: int", "qty: bigint"), False),
        ("concat(customer, '/', qty)", ("qty: int", "qty: double"), True),
        ("concat(customer, '/', price)", ("decimal(10,2)", "decimal(12,4)"), True),
        ("concat(customer, '/', price)", ("decimal(10,2)", "decimal(12,2)"), False),
        ("concat(customer, '/', day)", ("day: date", "day: timestamp"), True),
        ("try_cast(day as string)", ("day: date", "day: timestamp"), True),
        ("to_json(named_struct('q', array(qty)))", ("qty: int", "qty: bigint"), False),
        ("to_json(named_struct('q', price))", ("decimal(10,2)", "decimal(12,4)"), True),
        ("xxhash64(qty)", ("qty: int", "qty: bigint"), True),
        ("format_string('%05d', qty)", ("qty: int", "qty: bigint"), False),
        ("customer", ("qty: int", "qty: double"), False),
    ],
)
def test_X16_the_type_of_a_column_belongs_to_the_meaning_of_its_text_and_its_hash(
    text: str, change: tuple[str, str], differs: bool
) -> None:
    own = ("concat(customer, '/', qty)", text)
    found = find_changes(typed(own)["totals"], typed(own, change)["totals"])
    assert found == (["key `k` of orders"] if differs else [])


def test_X16_the_type_of_a_column_belongs_to_the_meaning_of_a_condition_on_its_hash() -> None:
    """As for a sample of the records."""
    step = '  - {name: some, from: orders, where: "pmod(xxhash64(id), 100) < 50"}\n'
    sample = (("steps:\n", f"steps:\n{step}"), ("from: orders, select", "from: some, select"))
    old, new = typed(*sample), typed(*sample, ("id: int", "id: bigint"))
    assert find_changes(old["totals"], new["totals"])[0] == "the choice of records of orders"


GOLDEN = [
    *("id + 1", "-qty", "amount / 3", "id % 7", "id div 2", "customer || 'x'", "qty = 5", "qty <> id", "amount >= 1.5"),
    *("customer in ('a', 'b')", "qty between 1 and 9", "customer like 'a%'", "not (qty > 1)", "qty <=> null"),
    *("case when qty > 1 then 'a' else customer end", "if(qty > 1, 1, 2L)", "coalesce(qty, id)", "nullif(qty, 3)"),
    *("cast(amount as int)", "try_cast(customer as bigint)", "cast(1.2 as float)", "upper(trim(customer))"),
    *(
        "substring(customer, 2, 3)",
        "regexp_replace(customer, '(a)', '$1b')",
        "split(customer, ',')[0]",
        "md5(customer)",
    ),
    *("round(amount, 2)", "greatest(qty, id)", "date_add(date'2026-01-31', qty)", "timestamp'2026-01-31 12:00:00'"),
    *("timestamp_seconds(id) + interval 1 day", "array(id, 1)[0]", "named_struct('a', qty).a", "repeat(customer, 3)"),
]


def test_meanings_that_journals_hold_stay_what_they_are() -> None:
    """When this fails, starts with older journals would be refused: from the first release on raise `VERSION`, too."""
    calls = json.dumps(
        {"n": "count(*)", "total": "sum(id)"} | {f"c{i}": f"count({text})" for i, text in enumerate(GOLDEN)}
    )
    (found,) = meanings_of(
        ("{n: count(*), total: sum(net)}", calls), ("from: priced", "from: big"), ("who", "customer")
    )["totals"].values()
    digests = [found[f"`c{index}`"].removeprefix(f"{VERSION}:") for index in range(len(GOLDEN))]
    assert (VERSION, hashlib.sha256("".join(digests).encode()).hexdigest()[:16]) == (1, "f51c2b2c8da96330")
    assert found["the choice of records"] == "1:763f4a28e1599b57"
