"""`table` and `lookup` through whole pipelines, each case once more with a restart before each record.

Several cases are named after reports of other systems, in which a row was lost, or joined with the wrong one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from tests.testing.lettered import Record, dead_letter_of, play, record_at
from tests.testing.pipelines import HEAD, load, messages, run_one
from tidegate.config.errors import ConfigErrors
from tidegate.config.load import parse_pipeline
from tidegate.ids import TopicPartition
from tidegate.operators.builtin.dead_letters import DEAD_LETTERS
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.spec import StepOperator
from tidegate.plan.build import check_pipeline
from tidegate.task.bad_records import BadRecord

SOURCES = (
    HEAD
    + """\
parallelism: 2
sources:
  orders: {topic: orders, schema: {id: bigint, customer: string, amount: double}, bad_records: skip}
  customers:
    topic: customers
    schema: {segment: string, country: string}
    metadata: {key: id}
    on_null: tombstone
    bad_records: skip
steps:
  - {name: customer, from: customers, table: {key: id}}
"""
)
ENRICHED = (
    SOURCES
    + """\
  - name: enriched
    from: orders
    lookup: customer
    on: {customer: id}
    add: {segment: customer.segment, country: customer.country}
    MORE
sinks:
  out: {from: enriched, topic: out, key: id}
