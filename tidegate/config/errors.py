"""Problems of a pipeline file as values: a `Problem` each, and all of a run in one `ConfigErrors`.

Where the position is not known yet, a problem is a `TextProblem` (`document.py`) at a mark of the text, or a
`PathProblem` at a path of the settings. Loading converts both to `Problem`.
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
    """A problem with its position.

    `line` and `column` start at 1; `path` is dotted, with steps by name (`steps.big.where`).
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
    """Joins them as `problem; remedy`, or as two sentences if the message ends with a full stop."""
    if not remedy:
        return message
    sentence = message.endswith(".") and not message.endswith("...")
    return f"{message}{' ' if sentence else '; '}{remedy}"


def in_one_line(text: str) -> str:
    """Escapes line ends, terminal control sequences and invisible characters."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


class PathProblem(msgspec.Struct, frozen=True):
    """A problem at a path. `at_key` means the key's position, not the value's.

    `column` (from 1) is within that; `missing` is the key that should exist.
    """

    path: Path
    message: str
    remedy: str
    at_key: bool = False
    column: int = 0
    missing: str = ""

    @property
    def section(self) -> str:
        """The top-level key that it concerns; empty for the file as a whole."""
        return str(self.path[0]) if self.path else self.missing


class ConfigErrors(TidegateError):
    """A pipeline file that cannot be run: all problems, in the order of the file."""

    code = "config"
    exit_code = 2

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(map(str, self.problems)), problems=len(self.problems))

    def _render_traceback_(self) -> list[str]:
        """Returns what a notebook shows instead of a traceback (IPython)."""
        return [f"{type(self).__name__}:", *map(str, self.problems)]


def render_problems(problems: Sequence[Problem], style: str) -> str:
    """Renders problems as `text` (one line each), `json` (a list of objects) or `github` (workflow commands)."""
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
