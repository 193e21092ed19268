"""Decimals, maps and timestamps without zone through whole pipelines, each case once more with a restart."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.testing.pipelines import messages, run_one
from tidegate.formats.plain import parse_json, render_json
from tidegate.testing.compare import is_same, render_flow

PIPELINE = """\
version: 1
name: money
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///var/lib/tidegate}
sources:
  paid:
    topic: paid
    schema:
      id: bigint
      price: "decimal(19,2)"
      at: timestamp_ntz
      tags: "map<string, decimal(3,1)>"
      lines: "array<struct<sku: string, price: decimal(5,2)>>"
    unknown_fields: {keep: rest}
    bad_records: skip
steps:
  - {name: totals, from: paid, key: at, aggregate: {net: sum(price), mean: avg(price), least: min(price), n: count(*)}}
  - {name: dearest, from: paid, key: at, keep: {by: price, n: 1}}
  - {name: once, from: paid, dedup: {key: price, within: 1h}}
  - {name: hourly, from: paid, key: price, window: {tumbling: 1h}, aggregate: {net: sum(price), mean: avg(price),
      all: collect_list(price), other: count(distinct at), first: "min_by(at, price)"}}
sinks:
  same: {from: paid, topic: same, key: price}
  sums: {from: totals, topic: sums, key: at}
  best: {from: dearest, topic: best, key: at}
  few: {from: once, topic: few, key: id}
  windows: {from: hourly, topic: windows, key: price}
