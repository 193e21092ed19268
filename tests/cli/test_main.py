"""The command line as a user meets it: output, exit codes, no traceback, a quick start."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

from tests.waiting import PATIENCE_S
from tidegate import __version__
from tidegate.__main__ import main as started
from tidegate.cli import main as cli
from tidegate.cli.main import COMMANDS, LazyCommand, main, run_command
from tidegate.config.draft import SAMPLE
from tidegate.errors import PipelineStopped


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.yaml"
    path.write_text(SAMPLE)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.yaml"
    path.write_text(SAMPLE.replace("amount >= 100", "amont >= 100"))
    return path


def tidegate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from tidegate.cli.main import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def children_cpu_s() -> float:
    """Processor time of the children that have ended: it does not grow while others have the machine."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.slow
def test_help_is_quick_and_imports_no_engine() -> None:
    seconds = []
    for _ in range(3):
        begin = children_cpu_s()
        assert "validate" in tidegate("--help").stdout
        seconds.append(children_cpu_s() - begin)
    assert min(seconds) < 0.4
    code = "import sys, tidegate.cli.main; print(sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    ).stdout
    assert not any(f"'{name}'" in loaded for name in ("polars", "pyspark", "kafka", "confluent_kafka", "pydantic"))


def every_command(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    """All commands and those within them, by what a user types."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join([*path, name]), command
        if isinstance(command, click.Group):
            yield from every_command(command, *path, name)


@pytest.mark.slow
def test_no_help_shows_marks_of_its_layout() -> None:
    shown = {name: command.get_help(click.Context(command)) for name, command in every_command(cli.tidegate)}
    assert len(shown) > 30
    assert [name for name, text in shown.items() if "\\" in text] == []
    lines = [line.split()[0] for line in shown["completion"].splitlines() if "tidegate completion" in line]
    assert lines == ["bash:", "zsh:", "fish:"]


@pytest.mark.slow
def test_looking_at_a_file_imports_no_engine(good: Path) -> None:
    code = (
        "import sys; from tidegate.cli.main import run_command; "
        f"assert run_command(['validate', {str(good)!r}]) == 0; print(sorted(sys.modules))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    ).stdout
    assert not any(f"'{name}'" in loaded for name in ("polars", "pyspark", "kafka", "confluent_kafka"))


@pytest.mark.slow
def test_python_without_assertions_is_refused() -> None:
    """Every command that asks a broker ended with `no broker answers`."""
    command = [sys.executable, "-O", "-m", "tidegate", "topic", "list"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (ended.returncode, "unset PYTHONOPTIMIZE" in ended.stderr) == (2, True), ended.stderr


def test_validate_says_valid(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["validate", str(good)]) == 0
    assert capsys.readouterr().out == f"{good}: valid\n"


@pytest.mark.slow
def test_validate_tells_place_and_remedy_and_ends_with_2(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["validate", str(bad)]) == 2
    out, err = capsys.readouterr()
    assert out.startswith(f"{bad}:")
    assert "steps.big.where: there is no column `amont`; did you mean `amount`?" in out
    assert err == f"{bad}: 1 error\n"


@pytest.mark.slow
def test_validate_for_machines(bad: Path, good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["validate", "--format", "json", str(bad)]) == 2
    (problem,) = json.loads(capsys.readouterr().out)
    assert (problem["path"], problem["severity"]) == ("steps.big.where", "error")
    assert run_command(["validate", "--format", "json", str(good)]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run_command(["validate", "--format", "github", str(bad)]) == 2
    assert capsys.readouterr().out.startswith("::error file=")


def test_a_file_without_permission_to_read_it_is_a_problem_of_the_file(
    good: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also for machines: the command line's own check would end it with a usage in words."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    monkeypatch.setattr(Path, "open", refuse)
    assert run_command(["validate", "--format", "json", str(good)]) == 2
    (problem,) = json.loads(capsys.readouterr().out)
    assert problem["message"] == "cannot be read: Permission denied"


def test_an_interrupt_while_the_command_is_loaded_ends_it_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, _name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "tidegate.cli.main", Interrupted("tidegate.cli.main"))
    with pytest.raises(SystemExit) as ended:
        started()
    assert ended.value.code == 130


def test_a_missing_file_is_told_without_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("validate", "explain"):
        assert run_command([command, str(tmp_path / "none.yaml")]) == 2
        out, err = capsys.readouterr()
        assert "cannot be read: No such file or directory; check the path" in out + err


@pytest.mark.parametrize("command", [["state", "list"], ["savepoint", "list"], ["savepoint", "delete"], ["init"]])
def test_a_path_that_cannot_be_looked_at_is_told_without_a_traceback(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """As root sees no path that is not permitted, it is one that is too long."""
    assert run_command([*command, "x" * 5000]) in (1, 2)
    assert "File name too long" in capsys.readouterr().err


@pytest.mark.slow
def test_explain_as_text_and_json(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["explain", str(good)]) == 0
    assert "aggregate per_customer" in capsys.readouterr().out
    assert run_command(["explain", "--format", "json", str(good)]) == 0
    assert json.loads(capsys.readouterr().out)["pipeline"] == "orders-per-customer"


def test_explain_of_a_broken_file_tells_its_problems(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["explain", str(bad)]) == 2
    assert "did you mean `amount`?" in capsys.readouterr().err


def test_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Tidegate pipeline"


@pytest.mark.slow
def test_init_writes_a_valid_sample_and_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new.yaml"
    assert run_command(["init", str(path)]) == 0
    assert run_command(["validate", str(path)]) == 0
    assert run_command(["init", str(path)]) == 1
    assert "new.yaml exists; choose another name" in capsys.readouterr().err
    assert run_command(["init"]) == 0
    assert capsys.readouterr().out == SAMPLE


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["savepoint", "FILE", "--http", "http://host:abc"], "http://host:abc is not the address of a daemon"),
        (["savepoint", "FILE", "--http", "http://host:70000"], "http://host:70000 is not the address of a daemon"),
        (["stop", "FILE", "--http", "http://[::1"], "http://[::1 is not the address of a daemon"),
        (["stop", "FILE", "--http", "http://a..b:9095"], "http://a..b:9095 is not the address of a daemon"),
        (["stop", "FILE", "--http", "http://a b:9095"], "http://a b:9095 is not the address of a daemon"),
        (["topic", "list", "--bootstrap", "a..b:9092"], "`a..b` is not a host"),
        (["topic", "list", "--bootstrap", ""], "`` is not a broker address; write host:port"),
        (["topic", "create", "a b"], "`a b` is not a topic name; Kafka takes 1 to 249 letters, digits"),
        (
            ["topic", "create", "orders:4"],
            "`orders:4` is not a topic name; write the number of partitions as --partitions",
        ),
        (["savepoint", "delete", ""], "the address is empty"),
        (["upgrade", "--from", "", "FILE"], "the address is empty"),
        (["dead-letters", "replay", "FILE", "--to", "a b"], "--to: `a b` is not a topic name"),
        (["dead-letters", "replay", "FILE", "--to", ""], "--to: expected a topic, got ``"),
        (["stop", "FILE", "--http", "host:9095"], "write http://host:port"),
        (["savepoint", "FILE", ""], "DIRECTORY is empty"),
        (["run", "FILE", "--restore", ""], "--restore is empty"),
        (["run", "FILE", "--restore", " "], "--restore is empty"),
        (["run", "FILE", "--repeat-output"], "--repeat-output needs --restore"),
        (["run", "FILE", "--accept-gone"], "Option '--accept-gone' requires an argument"),
        (["run", "FILE", "--accept-gone", "0"], "0 is not in the range x>=1"),
    ],
)
def test_orders_that_cannot_be_meant_are_refused_before_anything_starts(
    good: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run_command([str(good) if word == "FILE" else word for word in arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nope"], ["validate"], ["validate", "--format", "xml", "f"], ["--nope"]])
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(arguments) == 2
    assert "Usage: tidegate" in capsys.readouterr().err


def test_an_error_ends_with_its_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def stop() -> None:
        raise PipelineStopped("the reason; the remedy")

    monkeypatch.setattr(cli, "COMMANDS", {**COMMANDS, "stop": LazyCommand(__name__, "_command", "")})
    monkeypatch.setattr(sys.modules[__name__], "_command", stop, raising=False)
    with pytest.raises(SystemExit) as caught:
        main(["stop"])
    assert caught.value.code == 4
    assert capsys.readouterr().err == "tidegate: pipeline-stopped: the reason; the remedy\n"


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(good: Path) -> None:
    code = "from tidegate.cli.main import main; main()"
    command = f"{sys.executable} -c '{code}' explain {good} | head -c 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert "Traceback" not in done.stderr
    assert done.stdout in ("p0\n", "p141\n")


def test_a_command_of_a_distribution_that_is_not_installed_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tidegate.simulation", None)
    monkeypatch.delitem(sys.modules, "tidegate.simulation.command", raising=False)
    assert run_command(["simulate"]) == 2
    assert f"pip install 'tidegate[simulation]=={__version__}'" in capsys.readouterr().err


def test_a_command_whose_own_module_lacks_something_does_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "COMMANDS", {"simulate": LazyCommand("tests.cli.lacking", "simulate", "", "simulation")})
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        run_command(["simulate"])
