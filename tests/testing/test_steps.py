"""Steps that only move, make or spread rows, in cases: what a user sees of them."""

from __future__ import annotations

from tests.testing.pipelines import HEAD, messages, run_one

PIPELINE = (
    HEAD
    + """\
sources:
  orders:
    topic: orders
    schema: {id: bigint, amount: double, items: "array<struct<sku: string, n: int>>", tags: array<string>}
    bad_records: skip
"""
)


def test_all_columns_pass_but_those_that_are_left_out() -> None:
    pipeline = (
        PIPELINE
        + """\
steps:
  - {name: slim, from: orders, select: {"*": all, except: [items], rename: {id: number}, add: {net: amount / 2.0d}}}
sinks:
  out: {from: slim, topic: out}
tests:
"""
    )
    result = run_one(
        "given: {orders: [{value: {id: 1, amount: 3, tags: [a], items: []}}]}, "
        "expect: {out: [{value: {number: 1, amount: 3, tags: [a], net: 1.5}}]}",
        pipeline,
    )
    assert result.passed, messages(result)


EXPLODED = (
    PIPELINE.replace("bad_records: skip", "event_time: at\n    bad_records: skip").replace(
        "amount: double", "at: timestamp"
    )
    + """\
parallelism: 2
steps:
  - {name: apart, from: orders, explode: {items: item, position: n}}
  - {name: flat, from: apart, select: {id: id, n: n, sku: item.sku, pieces: item.n}}
  - {name: per_sku, from: flat, key: sku, window: {tumbling: 1m}, aggregate: {pieces: sum(pieces)}}
  - {name: results, from: per_sku, select: {sku: sku, pieces: pieces}}
  - {name: each_tag, from: orders, explode: {tags: tag, outer: true}}
  - {name: short, from: each_tag, select: {id: id, tag: tag}}
sinks:
  lines: {from: flat, topic: lines}
  sold: {from: results, topic: sold, key: sku}
  tagged: {from: short, topic: tagged}
tests:
"""
)


def test_an_order_becomes_a_record_for_each_of_its_lines() -> None:
    result = run_one(
        "given: {orders: ["
        "{value: {id: 1, at: 2026-01-01T00:00:01Z, items: [{sku: a, n: 2}, {sku: b, n: 1}], tags: [x, y]}}, "
        "{value: {id: 2, at: 2026-01-01T00:00:02Z, items: [{sku: a, n: 3}], tags: []}}, "
        "{value: {id: 3, at: 2026-01-01T00:00:03Z}}, {watermark: 2026-01-01T00:01:00Z}]}, "
        "expect: {lines: [{value: {id: 1, n: 0, sku: a, pieces: 2}}, {value: {id: 1, n: 1, sku: b, pieces: 1}}, "
        "{value: {id: 2, n: 0, sku: a, pieces: 3}}], "
        "sold: [{key: a, value: {sku: a, pieces: 5}}, {key: b, value: {sku: b, pieces: 1}}], "
        "tagged: [{value: {id: 1, tag: x}}, {value: {id: 1, tag: y}}, {value: {id: 2, tag: null}}, "
        "{value: {id: 3, tag: null}}]}",
        EXPLODED,
    )
    assert result.passed, messages(result)


ROUTED = (
    PIPELINE
    + """\
parallelism: 2
steps:
  - {name: kinds, from: orders, route: {big: amount >= 100, exact: 100 / id = 50, rest: else}}
  - {name: little, from: kinds.rest, select: {id: id}}
  - {name: picked, from: [kinds.big, kinds.exact], select: {id: id}}
sinks:
  small: {from: little, topic: small}
  chosen: {from: picked, topic: chosen}
tests:
"""
)


def test_a_record_goes_to_the_first_output_that_takes_it() -> None:
    result = run_one(
        "given: {orders: [{value: {id: 0, amount: 150}}, {value: {id: 0, amount: 5}}, {value: {id: 2, amount: 5}}, "
        "{value: {id: 3}}]}, bad_records: {DIVIDE_BY_ZERO: 1}, "
        "expect: {chosen: {set: [{value: {id: 0}}, {value: {id: 2}}]}, small: [{value: {id: 3}}]}",
        ROUTED,
    )
    assert result.passed, messages(result)


