"""Results for people, for programs, and as JUnit's XML."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from tests.testing.pipelines import ORDERS, load
from tidegate.testing.cases import CaseRunner, RunOutcome, choose_cases, run_cases
from tidegate.testing.compare import Line
from tidegate.testing.render import ResultPrinter, render_json, shorten

CASES = """\
  - name: a total [of] <customers> & \\x01more
    given: {orders: [{value: {id: 1, customer: ann, amount: 100}}, {value: {id: 2, customer: ann, amount: 50.5}}]}
    expect:
      totals: [{key: ann, value: {customer: ann, n: 1, net: 150.5, last: 1}}]
      out: [{key: bo}, {key: dan}]
    bad_records: 1
  - {name: nothing, expect: {copy: []}}
"""
NAME = "a total [of] <customers> & \\x01more"


def outcome(cases: str = CASES, *, terminal: bool = False) -> tuple[str, RunOutcome]:
    """What is printed, and the results."""
    loaded, plan = load(cases.replace("\\x01", ""))
    stream = io.StringIO()
    console = Console(file=stream, highlight=False, width=40)
    if terminal:
        console = Console(file=stream, force_terminal=True, color_system="standard", highlight=False, width=40)
    printer = ResultPrinter(console, loaded)
    found = run_cases(loaded, plan, loaded.settings.tests, None, printer.print_case)
    printer.print_summary(found.results, found.left_out, 0.25)
    return stream.getvalue(), found


def test_each_case_has_a_line_and_what_differs_is_shown() -> None:
    text, _ = outcome()
    first, *lines = text.splitlines()
    assert first.startswith("failed  a total [of] <customers> & more  (")
    assert first.endswith("ms)  orders.yaml:17:5")
    assert lines[:-2] == [
        "    sink totals: 1 record came out, as many as expected, but with other contents",
        "      - {key: ann, value: {customer: ann, n: 1, net: 150.5, last: 1}}",
        "      + {key: ann, value: {customer: ann, n: 1, net: 100.0, last: 1}}",
        "            value.net: expected 150.5, came 100.0",
        "    sink out: 1 record came out, 2 expected",
        "      - {key: bo}",
        "      - {key: dan}",
        "      + {key: ann, value: {id: 1, customer: ann, amount: 100.0, at: null}}",
        "    bad records: 0, expected 1",
    ]
    assert lines[-2].startswith("passed  nothing  (")
    assert lines[-1] == "1 passed, 1 failed in 250 ms"


def test_colours_are_for_terminals() -> None:
    assert "\x1b[" not in outcome()[0]
    coloured, _ = outcome(terminal=True)
    assert "\x1b[31m      - {key: bo}" in coloured
    assert "\x1b[32m      + {key: ann" in coloured


def test_records_that_agree_are_left_out_far_from_those_that_do_not() -> None:
    lines = [Line(" ", {"n": n}) for n in range(10)]
    lines[5] = Line("-", {"n": 5})
    assert shorten(lines) == [2, *lines[2:9], 1]
    assert shorten([Line(" ", {})]) == [1]


def test_json_has_every_case_with_its_place() -> None:
    loaded, plan = load(CASES.replace("\\x01", ""))
    found = run_cases(loaded, plan, loaded.settings.tests, None, lambda result: None)
    first, second = json.loads(render_json(loaded, found.results))
    assert (first["place"], first["passed"], second["passed"]) == ("orders.yaml:17:5", False, True)
    assert [one["sink"] for one in first["failures"]] == ["totals", "out", ""]
    assert first["failures"][1]["difference"][0] == {"is": "missing", "record": {"key": "bo"}}
    assert second["failures"] == []


def test_cases_are_chosen_by_a_part_of_their_names() -> None:
    loaded, _ = load("  - {name: Big orders}\n  - {name: small orders}\n  - {name: none}\n")
    cases = loaded.settings.tests
    assert [case.name for case in choose_cases(cases, "ORDERS")] == ["Big orders", "small orders"]
    assert choose_cases(cases, "bigger") == []
    assert choose_cases(cases, None) == cases


def test_a_secret_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2hunter2", encoding="utf-8")
    pipeline = ORDERS.replace(
        '"127.0.0.1:9092"}',
        f'"127.0.0.1:9092", sasl.password: "${{file:{tmp_path}/secret}}", sasl.username: u, '
        "security.protocol: sasl_plaintext, sasl.mechanism: PLAIN}",
    )
    loaded, plan = load("  - {name: one, given: {lines: [{value: hunter2hunter2}]}, expect: {copy: []}}\n", pipeline)
    stream = io.StringIO()
    ResultPrinter(Console(file=stream), loaded).print_case(CaseRunner(loaded, plan).run(loaded.settings.tests[0]))
    assert "+ {key: null, value: " in stream.getvalue()
    assert "hunter2" not in stream.getvalue()
