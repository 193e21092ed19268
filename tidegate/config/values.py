"""Converts nodes to plain values by the YAML 1.2 core rules, with the position of every value and key.

`no` is a word, `010` is ten, `12:30:45` is a word. Each scalar is interpolated here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from pydantic import SecretStr

from tidegate.config.document import (
    MAX_DEPTH,
    MAX_NODES,
    DocumentBroken,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    TextProblem,
    YamlPosition,
)
from tidegate.config.fields.base import Path

Value = bool | int | float | str | SecretStr | list["Value"] | dict[str, "Value"] | None

_NULL = frozenset(["", "~", "null", "Null", "NULL"])
_BOOLEAN = {
    word: value for value in (True, False) for name in [str(value)] for word in (name, name.lower(), name.upper())
}
_INTEGER = re.compile(r"[-+]?[0-9]{1,40}", re.ASCII)
_OCTAL = re.compile(r"0o[0-7]{1,40}", re.ASCII)
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]{1,40}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_SPECIAL_FLOAT = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(nan|NaN|NAN)", re.ASCII)
_TEXT_TAGS = frozenset(["!", "tag:yaml.org,2002:str"])
_OPTIONS: Path = ("spark",)
"""The section where a default may be options of a JVM."""


class WrittenFloat(float):
    """A number with a fraction as written: in an expression `1.10` has two decimals, and `1e2` is not a decimal."""

    __slots__ = ("_written",)
    _written: str

    def __new__(cls, text: str) -> Self:
        """Creates the number from a text that `derive_scalar` reads as a float."""
        self = super().__new__(cls, _as_float(text))
        self._written = text
        return self

    def __str__(self) -> str:
        return self._written


class WrittenInt(int):
    """A whole number that is not written as plain digits: the password `0042` is not `42`."""

    _written: str

    def __new__(cls, number: int, text: str) -> Self:
        """`number` is what `derive_scalar` reads from the text."""
        self = super().__new__(cls, number)
        self._written = text
        return self

    def __str__(self) -> str:
        return self._written


@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """The origin of a value: position, key position (None in lists and at the root), node and interpolation."""

    value: YamlPosition
    key: YamlPosition | None
    node: Node
    interpolated: Interpolated | None = None
    """None if nothing was replaced."""


@dataclass(slots=True)
class ValueReader:
    """Converts a tree to values, filling `places`, `problems` and `unresolved`."""

    environ: Mapping[str, str]
    read_file: Callable[[str], str]
    places: dict[Path, ValueOrigin] = field(default_factory=dict)
    problems: list[tuple[Path, TextProblem]] = field(default_factory=list)
    unresolved: set[Path] = field(default_factory=set)
    """Scalars whose interpolation failed, and mappings with merge keys; their value is None."""

    def read(self, node: Node, path: Path = (), key: YamlPosition | None = None) -> Value:
        """Returns the value of a node and everything below it."""
        if len(path) > MAX_DEPTH:
            message = f"nested deeper than {MAX_DEPTH} levels"
            raise DocumentBroken(TextProblem(node.mark, message, "write fewer aliases: no setting is that deep"))
        if len(self.places) > MAX_NODES:
            raise DocumentBroken(TextProblem(node.mark, f"more than {MAX_NODES} values", "write fewer aliases"))
        self.places[path] = ValueOrigin(node.mark, key, node)
        match node:
            case MappingNode():
                entries = self._entries(node, path)
                return None if path in self.unresolved else entries
            case SequenceNode():
                return [self.read(item, (*path, index)) for index, item in enumerate(node.items)]
        return self._scalar(node, path, key)

    def read_mapping(self, node: MappingNode) -> dict[str, Value]:
        """Returns the values of the root."""
        self.places[()] = ValueOrigin(node.mark, None, node)
        return self._entries(node, ())

    def _entries(self, node: MappingNode, path: Path) -> dict[str, Value]:
        entries: dict[str, Value] = {}
        for name, value in node.entries:
            if name.text == "<<" and not name.style and name.tag is None:
                remedy = "write out the settings: an alias (`*a`) can only replace a whole value"
                self.problems.append(((*path, "<<"), TextProblem(name.mark, "YAML 1.2 has no merge keys", remedy)))
                self.unresolved.add(path)
            else:
                entries[name.text] = self.read(value, (*path, name.text), name.mark)
        return entries

    def _scalar(self, node: ScalarNode, path: Path, key: YamlPosition | None) -> Value:
        if node.tag is not None and node.tag not in _TEXT_TAGS:
            self.problems.append((path, TextProblem(node.mark, f"the tag `{node.tag}` is not supported", "remove it")))
            self.unresolved.add(path)
            return None
        try:
            result = derive_interpolated(node.text, self.environ, self.read_file, signs=path[:1] == _OPTIONS)
        except InterpolationFailed as error:
            self.unresolved.add(path)
            for message, remedy in error.problems:
                self.problems.append((path, TextProblem(node.mark, message, remedy)))
            return None
        if result.replaced:
            self.places[path] = ValueOrigin(node.mark, key, node, result)
        if result.secret:
            return SecretStr(result.text)
        if node.style or node.tag is not None:
            return result.text
        return _as_written(derive_scalar(result.text), result.text)


def _as_written(value: Value, text: str) -> Value:
    if isinstance(value, float):
        return WrittenFloat(text)
    if isinstance(value, int) and not isinstance(value, bool) and str(value) != text:
        return WrittenInt(value, text)
    return value


def derive_scalar(text: str) -> bool | int | float | str | None:
    """Returns the value of a plain scalar in YAML 1.2's core schema."""
    if text in _NULL:
        return None
    if text in _BOOLEAN:
        return _BOOLEAN[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text, 0)
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 0)
    if (_FLOAT.fullmatch(text) and len(text) <= 100) or _SPECIAL_FLOAT.fullmatch(text):
        return _as_float(text)
    return text


