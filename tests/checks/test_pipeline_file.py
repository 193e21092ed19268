"""`validate`, `explain` and `run` try every expression in a process of its own, before anything starts (X14)."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tidegate.checks import pipeline_file
from tidegate.checks.pipeline_file import CheckKilled, ExpressionCheck, check_file, plan_file, probe
from tidegate.cli.main import run_command
from tidegate.config.errors import ConfigErrors
from tidegate.config.load import read_pipeline
from tidegate.user_code.probe import ProbeRequest

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests try in their own process."""
    monkeypatch.setattr(pipeline_file, "ExpressionCheck", ExpressionCheck)


FILE = """\
version: 1
name: orders
kafka: {bootstrap.servers: 127.0.0.1:1}
checkpoints: {directory: file:///tmp/never-made}
sources:
  orders: {topic: orders, schema: {id: bigint, customer: string, amount: double}}
steps:
  - name: wrong
    from: orders
    where: amount > 1 / 0
  - name: huge
    from: wrong
    select:
      id: id
      found: customer rlike '([ä-ÿЀ-ӿ一-龥😀-🙏]{1,100}){1,900}'
  - {name: unknown, from: orders, where: customr = 'ann'}
sinks:
  out: {from: huge, topic: out}
  rest: {from: unknown, topic: rest}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


def test_X14_what_cannot_run_is_refused_with_its_place_next_to_all_other_problems(file: Path) -> None:
    _, (division, regex, column) = check_file(file, {})
    assert (division.line, division.column, division.path) == (10, 12, "steps.wrong.where")
    assert division.message.startswith("fails for every record: DIVIDE_BY_ZERO: division by zero in")
    assert (regex.line, regex.column, regex.path) == (15, 14, "steps.huge.select.found")
    assert "exceeds size limit" in regex.message
    assert (column.line, column.path) == (16, "steps.unknown.where")
    with pytest.raises(ConfigErrors) as refused:
        plan_file(file, {})
    assert refused.value.problems == (division, regex, column)


def test_a_file_that_can_run_gives_its_plan(file: Path) -> None:
    good = FILE.replace("1 / 0", "1 / 2").replace("{1,900}", "{1,9}").replace("customr", "customer")
    file.write_text(good, encoding="utf-8")
    assert check_file(file, {})[1] == ()
    _, plan = plan_file(file, {})
    assert plan.pipeline == "orders"


@pytest.mark.parametrize("text", ["a: [", "{}"])
def test_a_file_that_cannot_be_read_is_told_as_before(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    assert check_file(file, {})[1]


def test_X14_an_expression_that_ends_the_process_is_a_problem(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_file, "EXPRESSION_PROBE", "no.such.module")
    _, found = check_file(file, {})
    assert any("the process that tests expressions ended with code 1" in problem.message for problem in found)


def test_a_killed_process_says_nothing_about_the_expressions(file: Path) -> None:
    loaded = read_pipeline(file, {})
    with ExpressionCheck() as expressions:
        os.kill(expressions._child.pid, signal.SIGKILL)
        with pytest.raises(CheckKilled, match="process that tests expressions was killed") as killed:
            expressions.check(loaded)
    assert killed.value.exit_code == 1


def test_a_killed_process_says_nothing_about_user_code() -> None:
    module = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    with pytest.raises(CheckKilled, match="process that imports user code was killed"):
        probe(ProbeRequest({"killed": module}, ("killed:step",), ()))


def test_X14_every_command_refuses_before_it_starts_anything(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tidegate.daemon.http.server.HttpServer.start", lambda _: pytest.fail("something was started"))
    for command in ("validate", "explain", "run"):
        with contextlib.suppress(SystemExit):
            assert run_command([command, str(file)]) == 2
        out, err = capsys.readouterr()
        assert "steps.wrong.where: fails for every record: DIVIDE_BY_ZERO" in out + err
        assert "exceeds size limit" in out + err
