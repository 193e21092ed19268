"""FILTER and IGNORE NULLS of aggregates through whole pipelines: totals, windows, changes, rows that fail."""

from __future__ import annotations

import pytest

from tests.testing.pipelines import HEAD, messages, run_one
from tidegate.testing.cases import CaseResult

SOURCE = """\
parallelism: 2
sources:
  orders:
    topic: orders
    schema: {k: string, n: int, d: int, s: string, at: timestamp}
    bad_records: skip
steps:
"""
SINK = "sinks:\n  out: {from: it, topic: out, key: k}\ntests:\n"


def play(step: str, totals: dict[str, str], given: list[str], more: str, source: str = SOURCE) -> CaseResult:
    """A case of a step with these totals over records of the key `a`."""
    calls = ", ".join(f'{name}: "{call}"' for name, call in totals.items())
    text = f"{HEAD}{source}  - {{name: it, from: orders, key: k, {step}aggregate: {{{calls}}}}}\n{SINK}"
    records = ", ".join(one if one.startswith("{") else f"{{value: {{k: a, {one}}}}}" for one in given)
    return run_one(f"given: {{orders: [{records}]}}, {more}", text)


def differences(totals: dict[str, str], given: list[str], expected: list[str], bad: str = "{}") -> list[str]:
    """What is wrong with the running totals after each record."""
    values = ", ".join(f"{{key: a, value: {{k: a, {one}}}}}" for one in expected)
    return messages(play("", totals, given, f"expect: {{out: [{values}]}}, bad_records: {bad}"))


def test_the_latest_values_that_are_not_null() -> None:
    totals = {"s": "last(s, true)", "n": "last(n) ignore nulls", "f": "any_value(n ignore nulls)"}
    given = ["s: '2.1'", "n: 75", "s: '2.2'", "n: 80"]
    expected = ["s: '2.1', n: null, f: null", "s: '2.1', n: 75, f: 75", "s: '2.2', n: 75, f: 75"]
    assert differences(totals, given, [*expected, "s: '2.2', n: 80, f: 75"]) == []


def test_an_argument_is_not_evaluated_for_a_row_that_is_left_out() -> None:
    totals = {"a": "sum(n / d) filter (where d <> 0)", "b": "last(cast(s as int)) filter (where n > 0) ignore nulls"}
    given = ["n: 6, d: 3, s: '7'", "n: 6, d: 0, s: '8'", "n: -6, d: null, s: x", "n: 6, d: 1, s: x", "n: 1, d: 1"]
    expected = ["a: 2.0, b: 7", "a: 2.0, b: 8", "a: 2.0, b: 8", "a: 3.0, b: 8"]
    assert differences(totals, given, expected, "{CAST_INVALID_INPUT: 1}") == []


def test_a_row_whose_condition_fails_fails() -> None:
    totals = {"a": "count(*) filter (where n % d = 0)", "b": "count(*)"}
    expected = ["a: 1, b: 1", "a: 1, b: 2"]
    assert differences(totals, ["n: 6, d: 3", "n: 6, d: 0", "n: 5, d: 3"], expected, "{DIVIDE_BY_ZERO: 1}") == []


@pytest.mark.parametrize(
    "window",
    [
        "window: {tumbling: 1m}, ",
        "window: {sliding: 1m, every: 30s}, ",
        "window: {session: 30s}, ",
        "window: {session: 30s}, allowed_lateness: 1m, ",
        "window: {tumbling: 1m}, emit: {every: 30s}, ",
        "window: {session: 30s}, emit: {every: 30s}, ",
    ],
)
def test_windows_count_the_rows_that_each_aggregate_counts(window: str) -> None:
    """A session lasts by all of its records: also those that no aggregate counts keep it open."""
    totals = {
        "none": "count(*) filter (where n > 9)",
        "nothing": "last(d) ignore nulls",
        "sum": "sum(n) filter (where s is null or s = 'x')",
        "list": "collect_list(s) filter (where n > 0)",
        "early": "count(*) filter (where minute(at) = 0)",
        "first": "first(s) filter (where n is null)",
    }
    given = [
        "n: 1, s: x, at: 2026-01-01T00:00:31Z",
        "n: 2, at: 2026-01-01T00:00:45Z",
        "s: y, at: 2026-01-01T00:00:59Z",
        "{watermark: 2026-01-01T00:09:00Z}",
    ]
    source = SOURCE.replace("    bad_records", "    event_time: at\n    bad_records")
    row = play(window, totals, given, "expect: {out: []}", source).output["out"][-1]["value"]
    expected = {"none": 0, "nothing": None, "sum": 3, "list": ["x"], "early": 3, "first": "y"}
    assert {name: row[name] for name in expected} == expected


CHANGES = """\
sources:
  orders: {topic: orders, format: debezium, schema: {id: bigint, k: string, paid: int}}
steps:
"""


def test_changes_are_taken_back_from_the_aggregates_that_counted_them() -> None:
    totals = {
        "all": "count(*)",
        "big": "count(*) filter (where paid > 5)",
        "sum": "sum(paid) filter (where paid > 5)",
        "most": "max(paid) filter (where paid < 9)",
    }
    events = [
        "{op: c, after: {id: 1, k: a, paid: 8}}",
        "{op: c, after: {id: 2, k: a, paid: 3}}",
        "{op: u, before: {id: 1, k: a, paid: 8}, after: {id: 1, k: a, paid: 4}}",
        "{op: u, before: {id: 2, k: a, paid: 3}, after: {id: 2, k: a, paid: 30}}",
        "{op: d, before: {id: 2, k: a, paid: 30}}",
    ]
    found = play("", totals, [f"{{value: {one}}}" for one in events], "expect: {out: []}", CHANGES).output["out"]
    names = ("all", "big", "sum", "most", "_deleted")
    assert [tuple(one["value"][name] for name in names) for one in found] == [
        (1, 1, 8, 8, False),
        (2, 1, 8, 8, False),
        (2, 0, None, 4, False),
        (2, 1, 30, 4, False),
        (1, 0, None, 4, False),
    ]