def _as_float(text: str) -> float:
    special = _SPECIAL_FLOAT.fullmatch(text)
    if special is None:
        return float(text)
    return float("nan") if special[3] else float(f"{special[1]}inf")


def derive_place_inside(source: str, place: ValueOrigin, value: str, line: int, column: int) -> tuple[int, int]:
    """Returns line and column in the file of a position (from 1) inside a scalar's value.

    Folding and indentation change only white space, so the n-th visible character of the value is the n-th of the
    scalar's text. Where that does not hold (interpolated scalars), the scalar's own position is returned.
    """
    node = place.node
    own = (place.value.line, place.value.column)
    if not isinstance(node, ScalarNode) or node.text != value:
        return own
    lines = value.split("\n")
    if not 1 <= line <= len(lines):
        return own
    before = sum(len(text) + 1 for text in lines[: line - 1]) + column - 1
    visible = sum(not character.isspace() for character in value[:before])
    begin = _content_start(source, node)
    characters = _visible_characters(source, begin, node.end, node.style)
    if not characters or visible > len(characters):
        return own
    index = characters[visible] if visible < len(characters) else characters[-1] + 1
    return source.count("\n", 0, index) + 1, index - source.rfind("\n", 0, index)


def _content_start(source: str, node: ScalarNode) -> int:
    """Returns the index of the first character after anchor, tag and opening quote or block header."""
    begin = node.mark.index
    while source[begin : begin + 1] in ("&", "!"):
        begin += len(re.match(r"\S+\s*", source[begin : node.end])[0])  # type: ignore[index]  # & or ! always matches
    if node.style in ("|", ">"):
        return source.find("\n", begin) + 1
    return begin + 1 if node.style else begin


def _visible_characters(source: str, begin: int, end: int, style: str) -> list[int]:
    """Returns the indices of the characters that each represent one visible character of the value."""
    found: list[int] = []
    index = begin
    while index < end:
        step = 1
        if style == '"' and source[index] == "\\":
            step = 2 + {"x": 2, "u": 4, "U": 8}.get(source[index + 1 : index + 2], 0)
            if source[index + 1 : index + 2] in "ntr \n_\t":
                index += step
                continue
        elif style == "'" and source.startswith("''", index):
            step = 2
        elif source[index].isspace():
            index += 1
            continue
        found.append(index)
        index += step
    return found


# -- `${VAR}`, `${VAR:default}`, `${file:/path}` and the literal `$${` within one scalar -------------------------------

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