tests:
"""
)
GOLD, TIN = "{segment: gold, country: ch}", "{segment: tin, country: de}"


def record(key: str, value: str) -> str:
    return f"{{key: {key}, value: {value}}}"


def order(number: int, customer: str = "ann") -> str:
    return f"{{value: {{id: {number}, customer: {customer}, amount: 1.0}}}}"


def enriched(number: int, customer: str = "ann", segment: str = "null", country: str = "null") -> str:
    value = f"{{id: {number}, customer: {customer}, amount: 1.0, segment: {segment}, country: {country}}}"
    return f"{{key: '{number}', value: {value}}}"


def with_gold(number: int, customer: str = "ann") -> str:
    return enriched(number, customer, "gold", "ch")


def with_tin(number: int, customer: str = "ann") -> str:
    return enriched(number, customer, "tin", "de")


def case(customers: Sequence[str], orders: Sequence[str], out: Sequence[str], more: str = "") -> str:
    given = f"{{customers: [{', '.join(customers)}], orders: [{', '.join(orders)}]}}"
    return f"given: {given}, expect: {{out: [{', '.join(out)}]}}{more}"


def look_up(
    customers: Sequence[str],
    orders: Sequence[str],
    out: Sequence[str],
    *,
    missing: str = "",
    more: str = "",
    parallelism: int | None = None,
) -> list[str]:
    pipeline = ENRICHED.replace("MORE", f"missing: {missing}" if missing else "")
    return messages(run_one(case(customers, orders, out, more), pipeline, parallelism))


LATER = "{advance: 5s}"


def test_a_row_gets_the_columns_of_the_latest_row_of_its_key() -> None:
    customers = [record("ann", GOLD), record("bo", TIN), LATER, record("ann", TIN)]
    orders = [order(1), order(2, "bo"), LATER, LATER, order(3)]
    assert look_up(customers, orders, [with_gold(1), with_tin(2, "bo"), with_tin(3)]) == []


def test_a_tombstone_deletes_the_row_and_a_later_row_is_there_again() -> None:
    customers = [record("ann", GOLD), LATER, record("ann", "null"), LATER, LATER, record("ann", TIN)]
    orders = [LATER, LATER, order(1), LATER, LATER, order(2)]
    assert look_up(customers, orders, [enriched(1), with_tin(2)]) == []


def test_a_tombstone_of_a_key_without_a_row_is_no_failure() -> None:
    assert look_up([record("ann", "null")], [LATER, order(1)], [enriched(1)]) == []


@pytest.mark.parametrize("parallelism", [1, 3])
def test_kafka_19580_a_left_lookup_keeps_rows_with_a_null_key(parallelism: int) -> None:
    orders = [order(1, "null"), order(2, "cy")]
    out = [enriched(1, "null"), enriched(2, "cy")]
    assert look_up([record("ann", GOLD)], orders, out, parallelism=parallelism) == []


def test_missing_null_is_the_default() -> None:
    assert look_up([], [order(1)], [enriched(1)], missing='"null"') == look_up([], [order(1)], [enriched(1)]) == []


def test_missing_drop_drops_rows_without_a_table_row_and_with_a_null_key() -> None:
    orders = [order(1), order(2, "cy"), order(3, "null")]
    assert look_up([record("ann", GOLD)], orders, [with_gold(1)], missing="drop") == []


def test_missing_fail_makes_rows_without_a_table_row_bad_records() -> None:
    orders = [order(1), order(2, "cy"), order(3, "null")]
    bad = ", bad_records: {NO_TABLE_ROW: 2}"
    assert look_up([record("ann", GOLD)], orders, [with_gold(1)], missing="fail", more=bad) == []


WAITS = "wait 30s"


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_waiting_row_leaves_when_the_row_of_the_table_arrives_and_in_the_order_of_its_key(parallelism: int) -> None:
    customers = [record("bo", TIN), LATER, LATER, record("ann", GOLD)]
    orders = [order(1), order(2, "bo"), LATER, order(3), order(4, "bo")]
    out = [with_tin(2, "bo"), with_tin(4, "bo"), with_gold(1), with_gold(3)]
    assert look_up(customers, orders, out, missing=WAITS, parallelism=parallelism) == []


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_waiting_row_gives_up_by_the_clock_and_a_null_key_does_not_wait(parallelism: int) -> None:
    customers = [record("bo", TIN), *[LATER] * 7, record("ann", GOLD)]
    orders = [order(1), order(2, "null"), LATER, LATER, order(3), LATER]
    out = [enriched(1), enriched(2, "null"), with_gold(3)]
    assert look_up(customers, orders, out, missing=WAITS, parallelism=parallelism) == []


def test_ksql_7566_a_row_that_comes_before_its_table_row_is_not_lost() -> None:
    orders = [order(1), LATER, order(2)]
    customers = [LATER, record("ann", GOLD), LATER, record("ann", TIN)]
    immediately = ENRICHED.replace("MORE", f"missing: {WAITS}\n    begin: immediately")
    assert messages(run_one(case(customers, orders, [with_gold(1), with_gold(2)]), immediately)) == []


def test_waiting_ends_with_a_bounded_stream() -> None:
    pipeline = ENRICHED.replace("MORE", f"missing: {WAITS}").replace("orders, schema", "orders, until: latest, schema")
    assert messages(run_one(case([], [order(1), order(2)], [enriched(1), enriched(2)]), pipeline)) == []


def test_a_null_key_of_the_table_is_a_bad_record_of_its_source() -> None:
    customers = [f"{{value: {GOLD}}}", record("ann", TIN)]
    bad = ", bad_records: {NULL_KEY: 1}"
    assert look_up(customers, [LATER, order(1)], [with_tin(1)], more=bad) == []


def test_a_key_in_two_partitions_is_a_bad_record_until_it_is_deleted() -> None:
    there = "{key: ann, partition: 1, value: {segment: tin, country: de}}"
    customers = [record("ann", GOLD), there, LATER, record("ann", "null"), there]
    orders = [LATER.replace("5s", "1s"), order(1), LATER, order(2)]
    bad = ", bad_records: {KEY_IN_TWO_PARTITIONS: 1}"
    assert look_up(customers, orders, [with_gold(1), with_tin(2)], more=bad) == []


def test_risingwave_15257_an_expression_over_a_missing_row_gives_null_and_keeps_the_row() -> None:
    pipeline = ENRICHED.replace("country: customer.country", "country: \"if(customer.segment = 'gold', 'yes', 'no')\"")
    out = [enriched(1, "ann", "gold", "'yes'"), enriched(2, "cy", "null", "'no'")]
    given = case([record("ann", GOLD)], [LATER, order(1), order(2, "cy")], out)
    assert messages(run_one(given, pipeline.replace("MORE", ""))) == []


def test_an_expression_that_fails_makes_only_its_row_bad() -> None:
    add = "add: {segment: cast(customer.segment as bigint)}"
    pipeline = ENRICHED.replace("add: {segment: customer.segment, country: customer.country}", add).replace("MORE", "")
    customers = [record("ann", "{segment: '7'}"), record("bo", "{segment: x}")]
    out = "{key: '1', value: {id: 1, customer: ann, amount: 1.0, segment: 7}}"
    given = case(customers, [LATER, order(1), order(2, "bo")], [out], ", bad_records: {CAST_INVALID_INPUT: 1}")
    assert messages(run_one(given, pipeline)) == []


CHAINED = (
    SOURCES
    + """\
  - {name: small, from: customers, where: "_deleted OR country = 'ch'"}
  - {name: swiss, from: small, table: {key: id}}
  - {name: one, from: orders, lookup: customer, on: {customer: id}, add: {segment: customer.segment}}
  - {name: two, from: one, lookup: swiss, on: {customer: id}, missing: drop, add: {who: swiss.id}}
