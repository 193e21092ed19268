"""Which sinks and states have a record that failed, by the step it failed in."""

from __future__ import annotations

import pytest

from tidegate.config.load import parse_pipeline
from tidegate.ids import MAIN_CLUSTER, ClusterName, SourceTopic
from tidegate.plan.build import check_pipeline
from tidegate.plan.replays import Replays

ORDERS, RETRIED = (SourceTopic(MAIN_CLUSTER, topic) for topic in ("orders", "retried"))
HEAD = """
version: 1
name: p
kafka: {bootstrap.servers: broker:9092}
checkpoints: {directory: /checkpoints}
dead_letters: {topic: dead}
sources:
  orders: {topic: orders, schema: {id: int, parts: int, items: "array<string>"}, bad_records: dead-letter}
"""
SHOP = """
steps:
  - {name: total, from: orders, key: id, aggregate: {seen: count(*)}}
  - {name: share, from: orders, select: {id: id, share: 100 div parts}}
  - {name: each_item, from: orders, explode: {items: item}}
  - {name: price, from: each_item, select: {id: id, price: cast(item as int)}}
sinks:
  copy: {from: orders, topic: copy, key: id}
  totals: {from: total, topic: totals, key: id}
  shares: {from: share, topic: shares, key: id}
  prices: {from: price, topic: prices, key: id}
"""
CHAIN = """
steps:
  - {name: positive, from: orders, where: id > 0}
  - {name: share, from: positive, select: {id: id, share: 100 div parts}}
sinks:
  shares: {from: share, topic: shares, key: id}
"""
ROUTED = """
steps:
  - {name: fresh, from: orders, key: id, keep: last}
  - {name: kinds, from: orders, route: {big: parts > 9, small: else}}
  - {name: share, from: kinds.big, select: {id: id, share: 100 div parts}}
  - {name: both, from: [kinds.big, kinds.small], where: 100 div id > 0}
sinks:
  fresh_out: {from: fresh, topic: fresh, key: id}
  shares: {from: share, topic: shares, key: id}
  smalls: {from: kinds.small, topic: smalls, key: id}
  bigs: {from: kinds.big, topic: bigs, key: id}
  all: {from: both, topic: all, key: id}
"""
UNION = """
steps:
  - {name: low, from: orders, where: parts < 10}
  - {name: high, from: orders, where: parts > 5}
  - {name: share, from: [low, high], select: {id: id, share: 100 div parts}}
sinks:
  shares: {from: share, topic: shares, key: id}
"""
LATE = """
steps:
  - {name: w, from: orders, key: id, window: {tumbling: 1m}, aggregate: {n: count(*)}, late: tardy}
  - {name: seen, from: orders, where: id > 0}
sinks:
  windows: {from: w, topic: windows, key: id}
  tardy: {topic: tardy, key: id}
"""
TWICE = """
  again: {topics: [orders, retried], schema: {id: int, parts: int}, bad_records: dead-letter}
  other: {topic: other, schema: {id: int, parts: int}, bad_records: dead-letter}
steps:
  - {name: share, from: orders, select: {id: id, share: 100 div parts}}
  - {name: sums, from: again, key: id, aggregate: {seen: sum(parts)}}
sinks:
  shares: {from: share, topic: shares, key: id}
  totals: {from: sums, topic: totals, key: id}
  others: {from: other, topic: others, key: id}
"""
CHANGES = """
version: 1
name: p
kafka: {bootstrap.servers: broker:9092}
checkpoints: {directory: /checkpoints}
dead_letters: {topic: dead}
sources:
  orders: {topic: orders, format: debezium, schema: {id: int, parts: int}, bad_records: dead-letter}
steps:
  - {name: share, from: orders, select: {id: id, share: 100 div parts}}
  - {name: sums, from: share, key: share, aggregate: {n: count(*)}}
sinks:
  totals: {from: sums, topic: totals, key: share}
"""


def replays(steps: str) -> Replays:
    loaded = parse_pipeline(steps if "version" in steps else HEAD + steps, "p.yaml", {})
    checked = check_pipeline(loaded)
    assert checked.plan is not None, checked.problems
    return Replays(checked.plan)


@pytest.mark.parametrize(
    ("steps", "step", "found"),
    [
        (SHOP, "orders", ""),
        (SHOP, "share", "sinks copy, prices, totals and state of total"),
        (SHOP, "shares", "sinks copy, prices, totals and state of total"),
        (SHOP, "each_item", "sinks copy, shares, totals and state of total"),
        (SHOP, "price", "sinks copy, prices, shares, totals and state of total"),  # `prices` has other elements
        (SHOP, "total.input", "sinks copy, prices, shares"),
        (SHOP, "copy", "sinks prices, shares, totals and state of total"),
        (SHOP, "no_longer_there", "sinks copy, prices, shares, totals and state of total"),
        (CHAIN, "positive", ""),
        (CHAIN, "share", ""),
        (CHAIN, "shares", ""),
        (UNION, "low", "sink shares"),
        (UNION, "share", "sink shares"),  # the other of its two rows
        (ROUTED, "kinds", "sink fresh_out and state of fresh"),
        (ROUTED, "share", "sinks all, bigs, fresh_out and state of fresh"),
        (ROUTED, "smalls", "sinks all, fresh_out and state of fresh"),
        (ROUTED, "both", "sinks all, bigs, fresh_out, shares, smalls and state of fresh"),
        (LATE, "tardy", ""),
        (TWICE, "orders", "sink totals and state of sums"),
        (TWICE, "again", "sink shares"),
        (CHANGES, "orders", ""),
        (CHANGES, "share", "sink totals and state of sums"),  # the other row of an update
    ],
)
def test_what_is_not_after_the_failed_step_has_the_record(steps: str, step: str, found: str) -> None:
    assert str(replays(steps).holders(step, ORDERS, "orders")) == found


def test_a_replay_into_a_topic_repeats_what_reads_that_topic_and_has_the_record() -> None:
    plan = replays(TWICE)
    assert str(plan.holders("orders", ORDERS, "retried")) == "sink totals and state of sums"
    assert not plan.holders("orders", ORDERS, "elsewhere")
    assert not plan.holders("orders", ORDERS, "other"), "it has not had the record"
    assert not plan.holders("sums.input", RETRIED, "other")
    assert not plan.holders("sums.input", RETRIED, "retried")


def test_a_step_is_found_by_its_former_name() -> None:
    renamed = CHAIN.replace("name: share,", "name: part, was: share,").replace("from: share", "from: part")
    stateful = renamed.replace("select: {id: id, share: 100 div parts}", "key: id, aggregate: {n: sum(100 div parts)}")
    assert not replays(stateful).holders("share", ORDERS, "orders")


def test_topics_of_the_same_name_in_two_clusters_are_read_by_different_sources() -> None:
    far = HEAD.replace("dead_letters:", "clusters: {us: {bootstrap.servers: us:9092}}\ndead_letters:") + TWICE.replace(
        "again: {", "again: {cluster: us, "
    )
    us = SourceTopic(ClusterName("us"), "orders")
    assert str(replays(far).holders("gone", ORDERS, "orders")) == "sink shares"
    assert not replays(far).holders("gone", us, "orders"), "the source of the other cluster has not had it"
    there = replays(far.replace("topic: dead", "topic: dead, cluster: us"))
    assert str(there.holders("gone", us, "orders")) == "sink totals and state of sums"