tests:
"""
AT = "at: 2026-01-01T00:00:00"
GREAT = "12345678901234567.89"


def test_a_record_leaves_with_every_digit_that_it_came_with() -> None:
    result = run_one(
        f'given: {{paid: [{{value: {{id: 1, price: "{GREAT}", {AT}, tags: {{b: 1, a: null}}, lines: [{{sku: x, '
        "price: 0.1}, null], more: {x: [1, 2.50]}, note: hi}}]}, "
        f'expect: {{same: [{{key: "{GREAT}", value: {{id: 1, price: "{GREAT}", {AT}, tags: {{b: "1.0", a: null}}, '
        'lines: [{sku: x, price: "0.10"}, null], rest: {more: "{\\"x\\":[1,2.5]}", note: hi}}}]}',
        PIPELINE,
    )
    assert result.passed, messages(result)


def test_sums_averages_ranks_and_windows_are_exact() -> None:
    given = ", ".join(
        f'{{value: {{id: {number}, price: "{price}", {AT}, lines: [{{sku: x, price: 1}}]}}, '
        "timestamp: 2026-01-01T00:00:00Z}"
        for number, price in enumerate((GREAT, "0.01", "0.01", "-1"))
    )
    row = f"{AT}, tags: null, lines: [{{sku: x, price: 1.00}}], rest: {{}}"
    result = run_one(
        f"given: {{paid: [{given}, {{advance: 2h}}, {{watermark: 2026-01-01T02:00:00Z}}]}}, expect: {{"
        f'sums: [{{value: {{{AT}, net: "{GREAT}", mean: "{GREAT}0000", least: "{GREAT}", n: 1}}}}, '
        f'{{value: {{{AT}, net: "12345678901234567.90", mean: "6172839450617283.950000", least: "0.01", n: 2}}}}, '
        f'{{value: {{{AT}, net: "12345678901234567.91", mean: "4115226300411522.636667", least: "0.01", n: 3}}}}, '
        f'{{value: {{{AT}, net: "12345678901234566.91", mean: "3086419725308641.727500", least: "-1.00", n: 4}}}}], '
        f'best: [{{value: {{id: 0, price: "{GREAT}", rank: 1, {row}}}}}], '
        "few: [{key: '0'}, {key: '1'}, {key: '3'}], "
        "windows: {set: [{key: '-1.00'}, {key: '0.01', value: {window_start: 2026-01-01T00:00:00Z, window_end: "
        "2026-01-01T01:00:00Z, price: '0.01', net: '0.02', mean: '0.010000', all: ['0.01', '0.01'], other: 1, first: "
        f"2026-01-01T00:00:00}}}}, {{key: '{GREAT}'}}]}}}}",
        PIPELINE,
    )
    assert result.passed, messages(result)


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ('price: "1.005"', "OUT_OF_RANGE"),
        ("tags: {a: 100}", "OUT_OF_RANGE"),
        ("lines: [{price: 1.001}]", "OUT_OF_RANGE"),
        ("at: 2026-01-01T00:00:00Z", "WRONG_TYPE"),
        ("tags: [1]", "WRONG_TYPE"),
    ],
)
def test_what_is_not_exact_is_a_bad_record(field: str, kind: str) -> None:
    case = f"given: {{paid: [{{value: {{{field}}}}}]}}, expect: {{same: []}}, bad_records: {{{kind}: 1}}"
    result = run_one(case, PIPELINE)
    assert result.passed, messages(result)


def test_an_unknown_field_fails_its_record_where_the_source_says_so() -> None:
    pipeline = PIPELINE.replace("{keep: rest}", "fail")
    result = run_one(
        "given: {paid: [{value: {id: 1, x: 1}}, {value: {id: 2}}, {value: {id: 3, lines: [{skew: 1}]}}]}, "
        "expect: {same: [{value: {id: 2, price: null, at: null, tags: null, lines: null}}]}, "
        "bad_records: {UNKNOWN_FIELD: 2}",
        pipeline,
    )
    assert result.passed, messages(result)


def test_a_running_sum_that_leaves_its_type_fails_its_record_alone() -> None:
    pipeline = PIPELINE.replace("decimal(19,2)", "decimal(38,2)")
    great = "9" * 36 + ".99"
    result = run_one(
        f'given: {{paid: [{{value: {{price: "{great}", {AT}}}}}, {{value: {{price: 0.01, {AT}}}}}, '
        f"{{value: {{price: -0.01, {AT}}}}}]}}, "
        "expect: {sums: [{value: {" + AT + f', net: "{great}", mean: "{great}0000", least: "{great}", n: 1}}}}]}}',
        pipeline,
    )
    assert not result.passed
    assert any("ARITHMETIC_OVERFLOW" in message for message in messages(result)), messages(result)


@pytest.mark.parametrize(
    ("expected", "came", "same"),
    [
        (12.5, "12.50", True),
        ("12.50", "12.50", True),
        ("12.5", "12.50", False),
        (12, "12.00", True),
        (0.1, "0.1", True),
        (12.51, "12.50", False),
        ("1.0E+2", "1.0e2", True),
        ("abc", "12.50", False),
        (True, "1.0", False),
        (None, "1.0", False),
        ([1.0], "1.0", False),
    ],
)
def test_a_number_that_came_agrees_by_value_or_with_its_digits(expected: object, came: str, same: bool) -> None:
    assert is_same(expected, Decimal(came)) is same
    assert is_same(Decimal(came), expected) is same


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("12.5", "12.5"),
        ("12.50", '"12.50"'),
        ("-0.0", "-0.0"),
        ("1e-7", "1e-07"),
        ("0.00000000", '"0.00000000"'),
        ("1e400", '"1E+400"'),
    ],
)
def test_a_number_is_written_so_that_it_keeps_its_digits(number: str, text: str) -> None:
    assert render_flow(Decimal(number)) == text


@pytest.mark.parametrize("text", ["0.00000000", "-0.0000001000", "12.50", "1E+400", "1E-400"])
def test_a_number_of_json_keeps_its_form(text: str) -> None:
    assert render_json(parse_json(f"[{text}]")) == f"[{text}]"


@pytest.mark.parametrize("function", ["min", "max", "first", "last"])
def test_moments_of_a_window_are_merged_with_those_from_before_a_restart(function: str) -> None:
    pipeline = PIPELINE[: PIPELINE.index("    schema:")] + (
        "    schema: {id: bigint, at: timestamp, day: date}\n"
        "steps:\n"
        f"  - {{name: hourly, from: paid, key: id, window: {{tumbling: 1h}}, aggregate: {{a: {function}(at), "
        f"d: {function}(day)}}}}\n"
        "sinks: {windows: {from: hourly, topic: windows}}\n"
        "tests:\n"
    )
    record = "{value: {id: 1, at: 2026-01-01T00:00:00Z, day: 2026-01-01}, timestamp: 2026-01-01T00:00:00Z}"
    result = run_one(
        f"given: {{paid: [{', '.join([record] * 4)}, {{watermark: 2026-01-01T02:00:00Z}}]}}, "
        "expect: {windows: [{value: "
        "{window_start: 2026-01-01T00:00:00Z, window_end: 2026-01-01T01:00:00Z, id: 1, a: 2026-01-01T00:00:00Z, "
        "d: 2026-01-01}}]}",
        pipeline,
    )
    assert result.passed, messages(result)


def test_a_number_that_nothing_holds_is_no_value() -> None:
    with pytest.raises(ValueError, match="18 digits"):
        parse_json("[1e9999999999999999999]")