sinks:
  out: {from: two, topic: out, key: id}
tests:
"""
)


def test_lookups_follow_one_another_and_read_a_table_after_other_steps() -> None:
    customers = [record("ann", GOLD), record("bo", TIN)]
    out = "{key: '1', value: {id: 1, customer: ann, amount: 1.0, segment: gold, who: ann}}"
    assert messages(run_one(case(customers, [LATER, order(1), order(2, "bo")], [out]), CHAINED)) == []


SELF = (
    HEAD
    + """\
sources:
  people: {topic: people, schema: {id: bigint, boss: int, name: string}, bad_records: skip}
steps:
  - {name: person, from: people, table: {key: id}}
  - {name: led, from: people, lookup: person, on: {boss: id}, add: {led_by: person.name, number: person.id}}
  - {name: twice, from: led, lookup: person, on: {id: id}, add: {own: person.name}}
sinks:
  out: {from: twice, topic: out, key: id}
tests:
"""
)


def test_a_table_is_looked_up_by_its_own_topic_and_several_times_and_keys_have_a_common_type() -> None:
    given = "{value: {id: 1, boss: null, name: ann}}, {value: {id: 2, boss: 1, name: bo}}"
    out = (
        "{key: '1', value: {id: 1, boss: null, name: ann, led_by: null, number: null, own: ann}}",
        "{key: '2', value: {id: 2, boss: 1, name: bo, led_by: ann, number: 1, own: bo}}",
    )
    # The second run of a record is its rewrite: the first one may be before the table has the row.
    rewrite = (
        f"given: {{people: [{given}, {LATER}, {given}]}}, expect: {{out: {{set: [{{}}, {{}}, {', '.join(out)}]}}}}"
    )
    result = run_one(rewrite, SELF)
    assert messages(result) == []


COMPOSITE = (
    HEAD
    + """\
sources:
  orders: {topic: orders, schema: {id: bigint, shop: string, item: int}, bad_records: skip}
  items: {topic: items, schema: {price: double, shop: string, item: bigint}, bad_records: skip}
steps:
  - {name: stock, from: items, table: {key: [shop, item]}}
  - {name: priced, from: orders, lookup: stock, on: {item: item, shop: shop}, add: {price: stock.price}}
sinks:
  out: {from: priced, topic: out, key: id}
tests:
"""
)


def test_a_composite_key_matches_whole_and_null_in_one_part_matches_nothing() -> None:
    items = [
        f"{{value: {{shop: {shop}, item: {item}, price: {price}}}}}"
        for shop, item, price in [("a", 1, 1.5), ("b", 1, 2.5)]
    ]
    orders = [("a", 1, "1.5"), ("b", 1, "2.5"), ("a", 2, "null"), ("null", 1, "null"), ("a", "null", "null")]
    given = [f"{{value: {{id: {i}, shop: {shop}, item: {item}}}}}" for i, (shop, item, _) in enumerate(orders)]
    out = [
        f"{{key: '{i}', value: {{id: {i}, shop: {shop}, item: {item}, price: {price}}}}}"
        for i, (shop, item, price) in enumerate(orders)
    ]
    text = f"given: {{items: [{', '.join(items)}], orders: [{', '.join([LATER, *given])}]}}"
    assert messages(run_one(f"{text}, expect: {{out: [{', '.join(out)}]}}", COMPOSITE, 3)) == []


CHANGES = (
    HEAD
    + """\
parallelism: 2
sources:
  orders: {topic: orders, schema: {id: bigint, customer: string, amount: double}, bad_records: skip}
  customers:
    topic: customers
    format: debezium
    schema: {id: string, segment: string, country: string}
    bad_records: skip
steps:
  - {name: customer, from: customers, table: {key: id}}
  - name: enriched
    from: orders
    lookup: customer
    on: {customer: id}
    add: {segment: customer.segment, country: customer.country}
sinks:
  out: {from: enriched, topic: out, key: id}
  copy: {from: customer, topic: copy, key: id, on_null: {column: _deleted}}
