"""Watermarks, idleness and time in cases: what a step that needs event time gets to see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.testing.pipelines import ORDERS, messages, run_one
from tidegate.operators.kinds.aggregate import AggregateOperator
from tidegate.operators.kinds.aggregate.runtime import AggregateRuntime
from tidegate.operators.runtime import END_OF_TIME
from tidegate.operators.spec import Requirement

PIPELINE = ORDERS.replace("bad_records: skip}", "bad_records: skip, event_time: at, watermark: {delay: 5s}}")
MINUTE = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int | str]]:
    """Watermarks that reach a step, in seconds of the minute, and `|` where it is opened: at first, before and after
    the restart.
    """
    events: list[int | str] = []

    def on_watermark(self: Any, watermark_ms: int, out: Any) -> None:
        events.append("end" if watermark_ms == END_OF_TIME else round((watermark_ms - MINUTE) / 1000))
        out.watermark(watermark_ms)

    opened = AggregateOperator.open

    def open_it(self: Any, slot: Any) -> Any:
        events.append("|")
        return opened(self, slot)

    monkeypatch.setattr(AggregateOperator, "requires", lambda self, port=0: frozenset({Requirement.EVENT_TIME}))
    monkeypatch.setattr(AggregateOperator, "open", open_it)
    monkeypatch.setattr(AggregateRuntime, "on_watermark", on_watermark)
    yield events


def record(second: int, partition: int = 0) -> str:
    """A record of that second."""
    return (
        f"{{value: {{id: 1, customer: ann, amount: 100, at: 2026-01-01T00:00:{second:02}Z}}, partition: {partition}}}"
    )


def play(*elements: str, pipeline: str = PIPELINE) -> None:
    """A case whose two runs agree."""
    result = run_one(f"given: {{orders: [{', '.join(elements)}]}}, expect: {{copy: []}}", pipeline)
    assert result.passed, messages(result)


def test_watermarks_follow_the_records_of_a_case(seen: list[int | str]) -> None:
    play(record(10), record(8), record(20))
    assert seen == ["|", 5, 15, "|", 5, "|", 5, 15]


def test_a_case_brings_the_watermark_to_a_time_and_never_back(seen: list[int | str]) -> None:
    play(record(10), "{watermark: 2026-01-01T00:00:30Z}", "{watermark: 2026-01-01T00:00:20Z}", record(40))
    assert seen == ["|", 5, 30, 35, "|", 5, 30, "|", 30, 35]


def test_a_watermark_is_for_all_partitions_and_part_of_the_snapshot(seen: list[int | str]) -> None:
    play("{watermark: 2026-01-01T00:00:30Z}", record(10, 1), record(12), record(50, 1), record(50))
    assert seen == ["|", 30, 45, "|", 30, "|", 30, 45]


def test_a_partition_falls_idle_when_time_passes_and_not_before(seen: list[int | str]) -> None:
    play(record(10, 1), record(30), record(40))
    assert seen[: seen.index("|", 1)] == ["|", 5]
    seen.clear()
    play(record(10, 1), record(30), "{advance: 2s}", record(40))
    assert seen[: seen.index("|", 1)] == ["|", 5, 25, 35]


def test_an_idle_partition_is_idle_after_the_restart_of_a_case(seen: list[int | str]) -> None:
    play(record(10, 1), record(30), "{advance: 2s}", record(40), record(50), record(51), record(52))
    assert seen[seen.index("|", 1) :] == ["|", 5, 25, "|", 5, 35, 45, 46, 47]


def test_the_clock_moves_a_silent_source_where_the_file_says_so(seen: list[int | str]) -> None:
    pipeline = PIPELINE.replace("delay: 5s", "delay: 5s, idle: {advance: wall-clock}")
    result = run_one(
        f"now: 2026-01-01T00:00:10Z, given: {{orders: [{record(10)}, {{advance: 20s}}]}}, expect: {{copy: []}}",
        pipeline,
    )
    assert result.passed, messages(result)
    first = seen[1 : seen.index("|", 1)]
    assert first[0] == 5
    assert first[-1] == 25
    assert first == sorted(first, key=float)


def test_windows_of_the_time_of_arrival_close_by_the_clock_and_no_record_is_late() -> None:
    pipeline = ORDERS.replace("bad_records: skip}", "bad_records: skip, time: arrival}").replace(
        "key: customer, aggregate", "key: customer, window: {tumbling: 1m}, aggregate"
    )
    given = "{value: {id: 1, customer: ann, amount: 100}, timestamp: 2026-01-01T00:00:SECOND, partition: PART}"

    def arrived(second: str, part: int = 0) -> str:
        return given.replace("SECOND", f"{second}Z").replace("PART", str(part))

    def window(minute: int, n: int) -> str:
        bounds = f"window_start: 2026-01-01T00:0{minute}:00Z, window_end: 2026-01-01T00:0{minute + 1}:00Z"
        return f"{{key: ann, value: {{customer: ann, {bounds}, n: {n}, net: {n * 100}, last: 1}}}}"

    elements = (arrived("59"), arrived("10"), arrived("30", 1), "{advance: 3s}", arrived("50", 1), "{advance: 1m}")
    given_all = f"now: 2026-01-01T00:01:00Z, given: {{orders: [{', '.join(elements)}]}}"
    result = run_one(f"{given_all}, expect: {{totals: [{window(0, 3)}, {window(1, 1)}]}}", pipeline)
    assert result.passed, messages(result)


def test_a_bounded_source_comes_to_the_end_of_time(seen: list[int | str]) -> None:
    play(record(10), record(20), pipeline=PIPELINE.replace("event_time: at", "event_time: at, until: latest"))
    assert seen[: seen.index("|", 1)] == ["|", 5, 15, "end"]
    assert seen[-1] == "end"


@pytest.mark.parametrize(
    ("window", "held"),
    [
        ("{tumbling: 1m}", "1 open window, 1 timer, its watermark is 2026-01-01T00:00:04.999Z"),
        ("{tumbling: 40s}", "2 open windows, 2 timers, its watermark is 2026-01-01T00:00:04.999Z"),
        ("{session: 5s}", "3 open windows, 3 timers, its watermark is 2026-01-01T00:00:04.998Z"),
        ("{sliding: 1m, every: 30s}", "2 open windows, 2 timers, its watermark is 2026-01-01T00:00:04.999Z"),
    ],
)
def test_a_case_that_misses_records_says_what_steps_hold_and_wait_for(window: str, held: str) -> None:
    pipeline = PIPELINE.replace("key: customer, aggregate", f"key: customer, window: {window}, aggregate")
    given = f"given: {{orders: [{record(10, 1)}, {record(30)}, {record(50)}]}}"
    result = run_one(f"{given}, expect: {{totals: []}}", pipeline)
    assert result.passed, "no window is closed"
    result = run_one(f"{given}, expect: {{totals: [{{key: ann}}]}}", pipeline)
    assert messages(result)[-1].splitlines() == [
        "by the way:",
        f"per_customer: {held}",
        "orders: its watermark is 2026-01-01T00:00:04.999Z, held back by orders[1]",
    ]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_pattern_holds_no_watermark_back_where_a_case_names_topics(parallelism: int) -> None:
    """It is no topic itself."""
    pipeline = PIPELINE.replace("topic: orders", 'pattern: "clicks-.*"').replace(
        "{name: per_customer, from: big, key: customer, aggregate: {n: count(*), net: sum(amount), last: last(id)}}",
        "{name: per_customer, from: big, key: customer, window: {tumbling: 10s}, aggregate: {n: count(*)}}",
    )
    given = ", ".join(one.replace("{value", "{topic: clicks-eu, value") for one in (record(1), record(40)))
    result = run_one(f"given: {{orders: [{given}]}}", pipeline, parallelism)
    assert len(result.output["totals"]) == 1, messages(result)


def test_event_times_before_1971_are_a_note_of_a_case_that_fails() -> None:
    early = "{value: {id: 1, customer: ann, amount: 100, at: 1970-01-21T00:00:00Z}}"
    result = run_one(f"given: {{orders: [{early}]}}, expect: {{out: []}}", PIPELINE)
    assert any("orders: 1 record has an event time before 1971; `at` is a timestamp" in one for one in messages(result))


COMPUTED = """\
version: 1
name: readings
kafka: {bootstrap.servers: "127.0.0.1:9092"}
checkpoints: {directory: file:///nowhere}
sources:
  readings:
    topic: readings
    schema: {sensor: string, at: bigint, info: "struct<at: string>"}
    event_time: EVENT_TIME
    watermark: {delay: 5s}
    bad_records: skip
steps:
  - {name: per_minute, from: readings, key: sensor, window: {tumbling: 1m}, aggregate: {n: count(*)}}
sinks:
  out: {from: per_minute, topic: out, key: sensor}
tests:
"""


@pytest.mark.parametrize("text", ["timestamp_seconds(at)", "at * 1000", "to_timestamp(info.at, 'dd/MM/yyyy HH:mm:ss')"])
def test_windows_go_by_a_computed_event_time(text: str) -> None:
    """Their columns are read by nothing else."""
    seconds = (0, 30, 100, 200)
    given = ", ".join(
        f"{{value: {{sensor: s, at: {1_767_225_600 + n}, info: {{at: '01/01/2026 00:{n // 60:02}:{n % 60:02}'}}}}}}"
        for n in seconds
    )
    windows = ", ".join(
        f"{{key: s, value: {{sensor: s, window_start: 2026-01-01T00:{minute:02}:00Z, "
        f"window_end: 2026-01-01T00:{minute + 1:02}:00Z, n: {count}}}}}"
        for minute, count in ((0, 2), (1, 1), (3, 1))
    )
    end = "{value: {sensor: s}}, {watermark: 2026-01-01T01:00:00Z}"
    case = f"given: {{readings: [{given}, {end}]}}, expect: {{out: [{windows}]}}"
    result = run_one(f"{case}, bad_records: {{NO_EVENT_TIME: 1}}", COMPUTED.replace("EVENT_TIME", f'"{text}"'))
    assert result.passed, messages(result)