def test_a_source_with_a_pattern_takes_records_of_any_topic_that_matches() -> None:
    pipeline = (
        HEAD
        + """\
parallelism: 2
sources:
  orders: {pattern: "orders-.*", format: raw}
steps:
  - {name: shown, from: orders, select: {topic: topic, value: cast(value as string)}}
sinks:
  out: {from: shown, topic: out}
tests:
"""
    )
    result = run_one(
        "given: {orders: [{topic: orders-a, value: x}, {topic: orders-b, value: y}, {value: z}]}, "
        "expect: {out: {set: [{value: {topic: orders-a, value: x}}, {value: {topic: orders-b, value: y}}, "
        "{value: {topic: 'orders-.*', value: z}}]}}",
        pipeline,
    )
    assert result.passed, messages(result)


def test_headers_pass_through_explode_and_route() -> None:
    pipeline = (
        HEAD
        + """\
parallelism: 2
sources:
  orders: {topic: orders, schema: {id: bigint, items: array<int>}}
steps:
  - {name: apart, from: orders, explode: {items: item}}
  - {name: kinds, from: apart, route: {odd: item % 2 = 1, even: else}}
sinks:
  odd: {from: kinds.odd, topic: odd, headers: {pass: all}}
  even: {from: kinds.even, topic: even, headers: {pass: all}}
tests:
"""
    )
    result = run_one(
        "given: {orders: [{value: {id: 1, items: [1, 2, 3]}, headers: [[h, a], [h, b]]}]}, "
        "expect: {odd: [{value: {id: 1, item: 1}, headers: [[h, a], [h, b]]}, "
        "{value: {id: 1, item: 3}, headers: [[h, a], [h, b]]}], "
        "even: [{value: {id: 1, item: 2}, headers: [[h, a], [h, b]]}]}",
        pipeline,
    )
    assert result.passed, messages(result)


def test_what_fails_after_an_explode_fails_row_by_row_and_becomes_dead_letters() -> None:
    pipeline = (
        HEAD
        + """\
parallelism: 2
sources:
  orders: {topic: orders, schema: {id: bigint, items: array<int>}, bad_records: dead-letter}
steps:
  - {name: apart, from: orders, explode: {items: item}}
  - {name: kinds, from: apart, route: {odd: item % id = 1, even: else}}
  - {name: totals, from: kinds.odd, key: id, aggregate: {n: count(*)}}
sinks:
  odd: {from: totals, topic: odd, key: id}
  even: {from: kinds.even, topic: even}
dead_letters: {topic: dead}
tests:
"""
    )
    result = run_one(
        "given: {orders: [{value: {id: 2, items: [1, 2, 3]}}, {value: {id: 0, items: [4, 5]}}]}, "
        "expect: {odd: [{value: {id: 2, n: 1}}, {value: {id: 2, n: 2}}], even: [{value: {id: 2, item: 2}}]}, "
        "bad_records: {DIVIDE_BY_ZERO: 2}",
        pipeline,
    )
    assert result.passed, messages(result)


UNEQUAL = (
    HEAD
    + """\
sources:
  web: {topic: web, schema: {id: bigint, page: string, at: timestamp}, event_time: at, bad_records: skip}
  app:
    topic: app
    schema: {screen: "struct<name: string>", at: timestamp, id: bigint}
    event_time: at
    on_null: tombstone
    bad_records: skip
steps:
  - {name: both, from: [web, app], columns: all, where: id > 0 or id is null}
  - {name: shared, from: [app, web], columns: common, key: id, window: {tumbling: 1m}, aggregate: {n: count(*)}}
sinks:
  out: {from: both, topic: out, on_null: {column: _deleted, write: tombstone}, key: id, timestamp: at}
  counts: {from: shared, topic: counts, key: id}
tests:
"""
)


def test_a_union_of_all_columns_has_null_where_an_input_has_no_such_column() -> None:
    result = run_one(
        "given: {web: [{value: {id: 1, page: a, at: 2026-01-01T00:00:01Z}}, {watermark: 2026-01-01T00:01:00Z}], "
        "app: [{value: {id: 1, screen: {name: s}, at: 2026-01-01T00:00:02Z}}, {watermark: 2026-01-01T00:01:00Z}]}, "
        "expect: {out: [{key: '1', value: {id: 1, page: a, at: 2026-01-01T00:00:01Z, screen: null}}, "
        "{key: '1', value: {id: 1, page: null, at: 2026-01-01T00:00:02Z, screen: {name: s}}}], "
        "counts: [{key: '1', value: {id: 1, window_start: 2026-01-01T00:00:00Z, window_end: 2026-01-01T00:01:00Z, "
        "n: 2}}]}",
        UNEQUAL,
    )
    assert result.passed, messages(result)
