"""Shell completion: the script of each shell, and what the shell is answered."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from tests.waiting import PATIENCE_S
from tidegate.cli.main import COMMANDS, SHELLS, VARIABLE, tidegate


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_asks_the_program(shell: str) -> None:
    result = CliRunner().invoke(tidegate, ["completion", shell])
    assert result.exit_code == 0
    assert f"{VARIABLE}={shell}_complete" in result.output
    assert "tidegate" in result.output


def test_another_shell_is_refused_with_those_that_there_are() -> None:
    result = CliRunner().invoke(tidegate, ["completion", "tcsh"])
    assert result.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in result.output


def test_help_has_a_line_for_each_shell() -> None:
    lines = CliRunner().invoke(tidegate, ["completion", "--help"]).output.splitlines()
    assert [line.split(":")[0].strip() for line in lines if "tidegate completion " in line][-3:] == list(SHELLS)
    assert not any("\\" in line for line in lines)


def answers(words: str, *, check: str = "") -> list[str]:
    """What bash is offered for the last word."""
    program = f"import sys; from tidegate.cli.main import main\ntry:\n    main()\nfinally:\n    {check or 'pass'}"
    environ = {**os.environ, VARIABLE: "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return [line.partition(",")[2] for line in ran.stdout.splitlines()]


@pytest.mark.slow
def test_commands_are_offered_without_importing_any() -> None:
    check = "assert not {'pydantic', 'tidegate.cli.daemon_commands', 'tidegate.dev.topics.command'} & set(sys.modules)"
    assert answers("tidegate ", check=check) == list(COMMANDS)
    assert answers("tidegate che") == ["checkpoint", "checkpoints"]


@pytest.mark.slow
def test_parts_of_a_command_and_options_are_offered() -> None:
    assert answers("tidegate topic ") == ["create", "list", "produce", "read"]
    assert "--from-beginning" in answers("tidegate topic read --")
    assert "--help" in answers("tidegate --")
