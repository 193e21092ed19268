"""`${VAR}`, `${VAR:default}`, `${file:/path}` and the literal `$${` inside one scalar."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

MAX_SECRET_BYTES = 1 << 16

_PIECE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_OF_SHELLS = re.compile(r"-(?![0-9.])|\?|[+=](?=[A-Za-z/])", re.ASCII)
"""How a default begins that was meant for a shell: `${NAME:-default}`. A negative number is none."""


@dataclass(frozen=True, slots=True)
class Interpolated:
    """The text after interpolation; `secret` when a part came from a file; `sources` are the variables and files."""

    text: str
    secret: bool
    sources: tuple[str, ...]


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
    sources: list[str] = []
    secret = False

    def replacement(match: re.Match[str]) -> str:
        nonlocal secret
        if match[0] == "$${":
            return "${"
        if not match[2]:
            problems.append(("`${` is not closed", "add `}`, or write `$${` for a literal `${`"))
            return ""
        name, colon, rest = match[1].partition(":")
        if name == "file" and colon:
            secret = True
            sources.append(f"file {rest}")
            return _read(rest, read_file, problems)
        if not _VARIABLE.fullmatch(name):
            problems.append((f"`{match[0][:60]}` names no variable", "use ${NAME}, ${NAME:default} or ${file:/path}"))
            return ""
        if "${" in rest:
            problems.append((f"a variable within `{match[0][:60]}`: they cannot be nested", "write one default"))
            return ""
        if _OF_SHELLS.match(rest) and not signs:
            message = f"`{match[0][:60]}`: the default follows the colon, so it would be `{rest[:60]}`"
            meant = f":{rest[1:60]}" if rest[0] in "-=" else ""
            problems.append((message, f"write ${{{name}{meant}}}"))
            return ""
        sources.append(name)
        if name in environ:
            if not is_utf8(environ[name]):
                problems.append((f"the value of the variable `{name}` is not UTF-8 text", "set it to one that is"))
                return ""
            return environ[name]
        if not colon:
            problems.append((f"the variable `{name}` is not set", f"set it, or give a default: ${{{name}:...}}"))
        return rest

    result = _PIECE.sub(replacement, text)
    if problems:
        raise InterpolationFailed(problems)
    return Interpolated(result, secret, tuple(sources))


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
