"""`quiet` in cases: a silent key, a silent topic, the key that is back, late records."""

from __future__ import annotations

import pytest

from tests.testing.pipelines import messages, run_one

PIPELINE = """\
version: 1
name: silent
kafka: {bootstrap.servers: "127.0.0.1:9092"}
checkpoints: {directory: file:///nowhere}
sources:
  readings:
    topic: readings
    schema: {device: string, at: timestamp}
    event_time: at
    watermark: {delay: 5s}
steps:
  - {name: silent, from: readings, quiet: {key: device, for: 10s, repeat: 30s}, late: missed}
sinks:
  alerts: {from: silent, topic: alerts, key: device}
  missed: {topic: missed}
tests:
"""


def record(device: str, second: int) -> str:
    return f"{{value: {{device: {device}, at: 2026-01-01T00:{second // 60:02}:{second % 60:02}Z}}}}"


def alert(device: str, quiet: bool, second: int) -> str:
    shown = f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"
    return f"{{key: {device}, value: {{device: {device}, quiet: {str(quiet).lower()}, last_at: {shown}}}}}"


def test_a_silent_device_is_reported_again_until_it_is_back() -> None:
    given = [record("a", 0), record("b", 2), *(record("b", second) for second in range(12, 62, 10)), record("a", 50)]
    given += [record("b", 62)]
    expected = [alert("a", True, 0), alert("a", True, 0), alert("a", False, 0)]
    result = run_one(
        f"given: {{readings: [{', '.join(given)}]}}, expect: {{alerts: [{', '.join(expected)}]}}", PIPELINE
    )
    assert result.passed, messages(result)


def test_a_late_record_is_no_arrival() -> None:
    given = [record("a", 0), record("b", 20), record("a", 10)]
    reason = (
        "_reason: 'late: the result of its key for this time has been decided', _watermark: 2026-01-01T00:00:14.999Z"
    )
    missed = f"{{value: {{device: a, at: 2026-01-01T00:00:10Z, {reason}}}}}"
    expected = f"expect: {{alerts: [{alert('a', True, 0)}], missed: [{missed}]}}"
    result = run_one(f"given: {{readings: [{', '.join(given)}]}}, {expected}", PIPELINE)
    assert result.passed, messages(result)


def test_a_silent_topic_is_noticed_where_the_watermark_follows_the_clock() -> None:
    given = f"now: 2026-01-01T00:00:02Z, given: {{readings: [{record('a', 0)}, {{advance: 30s}}]}}"
    result = run_one(f"{given}, expect: {{alerts: []}}", PIPELINE)
    assert result.passed, messages(result)
    moving = PIPELINE.replace("delay: 5s", "delay: 5s, idle: {advance: wall-clock}")
    result = run_one(f"{given}, expect: {{alerts: [{alert('a', True, 0)}]}}", moving)
    assert result.passed, messages(result)


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("last", [0, 1])
def test_the_end_of_a_bounded_input_repeats_what_was_due_by_its_last_record(last: int, parallelism: int) -> None:
    """Whichever partition is read to its end first."""
    bounded = PIPELINE.replace("    event_time: at", "    until: latest\n    event_time: at")
    given = [record("a", 0), record("b", 100)]
    given[last] = given[last].replace("{value:", "{partition: 1, value:")
    expected = [*[alert("a", True, 0)] * 3, alert("b", True, 100)]  # due at 10, 40, 70 and, by the end alone, 110 s
    case = f"given: {{readings: [{', '.join(given)}]}}, expect: {{alerts: [{', '.join(expected)}]}}"
    result = run_one(case, bounded, parallelism)
    assert result.passed, messages(result)


def test_a_case_that_fails_says_what_waits() -> None:
    result = run_one(f"given: {{readings: [{record('a', 0)}]}}, expect: {{alerts: [{{key: a}}]}}", PIPELINE)
    assert "silent: 1 timer, its watermark is 2025-12-31T23:59:54.999Z" in messages(result)[-1]
