"""Windows in cases: closed by records, by a watermark, by idleness; late records; what is still open."""

from __future__ import annotations

import pytest

from tests.testing.pipelines import messages, run_one

PIPELINE = """\
version: 1
name: windows
kafka: {bootstrap.servers: "127.0.0.1:9092"}
checkpoints: {directory: file:///nowhere}
sources:
  orders: {topic: orders, schema: {id: bigint, customer: string, at: timestamp}, event_time: at, watermark: {delay: 5s}}
steps:
  - {name: per_minute, from: orders, key: customer, window: {tumbling: 1m}, aggregate: {n: count(*)}, late: late_orders}
  - {name: visits, from: orders, key: customer, window: {session: 10s}, aggregate: {n: count(*)}}
sinks:
  totals: {from: per_minute, topic: totals, key: customer}
  visits_out: {from: visits, topic: visits, key: customer}
  late_orders: {topic: late, format: json}
tests:
"""


def record(at: str, number: int = 1, more: str = "") -> str:
    """An order of ann's at minute:second."""
    return f"{{value: {{id: {number}, customer: ann, at: 2026-01-01T00:{at}Z}}{more}}}"


def total(minute: int, count: int) -> str:
    """What comes out for a minute."""
    start, end = (f"2026-01-01T00:{at:02}:00Z" for at in (minute, minute + 1))
    return f"{{key: ann, value: {{customer: ann, window_start: {start}, window_end: {end}, n: {count}}}}}"


@pytest.mark.parametrize("parallelism", [1, 2])
def test_records_close_windows_and_late_ones_go_their_way(parallelism: int) -> None:
    given = ", ".join(
        [
            *(record(at) for at in ("00:00", "00:59", "01:01", "00:30", "01:06")),
            record("00:40", 9),
            "{watermark: 2026-01-01T00:01:30Z}",
        ]
    )
    result = run_one(
        f"given: {{orders: [{given}]}}, expect: {{totals: [{total(0, 3)}], late_orders: [{{}}]}}, "
        "late: {per_minute: 1, visits: 2}",
        PIPELINE,
        parallelism,
    )
    assert result.passed, messages(result)
    assert result.output["late_orders"][0]["value"]["id"] == 9


def test_late_records_correct_sessions_and_take_back_those_that_are_none_any_more() -> None:
    text = PIPELINE.replace(
        "window: {session: 10s}, ", "window: {session: 10s}, allowed_lateness: 1m, late: late_visits, "
    )
    text = text.replace("from: visits, topic: visits, key: customer", "from: named, topic: visits, key: id, ON_NULL")
    text = text.replace("ON_NULL", "on_null: {column: _deleted, write: tombstone}")
    select = "\"concat(customer, date_format(window_start, ' mm:ss'))\""
    named = f'  - {{name: named, from: visits, select: {{"*": all, add: {{id: {select}}}}}}}\nsinks:\n'
    text = text.replace("sinks:\n", named + "  late_visits: {topic: late-visits, format: json}\n")
    given = ", ".join(
        [record("00:00"), record("00:15"), "{watermark: 2026-01-01T00:00:40Z}", record("00:08"), record("00:52")]
    )
    given += f", {{watermark: 2026-01-01T00:03:00Z}}, {record('00:07', 9)}, {{watermark: 2026-01-01T00:04:00Z}}"
    result = run_one(f"given: {{orders: [{given}]}}, expect: {{visits_out: []}}", text)
    shown = [(one["key"], one["value"] and one["value"]["n"]) for one in result.output["visits_out"]]
    assert shown == [("ann 00:00", 1), ("ann 00:15", 1), ("ann 00:15", None), ("ann 00:00", 3), ("ann 00:52", 1)]
    assert [one["value"]["id"] for one in result.output["late_visits"]] == [9]


def test_a_watermark_closes_windows_and_so_does_idleness() -> None:
    given = f"{record('00:10')}, {{watermark: 2026-01-01T00:01:00Z}}, {record('01:10')}"
    assert run_one(f"given: {{orders: [{given}]}}, expect: {{totals: [{total(0, 1)}]}}", PIPELINE).passed
    quiet = f"{record('00:10', 1, ', partition: 1')}, {record('02:00')}"
    assert run_one(f"given: {{orders: [{quiet}]}}, expect: {{totals: []}}", PIPELINE).passed
    idle = f"{quiet}, {{advance: 2s}}, {record('03:10')}"
    closed = f"{total(0, 1)}, {total(2, 1)}"
    result = run_one(f"given: {{orders: [{idle}]}}, expect: {{totals: [{closed}]}}", PIPELINE)
    assert result.passed, messages(result)


def test_a_window_that_is_missing_is_named_with_the_watermark() -> None:
    result = run_one(f"given: {{orders: [{record('00:10')}]}}, expect: {{totals: [{total(0, 1)}]}}", PIPELINE)
    notes = messages(result)[-1]
    assert "per_minute: " in notes
    assert "its watermark is 2026-01-01T00:00:04.999Z" in notes
    assert "held back by orders[0]" in notes


@pytest.mark.parametrize("policy", ["skip", "dead-letter", "fail"])
def test_a_window_that_ends_after_the_year_9999_is_a_bad_record(policy: str) -> None:
    """Python has no moment of its end to say it by: each attempt failed with an internal error."""
    text = PIPELINE.replace("event_time: at,", f"event_time: at, bad_records: {policy},")
    if policy == "dead-letter":
        text = text.replace("tests:\n", "dead_letters: {topic: dead}\ntests:\n")
    given = (
        "{orders: [{value: {id: 1, customer: ann, at: 9999-12-31T23:59:30Z}}, {watermark: 9999-12-31T23:59:59.999Z}, "
        "{watermark: 253402300800000}]}"
    )
    expected = "fails: ends at 253402300800000 ms since 1970" if policy == "fail" else "bad_records: 1"
    result = run_one(f"given: {given}, {expected}", text)
    assert result.passed, messages(result)
