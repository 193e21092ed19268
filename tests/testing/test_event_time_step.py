"""A step `event_time` in cases: after `explode`, with windows and `quiet` behind it, and its bad records."""

from __future__ import annotations

import pytest

from tests.testing.pipelines import messages, run_one

PIPELINE = """\
version: 1
name: items
kafka: {bootstrap.servers: "127.0.0.1:9092"}
checkpoints: {directory: file:///nowhere}
sources:
  orders:
    topic: orders
    schema: {id: bigint, items: "array<struct<sku: string, at: timestamp>>"}
    bad_records: skip
steps:
  - {name: exploded, from: orders, explode: {items: item}}
  - {name: timed, from: exploded, event_time: item.at, watermark: {delay: 5s}}
  - {name: flat, from: timed, select: {sku: item.sku, at: item.at}}
  - {name: per_sku, from: flat, key: sku, window: {tumbling: 10s}, aggregate: {n: count(*)}, late: missed}
sinks:
  counts: {from: per_sku, topic: counts, key: sku}
  missed: {topic: missed}
tests:
"""
QUIET = PIPELINE.replace(
    "per_sku, from: flat, key: sku, window: {tumbling: 10s}, aggregate: {n: count(*)}, late: missed",
    "per_sku, from: flat, quiet: {key: sku, for: 10s}, late: missed",
)


def second(at: int) -> str:
    return f"2026-01-01T00:{at // 60:02}:{at % 60:02}Z"


def order(*items: tuple[str, int | None], partition: int = 0) -> str:
    shown = [f"{{sku: {sku}, at: {'null' if at is None else second(at)}}}" for sku, at in items]
    return f"{{value: {{id: 1, items: [{', '.join(shown)}]}}, partition: {partition}}}"


def count(sku: str, start: int, n: int) -> str:
    window = f"window_start: {second(start)}, window_end: {second(start + 10)}"
    return f"{{key: {sku}, value: {{sku: {sku}, {window}, n: {n}}}}}"


@pytest.mark.parametrize("parallelism", [1, 2])
def test_windows_go_by_the_times_of_exploded_items(parallelism: int) -> None:
    given = [order(("a", 1), ("b", 3), ("a", 9)), order(("b", 4), ("a", 12)), order(("a", 30))]
    expected = [count("a", 0, 2), count("b", 0, 2), count("a", 10, 1)]
    result = run_one(
        f"given: {{orders: [{', '.join(given)}]}}, expect: {{counts: [{', '.join(expected)}]}}", PIPELINE, parallelism
    )
    assert result.passed, messages(result)


def test_an_item_that_is_older_than_the_newest_by_more_than_the_delay_is_late() -> None:
    given = [order(("a", 1)), order(("a", 20)), order(("a", 2)), order(("a", 15))]
    reason = "_reason: 'late: its windows were closed', _watermark: 2026-01-01T00:00:14.999Z"
    missed = f"{{value: {{sku: a, at: {second(2)}, {reason}}}}}"
    result = run_one(
        f"given: {{orders: [{', '.join(given)}]}}, expect: {{counts: [{count('a', 0, 1)}], missed: [{missed}]}}",
        PIPELINE,
    )
    assert result.passed, messages(result)


def test_an_item_without_a_time_is_a_bad_record() -> None:
    given = [order(("a", 1), ("a", None), ("a", 2)), order(("a", 30))]
    result = run_one(
        f"given: {{orders: [{', '.join(given)}]}}, expect: {{counts: [{count('a', 0, 2)}]}}, bad_records: 1", PIPELINE
    )
    assert result.passed, messages(result)


def test_absence_is_found_by_the_times_of_items() -> None:
    given = [order(("a", 1), ("b", 3)), order(("b", 12)), order(("b", 21), ("a", 22))]
    alerts = f"{{key: a, value: {{sku: a, quiet: true, last_at: {second(1)}}}}}"
    result = run_one(f"given: {{orders: [{', '.join(given)}]}}, expect: {{counts: [{alerts}]}}", QUIET)
    assert result.passed, messages(result)


def test_the_watermark_follows_the_clock_while_the_input_is_idle() -> None:
    given = f"now: {second(3)}, given: {{orders: [{order(('a', 1))}, {{advance: 30s}}]}}"
    result = run_one(f"{given}, expect: {{counts: []}}", PIPELINE)
    assert result.passed, messages(result)
    moving = PIPELINE.replace("delay: 5s", "delay: 5s, idle: {advance: wall-clock}")
    result = run_one(f"{given}, expect: {{counts: [{count('a', 0, 1)}]}}", moving)
    assert result.passed, messages(result)
