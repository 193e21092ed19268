"""What came out is written into the file; every byte elsewhere stays."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from tests.testing.pipelines import ORDERS, load
from tidegate.config.load import read_pipeline
from tidegate.plan.build import build_plan
from tidegate.testing.cases import CaseRunner
from tidegate.testing.command import run_cases, write_output
from tidegate.testing.update import UpdateRefused

GIVEN = """\
    given:   # what comes in
      orders:
        - {value: {id: 1, customer: ann, amount: 100}}
        - {value: {id: 2, customer: "bo: b", amount: 200.5}}   # with a colon
        - {value: {id: 3, customer: ann, amount: 300}}
"""
LAST = """
# the end
"""


def update(file: Path, text: str) -> tuple[str, bool]:
    """The text after an update, and whether all cases pass then."""
    file.write_bytes(text.encode())
    loaded = read_pipeline(file, {})
    outcome = run_cases(loaded, build_plan(loaded), loaded.settings.tests, None, lambda result: None)
    write_output(file, {}, loaded, outcome.results)
    after = file.read_bytes().decode()
    again = read_pipeline(file, {})
    assert again.problems == (), after
    runner = CaseRunner(again, build_plan(again))
    return after, all(runner.run(case).passed for case in again.settings.tests)


def changed(before: str, after: str) -> list[str]:
    """Lines that went and came."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))[2:]
    return [f"{line[0]} {line[1:]}" for line in lines if not line.startswith("@@")]


def test_only_the_lines_of_records_that_differ_change(tmp_path: Path) -> None:
    text = (
        ORDERS
        + "  - name: one   # a name\n"
        + GIVEN
        + """\
    expect:
      totals:
        # the first
        - {key: ann, value: {customer:   ann, n: 1, net: 100, last: 1}}   # stays

        - {key: ann, value: {customer: ann, n: 2, net: 0, last: 3}}   # wrong
        - key: bo
          value: {}
        # after all
      out: {set: [{key: ann}, {key: ann}, {key: "bo: b"}]}
"""
        + LAST
    )
    after, passed = update(tmp_path / "a.yaml", text)
    assert passed
    assert changed(text, after) == [
        "-         - {key: ann, value: {customer: ann, n: 2, net: 0, last: 3}}   # wrong",
        "-         - key: bo",
        "-           value: {}",
        '+         - {key: "bo: b", value: {customer: "bo: b", n: 1, net: 200.5, last: 2}}   # wrong',
        "+         - {key: ann, value: {customer: ann, n: 2, net: 400.0, last: 3}}",
    ]


def test_records_are_added_and_removed_where_they_belong(tmp_path: Path) -> None:
    text = (
        ORDERS
        + "  - name: one\n"
        + GIVEN
        + """\
    expect:
      totals:
        - value: {customer: ann, n: 2, net: 400, last: 3}
      out:
        - {key: ann, value: {id: 1, customer: ann, amount: 100, at: null}}
        - {key: dan}   # nobody
        - {key: eve,
           value: null}
        - {key: "bo: b", value: {id: 2, customer: "bo: b", amount: 200.5, at: null}}
        - {key: ann, value: {id: 3, customer: ann, amount: 300, at: null}}
      copy:
        - {value: x}
"""
    )
    after, passed = update(tmp_path / "a.yaml", text)
    assert passed
    assert changed(text, after) == [
        "+         - {value: {customer: ann, n: 1, net: 100.0, last: 1}}",
        '+         - {value: {customer: "bo: b", n: 1, net: 200.5, last: 2}}',
        "-         - {key: dan}   # nobody",
        "-         - {key: eve,",
        "-            value: null}",
        "-         - {value: x}",
        "+         []",
    ]


