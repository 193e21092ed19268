"""The verdict, its forms, and the page about it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec

from tests.daemon.small_pipeline import pipeline
from tidegate.checks.examine import judge_start, refuse_findings
from tidegate.checks.findings import CHECKS, Finding, Level, is_kept, render_checks_table
from tidegate.checks.outage import derive_unattended_ms
from tidegate.checks.render import render_findings
from tidegate.checks.start_problems import StartProblem, derive_exit_code
from tidegate.config.load import parse_pipeline

PAGE = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text("utf-8")
OK = Finding("brokers", Level.OK, "3", "three or more", path=("kafka",))
WEAK = Finding("copies", Level.WARNING, "2", "3", "reassign", ("sinks", "out", "topic"), "out")
WRONG = Finding(
    "retention", Level.PROBLEM, "1s", "more than 36m", "alter --topic out", ("sinks", "out", "topic"), "out"
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
    long = msgspec.structs.replace(WRONG, mend="kafka-configs.sh " + "--option value " * 20)
    lines = render_findings(pipeline(), [OK, long], "text").splitlines()
    assert lines[0].split(None, 2) == ["ok", "Brokers", "3"]
    assert lines[1].startswith("problem  Retention")
    assert lines[2].strip() == "should be: more than 36m"
    assert lines[3].strip() == f"fix: {long.mend}".strip()


def test_the_page_says_how_long_a_restart_without_a_person_takes_by_default() -> None:
    minutes = derive_unattended_ms(pipeline().settings) / 60_000
    assert f"{minutes:g} minutes by default" in PAGE


def test_json_has_every_finding_with_its_place() -> None:
    document = json.loads(render_findings(pipeline(), [OK, WRONG], "json"))
    assert (document["pipeline"], document["exactly_once"]) == ("check", False)
    assert [row["level"] for row in document["findings"]] == ["ok", "problem"]
    assert "passing" not in document["findings"][1]
    row = document["findings"][1]
    assert (row["path"], row["line"], row["check"], row["subject"]) == ("sinks.out.topic", 11, "retention", "out")
    assert row["remedy"] == WRONG.mend, "as `validate --format json` calls it"


def test_github_gets_problems_as_errors_at_their_lines() -> None:
    lines = render_findings(pipeline(), [OK, WEAK, WRONG], "github").splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::warning", "::error"]
    assert "line=11" in lines[1]
    assert "alter --topic out" in lines[1]


def test_secrets_are_not_shown_in_any_form() -> None:
    text = pipeline().source.replace("bootstrap.servers:", "sasl.password: opensesame\n  bootstrap.servers:")
    loaded = parse_pipeline(text, "p.yaml", {})
    telling = msgspec.structs.replace(WRONG, found="refused opensesame", mend="--password opensesame")
    for style in ("text", "json", "github"):
        assert "opensesame" not in render_findings(loaded, [telling], style)


def test_a_start_is_one_check_without_what_is_said_elsewhere() -> None:
    loaded = pipeline()
    error = StartProblem(loaded.problem(("name",), "it is taken", "choose another"), 4)
    warning = StartProblem(msgspec.structs.replace(loaded.problem((), "hm"), severity="warning"))
    examined = StartProblem(loaded.problem((), "seen to"), examined=True)
    assert [one.level for one in judge_start([error, warning, examined])] == [Level.PROBLEM, Level.WARNING]
    assert [one.level for one in judge_start([error], [Finding("disk-space", Level.PROBLEM, "it is taken")])] == [
        Level.OK
    ]


def test_a_strict_start_is_refused_for_problems_and_for_nothing_else() -> None:
    refused = refuse_findings(pipeline(), [OK, WEAK, WRONG])
    assert [str(one.problem) for one in refused] == [
        "p.yaml:11:30: sinks.out.topic: retention (out): 1s; should be: more than 36m; alter --topic out"
    ]
    assert derive_exit_code(refused) == 2


def test_a_strict_start_is_tried_again_where_all_that_refuses_it_may_pass() -> None:
    """A supervisor gives up after code 2."""
    full = Finding("disk-space", Level.PROBLEM, "90 MiB free", "1 GiB", passing=True)
    assert derive_exit_code(refuse_findings(pipeline(), [full])) == 1
    assert derive_exit_code(refuse_findings(pipeline(), [full, WRONG])) == 2


def test_the_table_of_the_page_is_the_list_of_checks() -> None:
    found = re.search(r"<!-- checks: [^\n]* -->\n(.*?)\n<!-- end of checks -->", PAGE, re.DOTALL)
    assert found is not None
    assert found[1] == render_checks_table(), "run `python -m tidegate.checks.findings` and paste its table"
    assert all(one.problem or one.warning for one in CHECKS.values())