tests:
"""
)


def test_an_update_that_changes_the_key_deletes_the_row_of_the_old_one() -> None:
    ann, bo = "{id: ann, segment: gold, country: ch}", "{id: bo, segment: tin, country: de}"
    customers = [f"{{value: {{op: c, after: {ann}}}}}", LATER, f"{{value: {{op: u, before: {ann}, after: {bo}}}}}"]
    orders = [LATER.replace("5s", "1s"), order(1), LATER, order(2), order(3, "bo")]
    given = f"{{customers: [{', '.join(customers)}], orders: [{', '.join(orders)}]}}"
    copy = f"[{{key: ann, value: {ann}}}, {{key: ann, value: null}}, {{key: bo, value: {bo}}}]"
    out = f"[{with_gold(1)}, {enriched(2)}, {with_tin(3, 'bo')}]"
    assert messages(run_one(f"given: {given}, expect: {{out: {out}, copy: {copy}}}", CHANGES)) == []


def test_a_delete_event_and_an_update_in_place_reach_table_and_lookup() -> None:
    gold, tin = "{id: ann, segment: gold, country: ch}", "{id: ann, segment: tin, country: de}"
    changes = [f"{{value: {{op: c, after: {gold}}}}}", f"{{value: {{op: u, before: {gold}, after: {tin}}}}}"]
    customers = [*changes, LATER, f"{{value: {{op: d, before: {tin}}}}}"]
    orders = [LATER.replace("5s", "1s"), order(1), LATER, order(2)]
    given = f"{{customers: [{', '.join(customers)}], orders: [{', '.join(orders)}]}}"
    copy = f"[{{key: ann, value: {gold}}}, {{key: ann, value: {tin}}}, {{key: ann, value: null}}]"
    expect = f"{{out: [{with_tin(1)}, {enriched(2)}], copy: {copy}}}"
    assert messages(run_one(f"given: {given}, expect: {expect}", CHANGES)) == []


def test_a_table_by_the_key_of_the_record_needs_no_rows_before_updates() -> None:
    pipeline = CHANGES.replace("schema: {id: string, segment", "metadata: {key: id}\n    schema: {segment")
    tin = "{segment: tin, country: de}"
    customers = [f"{{key: ann, value: {{op: c, after: {GOLD}}}}}", f"{{key: ann, value: {{op: u, after: {tin}}}}}"]
    given = f"{{customers: [{', '.join(customers)}], orders: [{LATER}, {order(1)}]}}"
    assert (
        messages(run_one(f"given: {given}, expect: {{out: [{with_tin(1)}]}}", pipeline.replace("  copy:", "  #"))) == []
    )


WINDOWED = (
    HEAD
    + """\
sources:
  orders: {topic: orders, schema: {id: bigint, customer: string, at: timestamp}, event_time: at, bad_records: skip}
  customers:
    topic: customers
    schema: {segment: string}
    metadata: {key: id}
    on_null: tombstone
    watermark: {idle: never}
steps:
  - {name: customer, from: customers, table: {key: id}}
  - {name: enriched, from: orders, lookup: customer, on: {customer: id}, add: {segment: customer.segment}}
  - {name: per, from: enriched, key: segment, window: {tumbling: 10s}, aggregate: {n: count(*)}}
sinks:
  out: {from: per, topic: out, key: segment}
tests:
"""
)


def test_a_silent_table_does_not_hold_back_the_watermark_of_the_stream() -> None:
    orders = [f"{{value: {{id: 1, customer: ann, at: '2026-01-01T00:00:{second}Z'}}}}" for second in ("01", "02", "11")]
    window = "window_start: '2026-01-01T00:00:00Z', window_end: '2026-01-01T00:00:10Z'"
    out = f"{{key: gold, value: {{segment: gold, {window}, n: 2}}}}"
    assert messages(run_one(case([record("ann", "{segment: gold}")], orders, [out]), WINDOWED)) == []


TOTALS = (
    SOURCES
    + """\
  - {name: sizes, from: customer, key: segment, aggregate: {n: count(*), where_to: max(country)}}
  - {name: golden, from: customer, where: segment = 'gold'}
sinks:
  copy: {from: customer, topic: copy, key: id, on_null: {column: _deleted}}
  some: {from: golden, topic: some, key: id, on_null: {column: _deleted}}
  totals: {from: sizes, topic: totals, key: segment, on_null: {column: _deleted}}
