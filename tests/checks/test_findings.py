"""The verdict, its forms, and the page about it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from tests.daemon.small_pipeline import pipeline
from tidegate.checks.facts import derive_unattended_ms
from tidegate.checks.findings import (
    CHECKS,
    NAMES_MAX,
    Finding,
    Severity,
    StartRefused,
    derive_exit_code,
    derive_problems,
    find_preventing,
    is_kept,
    prevent_start,
    render_checks_table,
)
from tidegate.cli.doctor import render_findings
from tidegate.config.load import LoadedPipeline, parse_pipeline

PAGE = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text("utf-8")
OK = Finding("brokers", Severity.OK, "3", "three or more", place=("kafka",))
WEAK = Finding("copies", Severity.WARNING, "2", "3", "reassign", ("sinks", "out", "topic"), "out")
WRONG = Finding(
    "retention", Severity.PROBLEM, "1s", "more than 36m", "alter --topic out", ("sinks", "out", "topic"), "out"
)


def test_the_verdict_is_yes_unless_there_is_a_problem() -> None:
    assert is_kept([OK, WEAK])
    assert not is_kept([OK, WEAK, WRONG])
    loaded = pipeline()
    assert render_findings(loaded, [OK, WEAK], "text").endswith("\nexactly once: yes (1 warning)")
    told = render_findings(loaded, [OK, WRONG, WEAK], "text").splitlines()
    assert told[-2:] == ["exactly once: no: 1 problem, 1 warning", "  retention (out): 1s"]


def test_the_verdict_is_about_the_promise_of_the_file() -> None:
    text = pipeline().source.replace("directory:", "mode: at-least-once\n  directory:")
    loaded = parse_pipeline(text, "p.yaml", {})
    assert render_findings(loaded, [OK], "text").endswith("\nat least once: yes (0 warnings)")
    assert "\nat least once: no: 1 problem" in render_findings(loaded, [WRONG], "text")
    document = json.loads(render_findings(loaded, [OK], "json"))
    assert (document["guarantee"], document["kept"], document["exactly_once"]) == ("at-least-once", True, False)


def test_the_table_has_what_is_what_should_be_and_the_command_unbroken() -> None:
    long = msgspec.structs.replace(WRONG, remedy="kafka-configs.sh " + "--option value " * 20)
    lines = render_findings(pipeline(), [OK, long], "text").splitlines()
    assert lines[0].split(None, 2) == ["ok", "Brokers", "3"]
    assert lines[1].startswith("problem  Retention")
    assert lines[2].strip() == "should be: more than 36m"
    assert lines[3].strip() == f"fix: {long.remedy}".strip()


def test_the_page_says_how_long_a_restart_without_a_person_takes_by_default() -> None:
    minutes = derive_unattended_ms(pipeline().settings) / 60_000
    assert f"{minutes:g} minutes by default" in PAGE


def test_json_has_every_finding_with_its_place() -> None:
    document = json.loads(render_findings(pipeline(), [OK, WRONG], "json"))
    assert (document["pipeline"], document["exactly_once"]) == ("check", False)
    assert [row["severity"] for row in document["findings"]] == ["ok", "problem"]
    row = document["findings"][1]
    assert (row["path"], row["line"], row["check"], row["subject"]) == ("sinks.out.topic", 11, "retention", "out")
    assert row["remedy"] == WRONG.remedy, "as `validate --format json` calls it"


def test_secrets_are_not_shown_in_any_form() -> None:
    text = pipeline().source.replace("bootstrap.servers:", "sasl.password: opensesame\n  bootstrap.servers:")
    loaded = parse_pipeline(text, "p.yaml", {})
    telling = msgspec.structs.replace(WRONG, value="refused opensesame", remedy="--password opensesame")
    for style in ("text", "json"):
        assert "opensesame" not in render_findings(loaded, [telling], style)


def test_a_finding_about_a_start_is_shown_with_its_place() -> None:
    loaded = pipeline()
    found = prevent_start(("sources", "orders", "topic"), "the topic `in` does not exist", "create it")
    lines = render_findings(loaded, [found], "text").splitlines()
    assert lines[0].split(None, 2) == ["problem", "Start", "sources.orders.topic: the topic `in` does not exist"]
    (row,) = json.loads(render_findings(loaded, [found], "json"))["findings"]
    assert (row["path"], row["line"], row["prevents_start"]) == ("sources.orders.topic", 9, True)


def test_what_is_unknown_is_counted_and_no_problem() -> None:
    hidden = Finding("clock", Severity.UNKNOWN, "not seen", "at most 5 s apart", place=("kafka",))
    assert is_kept([hidden])
    assert render_findings(pipeline(), [OK, hidden], "text").endswith("\nexactly once: yes (0 warnings, 1 unknown)")
    assert derive_problems(pipeline(), [hidden]) == []


def strict() -> LoadedPipeline:
    return parse_pipeline(f"{pipeline().source}strict: true\n", "p.yaml", {})


def test_only_what_prevents_a_start_is_an_error_of_validate() -> None:
    refused = prevent_start(("name",), "it is taken", "choose another", 4)
    problems = derive_problems(pipeline(), [OK, WEAK, WRONG, refused])
    assert [(one.severity, one.path) for one in problems] == [
        ("error", "name"),
        ("warning", "sinks.out.topic"),
        ("warning", "sinks.out.topic"),
    ]
    assert derive_exit_code(find_preventing([OK, WEAK, WRONG, refused], strict=False)) == 4


def test_a_strict_start_is_refused_for_problems_and_for_nothing_else() -> None:
    refused = StartRefused(strict(), [OK, WEAK, WRONG])
    assert refused.message == ("p.yaml:11:30: sinks.out.topic: `out`: 1s; should be: more than 36m; alter --topic out")
    assert refused.exit_code == 2


def test_a_strict_start_is_tried_again_where_all_that_refuses_it_may_pass() -> None:
    """A supervisor gives up after code 2."""
    full = Finding("disk-space", Severity.PROBLEM, "90 MiB free", "1 GiB", exit_code=1)
    assert StartRefused(strict(), [full]).exit_code == 1
    assert StartRefused(strict(), [full, WRONG]).exit_code == 2


def test_X21_warnings_that_differ_in_their_topics_only_are_one_line_that_does_not_name_them_all() -> None:
    many = [msgspec.structs.replace(WEAK, subject=f"t{number}") for number in range(NAMES_MAX + 2)]
    (problem,) = derive_problems(pipeline(), many)
    assert problem.message.count("`") == 2 * NAMES_MAX
    assert problem.message.endswith("`t4` and 2 more: 2; should be: 3")
    assert problem.remedy == "reassign (and likewise for the others)"
    assert len(derive_problems(strict(), [msgspec.structs.replace(one, severity=WRONG.severity) for one in many])) == 7


@pytest.mark.parametrize(("codes", "code"), [([], 0), ([1], 1), ([1, 4], 4), ([1, 4, 2], 2), ([5, 1], 5), ([3], 3)])
def test_what_refuses_a_start_is_ranked_by_what_a_person_has_to_fix(codes: list[int], code: int) -> None:
    assert derive_exit_code([prevent_start((), "wrong", exit_code=one) for one in codes]) == code


def test_the_table_of_the_page_is_the_list_of_checks() -> None:
    found = re.search(r"<!-- checks: [^\n]* -->\n(.*?)\n<!-- end of checks -->", PAGE, re.DOTALL)
    assert found is not None
    assert found[1] == render_checks_table(), "run `python -m tidegate.checks.findings` and paste its table"
    assert all(one.problem or one.warning for one in CHECKS.values())
