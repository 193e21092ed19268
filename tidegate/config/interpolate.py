"""`${VAR}`, `${VAR:default}`, `${file:/path}` and the literal `$${` inside one scalar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

MAX_SECRET_BYTES = 1 << 16

_PIECE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_FILE = "file "
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_OF_SHELLS = re.compile(r"-(?![0-9.])|\?|[+=](?=[A-Za-z/])", re.ASCII)
"""How a default begins that was meant for a shell: `${NAME:-default}`. A negative number is none."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A piece of a text that was replaced: from `start` up to `end` in the result.

    `written` is what the file has there. `source` is the variable, or `file` and its path; empty for `$${`.
    """

    start: int
    end: int
    written: str
    source: str


@dataclass(frozen=True, slots=True)
class Interpolated:
    """The text after interpolation, and what was replaced, in order; `secret` when a part came from a file."""

    text: str
    secret: bool
    replaced: tuple[Replaced, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The variables and files."""
        return tuple(one.source for one in self.replaced if one.source)

    def derive_sources(self, start: int, end: int) -> tuple[str, ...]:
        """The variables and files that a part of the result has come from, each once."""
        return tuple(dict.fromkeys(one.source for one in self._within(start, end) if one.source))

    def derive_written(self, start: int, end: int) -> str:
        """A part of the result as the file has it: what only partly belongs to the part is whole."""
        parts, done = [], start
        for one in self._within(start, end):
            parts += [self.text[done : one.start], one.written]
            done = one.end
        return "".join([*parts, self.text[done:end]])

    def _within(self, start: int, end: int) -> Iterator[Replaced]:
        """An empty value counts where it stands between characters of the part."""
        return (one for one in self.replaced if one.start < end and one.end > start)


class InterpolationFailed(Exception):
    """All that is wrong with one scalar, as (message, remedy). Never leaves the config room."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(message for message, _ in problems))
        self.problems = problems


def derive_interpolated(
    text: str, environ: Mapping[str, str], read_file: Callable[[str], str], *, signs: bool = False
) -> Interpolated:
    """Replace every reference. Raises InterpolationFailed with each one that cannot be resolved.

    `read_file` gives the content of a secret file or raises OSError or UnicodeDecodeError. What a reference yields is
    not looked at again: a value that contains `${` stays as it is. `signs`: a default may begin as options do.
    """
    problems: list[tuple[str, str]] = []
    parts: list[str] = []
    replaced: list[Replaced] = []
    done = length = 0
    for match in _PIECE.finditer(text):
        literal = text[done : match.start()]
        source, value = _resolve(match, environ, read_file, problems, signs=signs)
        parts += [literal, value]
        start = length + len(literal)
        done, length = match.end(), start + len(value)
        replaced.append(Replaced(start, length, match[0], source))
    if problems:
        raise InterpolationFailed(problems)
    secret = any(one.source.startswith(_FILE) for one in replaced)
    return Interpolated("".join([*parts, text[done:]]), secret, tuple(replaced))


def _resolve(
    match: re.Match[str],
    environ: Mapping[str, str],
    read_file: Callable[[str], str],
    problems: list[tuple[str, str]],
    *,
    signs: bool,
) -> tuple[str, str]:
    """The source of one piece, and what takes its place."""
    if match[0] == "$${":
        return "", "${"
    if not match[2]:
        problems.append(("`${` is not closed", "add `}`, or write `$${` for a literal `${`"))
        return "", ""
    name, colon, rest = match[1].partition(":")
    if name == "file" and colon:
        return f"{_FILE}{rest}", _read(rest, read_file, problems)
    problem = _find_problem(match, name, rest, signs=signs)
    if problem is not None:
        problems.append(problem)
    elif name in environ:
        if is_utf8(environ[name]):
            return name, environ[name]
        problems.append((f"the value of the variable `{name}` is not UTF-8 text", "set it to one that is"))
    elif not colon:
        remedy = f"set it, give a default as in ${{{name}:...}}, or write `$${{{name}}}` for a literal `${{{name}}}`"
        problems.append((f"the variable `{name}` is not set", remedy))
    return name, rest


def _find_problem(match: re.Match[str], name: str, rest: str, *, signs: bool) -> tuple[str, str] | None:
    """What is wrong with the form of a reference."""
    shown = match[0][:60]
    if not _VARIABLE.fullmatch(name):
        remedy = f"use ${{NAME}}, ${{NAME:default}} or ${{file:/path}}, or write `${shown}` for a literal `{shown}`"
        if name.isdecimal() and not rest:
            remedy = f"write `${name}` for a group of a regular expression, or `${shown}` for a literal `{shown}`"
        return f"`{shown}` names no variable", remedy
    if "${" in rest:
        return f"a variable within `{shown}`: they cannot be nested", "write one default"
    if _OF_SHELLS.match(rest) and not signs:
        meant = f":{rest[1:60]}" if rest[0] in "-=" else ""
        message = f"`{shown}`: the default follows the colon, so it would be `{rest[:60]}`"
        return message, f"write ${{{name}{meant}}}"
    return None


def is_utf8(text: str) -> bool:
    """Python keeps other bytes of variables and arguments as half characters, which nothing can encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read(path: str, read_file: Callable[[str], str], problems: list[tuple[str, str]]) -> str:
    if not path.strip():
        problems.append(("`${file:}` names no file", "for instance ${file:/run/secrets/password}"))
        return ""
    try:
        text = read_file(path)
    except OSError as error:
        reason = error.strerror or str(error)
        whole = "write its whole path: it is looked for in the working directory"
        remedy = "check the path and the permissions" if path.startswith("/") else whole
        problems.append((f"the file `{path}` cannot be read: {reason}", remedy))
        return ""
    except ValueError as error:
        problems.append((f"the file `{path}` cannot be used: {error}", "a secret is one short text in UTF-8"))
        return ""
    return text.removesuffix("\n").removesuffix("\r")