tests:
"""
)


def test_totals_and_sinks_of_upserts_follow_the_changes_of_a_table() -> None:
    customers = [record("ann", GOLD), record("ann", GOLD), record("bo", GOLD), record("ann", TIN), record("bo", "null")]
    copy = [
        record("ann", "{id: ann, segment: gold, country: ch}"),
        record("bo", "{id: bo, segment: gold, country: ch}"),
        record("ann", "{id: ann, segment: tin, country: de}"),
        record("bo", "null"),
    ]
    some = [copy[0], copy[1], record("ann", "null"), record("bo", "null")]
    totals = [
        record("gold", "{segment: gold, n: 1, where_to: ch}"),
        record("gold", "{segment: gold, n: 2, where_to: ch}"),
        record("gold", "{segment: gold, n: 1, where_to: ch}"),
        record("tin", "{segment: tin, n: 1, where_to: de}"),
        record("gold", "null"),
    ]
    expected = {"copy": copy, "some": some, "totals": totals}
    expect = ", ".join(f"{sink}: [{', '.join(rows)}]" for sink, rows in expected.items())
    assert messages(run_one(f"given: {{customers: [{', '.join(customers)}]}}, expect: {{{expect}}}", TOTALS)) == []


DEAD = (
    SOURCES.replace("bad_records: skip", "bad_records: dead-letter").replace(
        "parallelism: 2", "parallelism: 2\ndead_letters: {topic: dead}"
    )
    + """\
  - {name: wanted, from: orders, lookup: customer, on: {customer: id}, missing: fail, add: {segment: customer.segment}}
sinks:
  out: {from: wanted, topic: out, key: id, headers: {pass: all}}
tests:
"""
)


def test_results_pass_on_the_headers_of_the_stream() -> None:
    headers = "headers: [[trace, abc]]"
    given = f"{{value: {{id: 1, customer: ann, amount: 1.0}}, {headers}}}"
    out = f"{{key: '1', value: {{id: 1, customer: ann, amount: 1.0, segment: gold}}, {headers}}}"
    assert messages(run_one(case([record("ann", GOLD)], [LATER, given], [out]), DEAD)) == []


def test_dead_letters_have_the_bytes_of_the_record_that_fails_whether_it_is_of_the_stream_or_of_the_table() -> None:
    gold = json.dumps({"segment": "gold", "country": "ch"}).encode()
    unknown = (b"k", json.dumps({"id": 2, "customer": "cy", "amount": 1.0}).encode(), (("trace", b"abc"),))
    history: dict[TopicPartition, list[Record]] = {
        TopicPartition("customers", 0): [(b"ann", gold, (("trace", b"0"),))],
        TopicPartition("customers", 1): [(b"ann", gold, (("trace", b"1"),)), (None, gold, ())],
        TopicPartition("orders", 0): [unknown],
    }
    written, _ = play(history, DEAD.removesuffix("tests:\n"))
    found = [dead_letter_of(one) for one in written[DEAD_LETTERS]]
    assert sorted(f"{one.topic} {one.kind}" for one in found) == [
        "customers KEY_IN_TWO_PARTITIONS",
        "customers NULL_KEY",
        "orders NO_TABLE_ROW",
    ]
    assert all(record_at(history, one) == (one.key, one.value, one.headers) for one in found)


def test_each_source_has_its_own_policy() -> None:
    unknown = (b"k", json.dumps({"id": 2, "customer": "cy", "amount": 1.0}).encode(), ())
    other = (b"k", json.dumps({"id": 3, "customer": "ann", "amount": 1.0}).encode(), ())
    gold = json.dumps({"segment": "gold", "country": "ch"}).encode()
    stopping = DEAD.removesuffix("tests:\n").replace("    bad_records: dead-letter\n", "")  # that of customers: `fail`
    history: dict[TopicPartition, list[Record]] = {
        TopicPartition("customers", 0): [(b"ann", gold, ())],
        TopicPartition("orders", 0): [unknown, other],
    }
    written, _ = play(history, stopping)
    assert [dead_letter_of(one).kind for one in written[DEAD_LETTERS]] == ["NO_TABLE_ROW"]
    history[TopicPartition("customers", 1)] = [(b"ann", gold, ())]
    with pytest.raises(BadRecord, match="KEY_IN_TWO_PARTITIONS"):
        play(history, stopping)


RESULTS = (
    HEAD
    + """\
parallelism: 2
sources:
  orders: {topic: orders, schema: {id: bigint, customer: string, amount: double}}
  asked: {topic: asked, schema: {id: bigint, customer: string}}
