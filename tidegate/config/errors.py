"""What is wrong with a pipeline file, as values: one `Problem` each, all of a run in one `ConfigErrors`.

A problem is found where its place is not known yet: a `TextProblem` (`document.py`) at a mark of the text, a
`PathProblem` at a path of the settings. Loading makes `Problem`s of both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from tidegate.config.fields.base import Path
from tidegate.errors import TidegateError

Severity = Literal["error", "warning", "notice"]


class Problem(msgspec.Struct, frozen=True, order=True):
    """One thing that is wrong, with its place. `line` and `column` start at 1; `path` is dotted, steps by name
    (`steps.big.where`).
    """

    file: str
    line: int
    column: int
    path: str
    message: str
    remedy: str = ""
    severity: Severity = "error"

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: "
        kind = "" if self.severity == "error" else f"{self.severity}: "
        path = f"{self.path}: " if self.path else ""
        return in_one_line(f"{place}{kind}{path}{join_remedy(self.message, self.remedy)}")


def join_remedy(message: str, remedy: str) -> str:
    """`problem; remedy`, or a sentence after others where the message ends with a full stop."""
    if not remedy:
        return message
    sentence = message.endswith(".") and not message.endswith("...")
    return f"{message}{' ' if sentence else '; '}{remedy}"


def in_one_line(text: str) -> str:
    """With escapes in place of what ends a line, is an order to a terminal, or cannot be seen."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


class PathProblem(msgspec.Struct, frozen=True):
    """Something wrong at a path. `at_key`: the place is the key's, not the value's; `column` (from 1): within it;
    `missing`: the key that should be there.
    """

    path: Path
    message: str
    remedy: str
    at_key: bool = False
    column: int = 0
    missing: str = ""

    @property
    def section(self) -> str:
        """The key at the top of the file that it is about; empty: the file as a whole."""
        return str(self.path[0]) if self.path else self.missing


class ConfigErrors(TidegateError):
    """A pipeline file that cannot be run: every problem found in one go, in the order of the file."""

    code = "config"
    exit_code = 2

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(map(str, self.problems)), problems=len(self.problems))


def render_problems(problems: Sequence[Problem], style: str) -> str:
    """Problems as `text` (one line each), `json` (a list of objects) or `github` (workflow commands)."""
    if style == "json":
        return json.dumps([msgspec.to_builtins(problem) for problem in problems], indent=2, ensure_ascii=False)
    if style == "github":
        return "\n".join(map(_github_command, problems))
    return "\n".join(map(str, problems))


def _github_command(problem: Problem) -> str:
    def escaped(text: str, more: str = "") -> str:
        for character in "%\r\n" + more:
            text = text.replace(character, f"%{ord(character):02X}")
        return text

    text = f"{problem.path}: {join_remedy(problem.message, problem.remedy)}"
    place = f"file={escaped(problem.file, ':,')},line={problem.line},col={problem.column}"
    return f"::{problem.severity} {place}::{escaped(text)}"