def test_a_case_without_expectations_gets_those_of_all_sinks(tmp_path: Path) -> None:
    text = (
        ORDERS
        + "  - name: one\n"
        + GIVEN
        + "  # before the next\n  - {name: two, given: {lines: [{value: 'a$${b'}]}}\n"
    )
    after, passed = update(tmp_path / "a.yaml", text)
    assert passed
    assert changed(text, after)[:4] == [
        "+     expect:",
        "+       out:",
        "+         - {key: ann, value: {id: 1, customer: ann, amount: 100.0, at: null}}",
        '+         - {key: "bo: b", value: {id: 2, customer: "bo: b", amount: 200.5, at: null}}',
    ]
    assert after.splitlines()[-1] == (
        "  - {name: two, given: {lines: [{value: 'a$${b'}]}, expect: {out: [], totals: [], copy: [{value: \"a$${b\"}]}}"
    )
    assert "\n      copy: []\n  # before the next\n" in after


def test_an_empty_expectation_is_filled(tmp_path: Path) -> None:
    text = ORDERS + "  - name: one\n    expect: {}\n    given: {lines: [{key: k, value: v}]}\n"
    after, passed = update(tmp_path / "a.yaml", text)
    assert passed
    assert changed(text, after)[1] == "+     expect: {out: [], totals: [], copy: [{key: k, value: v}]}"


def test_a_list_in_brackets_stays_one_and_is_broken_where_it_is_long(tmp_path: Path) -> None:
    text = ORDERS + "  - name: one\n" + GIVEN + "    expect:\n      out: [{key: ann},{key:   ann}]\n      totals: []\n"
    after, passed = update(tmp_path / "a.yaml", text)
    assert passed
    assert changed(text, after) == [
        "-       out: [{key: ann},{key:   ann}]",
        "-       totals: []",
        '+       out: [{key: ann}, {key: "bo: b"}, {key:   ann}]',
        "+       totals: [",
        "+         {key: ann, value: {customer: ann, n: 1, net: 100.0, last: 1}},",
        '+         {key: "bo: b", value: {customer: "bo: b", n: 1, net: 200.5, last: 2}},',
        "+         {key: ann, value: {customer: ann, n: 2, net: 400.0, last: 3}}]",
    ]


def test_line_endings_and_the_byte_order_mark_stay(tmp_path: Path) -> None:
    text = (
        ORDERS + "  - name: one\n" + GIVEN + "    expect:\n      copy: []\n      totals:\n        - {key: ann}\n" + LAST
    )
    before = "\ufeff" + text.replace("\n", "\r\n")
    after, passed = update(tmp_path / "a.yaml", before)
    assert passed
    assert after.startswith("\ufeff")
    assert after.count("\n") == after.count("\r\n") == before.count("\n") + 2


def test_a_case_that_passes_is_not_touched(tmp_path: Path) -> None:
    text = ORDERS + "  - name: one\n" + GIVEN + "    expect: {copy: [ ]}\n"
    assert update(tmp_path / "a.yaml", text) == (text, True)


def test_bad_records_and_failures_are_left_to_people(tmp_path: Path) -> None:
    text = ORDERS + "  - {name: one, given: {orders: [{text: '{'}]}, expect: {out: []}}\n"
    assert update(tmp_path / "a.yaml", text) == (text, False)


def test_an_alias_is_not_written_over(tmp_path: Path) -> None:
    text = ORDERS + (
        "  - {name: one, given: {lines: [{value: x}]}, expect: {copy: &none []}}\n"
        "  - {name: two, given: {lines: [{value: x}]}, expect: {copy: *none}}\n"
    )
    with pytest.raises(UpdateRefused, match="case 'two': what copy is to write is an alias: write it out"):
        update(tmp_path / "a.yaml", text)
    assert (tmp_path / "a.yaml").read_text(encoding="utf-8") == text


def test_the_helper_sees_problems() -> None:
    with pytest.raises(Exception, match="unknown key"):
        load("  - {name: one, nothing: 1}\n")


def test_a_case_in_braces_may_end_with_a_comma(tmp_path: Path) -> None:
    text = ORDERS + "  - {name: one, given: {lines: [{value: x}]}, }\n"
    after, passed = update(tmp_path / "a.yaml", text)
    assert passed
    assert changed(text, after)[1].endswith("[{value: x}]}, expect: {out: [], totals: [], copy: [{value: x}]}}")