steps:
  - {name: totals, from: orders, key: customer, aggregate: {n: count(*)}}
  - {name: known, from: totals, table: {key: customer}}
  - {name: answered, from: asked, lookup: known, on: {customer: customer}, add: {n: known.n}}
sinks:
  out: {from: answered, topic: out, key: id}
tests:
"""
)


def test_a_table_of_running_totals_has_one_row_per_key_whatever_partitions_their_records_are_in() -> None:
    orders = [f"{{value: {{id: 1, customer: ann, amount: 1.0}}, partition: {partition}}}" for partition in (0, 1, 0)]
    asked = [LATER, "{value: {id: 7, customer: ann}}"]
    given = f"{{orders: [{', '.join(orders)}], asked: [{', '.join(asked)}]}}"
    out = "{key: '7', value: {id: 7, customer: ann, n: 3}}"
    assert messages(run_one(f"given: {given}, expect: {{out: [{out}]}}", RESULTS)) == []


def test_partitions_of_several_topics_are_told_apart() -> None:
    pipeline = ENRICHED.replace("MORE", "").replace("topic: customers\n", "topics: [customers, more]\n")
    customers = [record("ann", GOLD), f"{{key: ann, topic: more, value: {TIN}}}"]
    bad = ", bad_records: {KEY_IN_TWO_PARTITIONS: 1}"
    assert messages(run_one(case(customers, [order(1)], [with_gold(1)], bad), pipeline)) == []


def test_a_condition_in_front_of_a_table_is_warned_of_and_right_for_changes() -> None:
    steps = "  - {name: golden, from: customers, where: segment = 'gold'}\n  - {name: customer, from: golden, table"
    sources = SOURCES.replace("  - {name: customer, from: customers, table", steps)
    sinks = "sinks:\n  out: {from: e, topic: out}\n"
    checked = check_pipeline(parse_pipeline(sources + LOOKUP.replace("MORE", "") + sinks, "orders.yaml", {}))
    assert ["the older row of its key stays in the table" in one.message for one in checked.warnings] == [True]
    pipeline = (
        CHANGES.replace("schema: {id: string, segment", "metadata: {key: id}\n    schema: {segment")
        .replace("  - {name: customer, from: customers, table", steps)
        .replace("  copy:", "  #")
    )
    gold, tin = "{segment: gold, country: ch}", "{segment: tin, country: de}"
    events = [f"{{op: c, after: {gold}}}", f"{{op: u, before: {gold}, after: {tin}}}"]
    customers = [f"{{key: ann, value: {one}}}" for one in events]
    assert messages(run_one(case([customers[0]], [order(1)], [with_gold(1)]), pipeline)) == []
    assert messages(run_one(case(customers, [order(1)], [enriched(1)]), pipeline)) == []


def refused(steps: str, sources: str = SOURCES) -> str:
    pipeline = sources + steps + "sinks:\n  out: {from: e, topic: out}\n"
    with pytest.raises(ConfigErrors) as found:
        load("", pipeline)
    return str(found.value)


LOOKUP = "  - {name: e, from: orders, lookup: customer, on: {customer: id}, add: {s: customer.segment}MORE}\n"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("lookup: customer", "lookup: customers", "`customers` is not a step with `table`; did you mean `customer`?"),
        ("lookup: customer", "lookup: orders", "`orders` is not a step with `table`; "),
        ("customer: id}", "customer: segment}", "the key of `customer` is id: a lookup needs all of it"),
        ("customer: id}", "customer: id, id: segment}", "write `on: {customer: id}`"),
        ("customer: id}", "orders.customer: customer.id}", "write `on: {customer: id}`"),
        ("customer: id}", "id: customer}", "the column of the stream comes first, then that of the table"),
        ("{customer: id}", "{amount: id}", "`amount` is double"),
        ("customer.segment", "customer.segmnt", "`customer` has no column `segmnt`; did you mean `segment`?"),
        ("customer.segment", "customer._deleted", "`_deleted` is not a column of the table's rows"),
        ("{s: ", "{amount: ", "the stream already has a column `amount`"),
        ("from: orders", "from: [orders, customers]", "a lookup reads one input and the table"),
        (
            "from: orders",
            "from: customer",
            "`lookup` of the inserts, updates and deletes of `customer` is not supported yet",
        ),
        ("from: orders, ", "", "`from` is missing"),
        ("MORE", ", missing: skip", "`skip` is not one of the choices"),
    ],
)
def test_what_a_lookup_cannot_be_is_refused_with_what_to_write(old: str, new: str, told: str) -> None:
    found = refused(LOOKUP.replace(old, new).replace("MORE", ""))
    assert told in found
    assert found.count("\n") == 0, "one mistake has one message"


def test_a_table_comes_first_whether_or_not_its_source_has_event_time_and_is_ever_idle() -> None:
    """What its topic holds at the start is what counts."""
    sinks = "sinks:\n  out: {from: e, topic: out}\n"
    never = SOURCES.replace("metadata: {key: id}", "metadata: {key: id}\n    watermark: {idle: never}")
    for sources in (SOURCES, never):
        _, plan = load("", sources + LOOKUP.replace("MORE", "") + sinks)
        assert not any(one.carries_time for one in plan.operators(SourceOperator))


def test_a_ttl_of_a_table_goes_by_event_time() -> None:
    told = refused(LOOKUP.replace("MORE", ""), SOURCES.replace("{key: id}}", "{key: id, ttl: {processing_time: 1h}}}"))
    assert "steps.customer.table.ttl: by the clock it is not supported yet; write `ttl: 90d`" in told


ENDING = (
    HEAD
    + """\
