"""Interpolation of `${VAR}`, `${VAR:default}`, `${file:/path}` and the literal `$${` within one scalar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

MAX_SECRET_BYTES = 1 << 16

_PIECE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_FILE = "file "
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_OF_SHELLS = re.compile(r"-(?![0-9.])|\?|[+=](?=[A-Za-z/])", re.ASCII)
"""The beginning of a shell-style default: `${NAME:-default}`. Does not match a negative number."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A replaced piece of a text, from `start` up to `end` in the result.

    `written` is the text in the file. `source` is the variable, or `file` and its path; empty for `$${`.
    """

    start: int
    end: int
    written: str
    source: str


@dataclass(frozen=True, slots=True)
class Interpolated:
    """The text after interpolation, and the replaced pieces in order; `secret` if a piece came from a file."""

    text: str
    secret: bool
    replaced: tuple[Replaced, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The variables and files."""
        return tuple(one.source for one in self.replaced if one.source)

    def derive_sources(self, start: int, end: int) -> tuple[str, ...]:
        """Returns the variables and files that a part of the result came from, each once."""
        return tuple(dict.fromkeys(one.source for one in self._within(start, end) if one.source))

    def derive_written(self, start: int, end: int) -> str:
        """Returns a part of the result as written in the file, including the whole of partly covered references."""
        parts, done = [], start
        for one in self._within(start, end):
            parts += [self.text[done : one.start], one.written]
            done = one.end
        return "".join([*parts, self.text[done:end]])

    def _within(self, start: int, end: int) -> Iterator[Replaced]:
        """Yields the replaced pieces within a part; an empty value counts if it is between characters of the part."""
        return (one for one in self.replaced if one.start < end and one.end > start)


class InterpolationFailed(Exception):
    """All problems of one scalar, as (message, remedy). Never leaves the package."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(message for message, _ in problems))
        self.problems = problems


def derive_interpolated(
    text: str, environ: Mapping[str, str], read_file: Callable[[str], str], *, signs: bool = False
) -> Interpolated:
    """Replaces every reference. Raises InterpolationFailed with each one that cannot be resolved.

    `read_file` returns the content of a secret file or raises OSError or UnicodeDecodeError. Replaced values are not
    interpolated again: a value that contains `${` stays as it is. `signs` means that a default may begin like an
    option.
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
    """Returns the source of one piece, and its replacement."""
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
    """Returns message and remedy for a malformed reference."""
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
    """Tells whether a text can be encoded: Python decodes other bytes of variables and arguments to lone surrogates."""
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