def test_only_a_case_that_expects_nothing_gets_expectations(tmp_path: Path) -> None:
    text = ORDERS + "  - {name: one, given: {orders: [{text: x}]}, bad_records: 2}\n"
    assert update(tmp_path / "a.yaml", text) == (text, False)


def test_a_text_that_would_become_another_pipeline_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = ORDERS + "  - {name: one, given: {lines: [{value: x}]}, expect: {copy: []}}\n"
    for broken in ("x: [", text.replace("topic: copy", "topic: other"), text.replace("name: one", "name: two")):
        monkeypatch.setattr("tidegate.testing.command.update_text", lambda *arguments, broken=broken: broken)
        with pytest.raises(UpdateRefused, match="cannot be edited safely"):
            update(tmp_path / "a.yaml", text)
        assert (tmp_path / "a.yaml").read_text(encoding="utf-8") == text


def test_a_new_expectation_has_the_topic_that_the_sink_has_chosen(tmp_path: Path) -> None:
    text = (
        ORDERS.replace("topic: copy,", "topic: {expression: value, allow: [x, y]},")
        .replace("copy: {from: lines", "copy: {from: texts")
        .replace("sinks:\n", "  - {name: texts, from: lines, select: {value: cast(value AS string)}}\nsinks:\n")
    )
    text += "  - {name: one, given: {lines: [{value: x}]}}\n"
    after, passed = update(tmp_path / "a.yaml", text)
    assert passed
    assert changed(text, after)[1].endswith("copy: [{value: x, topic: x}]}}")


def test_a_block_text_ends_before_the_line_after_it(tmp_path: Path) -> None:
    """YAML's mark of its end is in that line: the expectation became the next case's."""
    text = ORDERS + (
        "  - name: one\n    given:\n      orders:\n        - key: ann\n          text: |\n"
        '            {"id": 1, "customer": "ann", "amount": 150}\n\n'
        "  - name: two\n    bad_records: 1\n    given: {orders: [{text: '{'}]}\n"
    )
    after, passed = update(tmp_path / "a.yaml", text)
    assert passed
    assert all(line.startswith("+") for line in changed(text, after))
    assert 'amount": 150}\n    expect:\n      out:\n' in after


def test_a_record_with_a_block_text_goes_alone(tmp_path: Path) -> None:
    text = ORDERS + (
        "  - name: one\n    given: {lines: [{value: b}, {value: c}]}\n    expect:\n      copy:\n"
        "        - value: |\n            a\n        - {value: b}   # stays\n        - {value: c}\n"
    )
    after, passed = update(tmp_path / "a.yaml", text)
    assert passed
    assert changed(text, after) == ["-         - value: |", "-             a"]


def test_an_expectation_in_another_case_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ORDERS + (
        "  - {name: one, given: {lines: [{value: x}]}, expect: {copy: []}}\n"
        "  - {name: two, given: {lines: [{value: x}]}, expect: {copy: [{value: x}]}}\n"
    )
    broken = text.replace("expect: {copy: [{value: x}]}", "expect: {copy: [{value: y}]}")
    monkeypatch.setattr("tidegate.testing.command.update_text", lambda *arguments: broken)
    with pytest.raises(UpdateRefused, match="cannot be edited safely"):
        update(tmp_path / "a.yaml", text)


def test_records_that_come_without_any_expectation_are_written_with_their_headers(tmp_path: Path) -> None:
    sink = "  out: {from: big, topic: big, key: customer, timestamp: at"
    head = ORDERS.replace(sink, sink + ", headers: {pass: all, add: {by: customer}}")
    given = """\
    given:
      orders:
        - {value: {id: 1, customer: ann, amount: 100}, headers: [[trace, null], [id, {base64: /w==}]]}
"""
    after, passed = update(tmp_path / "p.yaml", head + "  - name: new\n" + given)
    assert passed
    (line,) = [line for line in changed(head + "  - name: new\n" + given, after) if "by" in line]
    assert line.endswith('headers: [[trace, null], [id, {base64: "/w=="}], [by, ann]]}')