sources:
  orders: {topic: orders, schema: {id: bigint, customer: string}}
  customers: {topic: customers, schema: {id: string, segment: string, at: timestamp}, event_time: at}
steps:
  - {name: customer, from: customers, table: {key: id, ttl: 1h}}
  - {name: enriched, from: orders, lookup: customer, on: {customer: id}, add: {segment: customer.segment}}
  - {name: sizes, from: customer, key: segment, aggregate: {n: count(*)}}
sinks:
  out: {from: enriched, topic: out, key: id}
  totals: {from: sizes, topic: totals, key: segment, on_null: {column: _deleted}}
tests:
"""
)


def test_a_row_that_ends_leaves_totals_and_is_not_found() -> None:
    at = "2026-01-01T0{}:00:00Z"
    customers = [
        f"{{value: {{id: ann, segment: gold, at: '{at.format(0)}'}}}}",
        LATER,
        f"{{value: {{id: bo, segment: tin, at: '{at.format(2)}'}}}}",
    ]
    orders = ["{value: {id: 1, customer: ann}}", LATER, LATER, "{value: {id: 2, customer: ann}}"]
    out = [
        "{key: '1', value: {id: 1, customer: ann, segment: gold}}",
        "{key: '2', value: {id: 2, customer: ann, segment: null}}",
    ]
    totals = [record("gold", "{segment: gold, n: 1}"), record("tin", "{segment: tin, n: 1}"), record("gold", "null")]
    given = f"{{customers: [{', '.join(customers)}], orders: [{', '.join(orders)}]}}"
    expect = f"{{out: [{', '.join(out)}], totals: [{', '.join(totals)}]}}"
    assert messages(run_one(f"given: {given}, expect: {expect}", ENDING)) == []


def test_tombstones_need_the_key_of_the_record() -> None:
    sources = SOURCES.replace(
        "schema: {segment: string, country: string}\n    metadata: {key: id}", "schema: {id: string, segment: string}"
    )
    told = refused(LOOKUP.replace("MORE", ""), sources)
    assert "a tombstone of `customers` has no value, so `id` is NULL in it" in told
    assert "add `metadata: {key: id}` to the source, and remove `id` from its `schema`" in told


def test_tombstones_need_the_column_that_marks_them() -> None:
    rows = "  - {name: rows, from: customers, select: {id: id, segment: upper(segment)}}\n"
    sources = SOURCES.replace("from: customers, table", "from: rows, table") + rows
    told = refused(LOOKUP.replace("MORE", ""), sources)
    assert "tombstones of `customers` would become rows of NULLs: `_deleted` does not reach this step" in told
    assert "add `_deleted: _deleted` to the `select` before this step" in told


def test_a_table_that_only_lookups_read_holds_no_rows_of_its_own() -> None:
    _, plan = load("", ENRICHED.replace("MORE", "").replace("tests:\n", ""))
    states = {
        str(one.name): [field.name for state in one.states(16) for field in state.shape.values]
        for one in plan.operators(StepOperator)
        if one.states(16)
    }
    assert states == {"enriched": ["__tidegate_partition", "__tidegate_topic", "segment", "country"]}
