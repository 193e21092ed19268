"""Pipelines over lines: cases, previews, header lines, and records that are damaged."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

import tidegate
from tests.testing.lettered import BEGIN_MS
from tests.testing.pipelines import HEAD, load, messages, run_one
from tidegate.ids import OperatorName, TopicPartition
from tidegate.testing.feed import Log
from tidegate.testing.harness import Harness
from tidegate.testing.parts import VirtualClock
from tidegate.testing.preview import LineParser, Preview

LINES = (
    HEAD
    + r"""
dead_letters: {topic: dead}
sources:
  orders:
    topic: orders
    format: delimited
    delimited: {separator: "\t", null_value: "\\N", header: true}
    schema: {id: bigint, customer: string, amount: "decimal(10,2)"}
    bad_records: dead-letter
  logs:
    topic: logs
    format: text
    text: {pattern: '(?<level>[A-Z]+) (?<message>.*)'}
    bad_records: skip
steps:
  - {name: large, from: orders, where: amount >= 1 or amount is null}
  - {name: lines, from: logs, select: {value: "concat_ws(': ', lower(level), message)"}}
sinks:
  out: {from: large, topic: out, key: customer, format: delimited, delimited: {separator: ";"}}
  texts: {from: lines, topic: texts, format: text}
tests:
"""
)


def test_cases_have_lines_and_columns() -> None:
    result = run_one(
        r"""given: {orders: [
          {value: "id\tcustomer\tamount"}, {value: "1\tann\t2.5"}, {value: {id: 2, customer: "bo;b", amount: 3.10}},
          {value: {id: 3}}, {text: "4\tcy"}], logs: [{value: "INFO started"}, {value: "nothing"}]},
          expect: {out: [{key: ann, value: "1;ann;2.50"}, {key: "bo;b", value: '2;"bo;b";3.10'}, {value: "3;;"}],
          texts: [{value: "info: started"}]}, bad_records: {MALFORMED_DELIMITED: 1, PATTERN_MISMATCH: 1}""",
        LINES,
    )
    assert messages(result) == []


def test_a_value_that_is_no_line_is_refused() -> None:
    with pytest.raises(Exception, match="a delimited value is a line of text, or its columns"):
        run_one("given: {orders: [{value: 5}]}, expect: {out: []}", LINES)
    with pytest.raises(Exception, match="the value of a text record is a text"):
        run_one("given: {logs: [{value: {level: X}}]}, expect: {texts: []}", LINES)
    with pytest.raises(Exception, match="the source has no column `x`"):
        run_one("given: {orders: [{value: {x: 1}}]}, expect: {out: []}", LINES)


def test_a_preview_reads_lines_of_a_file_with_their_blanks() -> None:
    loaded, plan = load("", LINES.removesuffix("tests:\n"))
    parser = LineParser(loaded.settings.sources["orders"], whole=False)
    records = list(
        parser.parse([b"\xef\xbb\xbfid\tcustomer\tamount\r\n", b"1\t\\N\t\\N\n", b"\n", b"2\t\t9\n", b"\t\t"])
    )
    assert [record.value for record in records] == [b"id\tcustomer\tamount", b"1\t\\N\t\\N", b"2\t\t9", b"\t\t"]
    skipped: list[str] = []
    found = list(Preview(loaded, plan, skipped.append).run(records, ()))
    assert [one.record["value"] for one in found if one.place == "out"] == ['"1;;"', '"2;\\"\\";9.00"']


def test_rows_of_a_notebook_become_lines() -> None:
    pipeline = tidegate.loads(LINES.removesuffix("tests:\n"))
    given = {"orders": [{"id": 1, "customer": "a\tb"}, {"amount": 2.5, "customer": "", "id": 2}]}
    found = pipeline.test(given, at=["large"])["large"]
    assert found.rows() == [(1, "a\tb", None), (2, "", Decimal("2.50"))]


def test_header_lines_count_as_filtered_and_damaged_lines_become_letters() -> None:
    rnd = random.Random(1)
    values = [b"id\tcustomer\tamount\r\n"]
    for number in range(400):
        data = bytearray(f"{number}\tc{number % 7}\t{number}.50".encode())
        if rnd.random() < 0.5:
            data[rnd.randrange(len(data))] = rnd.choice(b'\t\n"\xff\x00a1')
        values.append(bytes(data))
    values.insert(200, b'"id"\t"customer"\t"amount"')
    _, plan = load("", LINES.removesuffix("tests:\n"))
    part = TopicPartition("orders", 0)
    log = Log({part: len(values), TopicPartition("logs", 0): 0})
    for value in values:
        log.append(part, None, value, BEGIN_MS, ())
    harness = Harness(plan, log, VirtualClock(BEGIN_MS), lambda _: None)
    try:
        harness.settle()
        written = {str(name): len(records) for name, records in harness.snapshot().written.items()}
        counts = harness._slots[0].reporter.report().operators[OperatorName("orders")]
    finally:
        harness.close()
    letters = sum(count for name, count in written.items() if name not in ("out", "texts"))
    assert (counts.filtered, counts.rows_in) == (2, 402)
    assert letters > 50
    assert counts.rows_out == 400 - letters == written["out"] + counts_of_filter(harness)


def counts_of_filter(harness: Harness) -> int:
    return harness._slots[0].reporter.report().operators[OperatorName("large")].filtered
