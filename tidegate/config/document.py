"""Parses YAML text into a tree of nodes with positions; `values.py` turns nodes into values.

The tree is built from libyaml's events without recursion, so that neither depth nor aliases of a hostile file can do
harm.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import yaml

MAX_FILE_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_ALIASES = 200
MAX_NODES = 50_000


@dataclass(frozen=True, slots=True)
class YamlPosition:
    """A position in the text: line and column from 1, `index` in characters from 0.

    `file` is empty for the pipeline file.
    """

    line: int
    column: int
    index: int
    file: str = ""


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """A scalar as written. `style` is libyaml's: empty for plain, `'`, `"`, `|`, `>`."""

    mark: YamlPosition
    end: int
    text: str
    style: str
    tag: str | None


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """A list."""

    mark: YamlPosition
    items: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MappingNode:
    """A mapping in file order; its keys are scalars and unique."""

    mark: YamlPosition
    entries: list[tuple[ScalarNode, Node]] = field(default_factory=list)


_YAML_REMEDY = "check indentation (spaces, not tabs) and brackets, and quote values with `: `, `#` or a leading sign"
_QUOTE_VARIABLES = (
    'within braces or brackets put a variable in quotes: "${NAME}"; write a number or a boolean outside of them'
)

Node = ScalarNode | SequenceNode | MappingNode


@dataclass(frozen=True, slots=True)
class TextProblem:
    """A YAML problem in the text; `section` is the top-level key that contains it."""

    mark: YamlPosition
    message: str
    remedy: str
    section: str = ""


class DocumentBroken(Exception):
    """The text cannot be read any further; carries the problem. Never leaves the package."""

    def __init__(self, problem: TextProblem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def derive_tree(text: str, file: str = "") -> tuple[Node | None, list[TextProblem]]:
    """Returns the tree of the only document (None if there is none) and problems that do not prevent reading.

    `file` is for the positions. Raises DocumentBroken if the YAML cannot be read.
    """
    builder = _Builder(_Lines(text, file))
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = _Lines(text).place(mark) if mark else YamlPosition(1, 1, 0)
        what = ", ".join(part for part in (error.context, error.problem) if part)
        remedy = _flow_remedy(text, place) if "flow" in what else _YAML_REMEDY
        raise DocumentBroken(TextProblem(place, f"not valid YAML: {what}", remedy)) from error
    except yaml.YAMLError as error:
        position = int(getattr(error, "position", 0) or 0)
        place = YamlPosition(text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position), position)
        reason = str(getattr(error, "reason", "") or "unreadable")
        raise DocumentBroken(TextProblem(place, f"not valid YAML: {reason}", "save the file as UTF-8 text")) from error
    return builder.root, builder.problems


def _flow_remedy(text: str, place: YamlPosition) -> str:
    """Returns the remedy for what YAML could not read within braces or brackets."""
    line = "".join(text.split("\n")[place.line - 1 : place.line]).rstrip("\r")
    if "${" in line[: place.column]:  # YAML took the braces of `${NAME}` for its own and stopped after them
        return _QUOTE_VARIABLES
    value = find_cut_value(line, place.column)
    return _YAML_REMEDY if value is None else f"within braces or brackets put the value into quotes: {quote(value)}"


class _Lines:
    """Positions as editors count them; libyaml also starts lines after U+0085, U+2028 and U+2029."""

    def __init__(self, text: str, file: str = "") -> None:
        self._file = file
        self._starts = [0, *(found.end() for found in re.finditer("[\r\n]", text))]

    def place(self, mark: Any) -> YamlPosition:
        """Returns the position of a libyaml mark."""
        line = bisect.bisect_right(self._starts, mark.index)
        return YamlPosition(line, mark.index - self._starts[line - 1] + 1, mark.index, self._file)


class _Builder:
    """Builds the tree from events."""

    def __init__(self, lines: _Lines) -> None:
        self._places = lines
        self.root: Node | None = None
        self.problems: list[TextProblem] = []
        self._stack: list[SequenceNode | MappingNode] = []
        self._keys: list[ScalarNode | None] = []  # per open mapping: the key that waits for its value
        self._names: list[str | None] = []  # per open collection: its anchor
        self._lines: list[dict[str, int]] = []  # per open collection: the line of each key
        self._flows: list[bool] = []  # per open collection: whether it is written in braces
        self._anchors: dict[str, Node] = {}
        self._documents = 0
        self._aliases = 0
        self._nodes = 0

    def _mark(self, event: yaml.Event) -> YamlPosition:
        return self._places.place(event.start_mark)  # libyaml always sets it; the stubs allow None

    def take(self, event: yaml.Event) -> None:
        """Processes one libyaml event."""
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self._stop(event, "a second YAML document", "one file is one pipeline: remove `---`")
            case yaml.ScalarEvent():
                end: Any = event.end_mark
                node = ScalarNode(self._mark(event), end.index, event.value, event.style or "", event.tag)
                self._attach(node, event)
                self._anchor(event.anchor, node)
            case yaml.AliasEvent():
                self._attach(self._resolve(event), event)
            case yaml.SequenceStartEvent():
                self._open(SequenceNode(self._mark(event)), event)
            case yaml.MappingStartEvent():
                self._open(MappingNode(self._mark(event)), event)
            case yaml.CollectionEndEvent():
                self._keys.pop()
                self._lines.pop()
                self._flows.pop()
                self._anchor(self._names.pop(), self._stack.pop())

    def _stop(self, event: yaml.Event, message: str, remedy: str) -> NoReturn:
        raise DocumentBroken(TextProblem(self._mark(event), message, remedy))

    def _anchor(self, name: str | None, node: Node) -> None:
        # An anchor is defined only when its node is complete, so no node can contain itself.
        if name is not None:
            self._anchors[name] = node

    def _resolve(self, event: yaml.AliasEvent) -> Node:
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            self._stop(event, f"more than {MAX_ALIASES} aliases", "write the values out")
        if event.anchor not in self._anchors:
            self._stop(event, f"the alias `*{event.anchor}` has no anchor before it", f"define `&{event.anchor}` first")
        return self._anchors[event.anchor]

    def _open(self, node: SequenceNode | MappingNode, event: yaml.CollectionStartEvent) -> None:
        self._attach(node, event)
        self._stack.append(node)
        self._keys.append(None)
        self._lines.append({})
        self._flows.append(bool(event.flow_style))
        self._names.append(event.anchor)
        if len(self._stack) > MAX_DEPTH:
            self._stop(event, f"nested deeper than {MAX_DEPTH} levels", "no setting is that deep")
        if event.tag not in (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            self._stop(event, f"the tag `{event.tag}` is not supported", "remove it")

    def _attach(self, node: Node, event: yaml.Event) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self._stop(event, f"more than {MAX_NODES} values", "split the pipeline")
        if not self._stack:
            self.root = node
            return
        parent = self._stack[-1]
        if isinstance(parent, SequenceNode):
            parent.items.append(node)
        elif self._keys[-1] is None:
            self._keys[-1] = self._key(node, event)
        else:
            key, self._keys[-1] = self._keys[-1], None
            self._enter(parent, key, node)

    def _key(self, node: Node, event: yaml.Event) -> ScalarNode:
        if not isinstance(node, ScalarNode):
            self._stop(event, "a key must be plain text", "quote it if it begins with `[`, `{` or `*`")
        return node

    def _enter(self, parent: MappingNode, key: ScalarNode, value: Node) -> None:
        if self._flows[-1] and _is_bare(key) and _is_absent(value) and self._join(parent, key):
            return
        lines = self._lines[-1]
        if key.text in lines:
            message = f"the key `{key.text[:100]}` is given twice, first in line {lines[key.text]}"
            self._report(key, key.mark, message, "remove one of them")
        else:
            lines[key.text] = key.mark.line
            parent.entries.append((key, value))

    def _join(self, parent: MappingNode, rest: ScalarNode) -> bool:
        """Rejoins what follows a comma with the value that was cut there; False if the value before it is whole."""
        if not parent.entries:
            return False
        name, cut = parent.entries[-1]
        if not isinstance(cut, ScalarNode) or not _is_bare(cut) or not is_cut(cut.text):
            return False
        whole = ScalarNode(cut.mark, rest.end, f"{cut.text}, {rest.text}", cut.style, cut.tag)
        parent.entries[-1] = (name, whole)
        if not is_cut(whole.text):
            message = f"`{name.text[:100]}` is cut at a comma: within braces it ends a value without quotes"
            self._report(name, cut.mark, message, f"put the value into quotes: {quote(whole.text)}")
        return True

    def _report(self, key: ScalarNode, mark: YamlPosition, message: str, remedy: str) -> None:
        """Reports a problem; `key` belongs to the innermost mapping, which may be the root."""
        root, *below = self._stack
        top = root.entries[-1][0] if below and isinstance(root, MappingNode) else key
        self.problems.append(TextProblem(mark, message, remedy, top.text))


def _is_bare(node: ScalarNode) -> bool:
    return not node.style and node.tag is None


def _is_absent(node: Node) -> bool:
    """Tells whether this is the value of a key without `:`."""
    return isinstance(node, ScalarNode) and _is_bare(node) and not node.text and node.end == node.mark.index


# YAML cuts unquoted values inside braces: at a comma, at `: `, or after a quoted word. It reads `{net: round(x, 2)}` as
# the value `round(x` and a key `2)`, and cannot read `{where: a in ('x', 'y')}`. Open brackets reveal where a value was
# cut.

_QUOTED_TEXT: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_NESTED_TYPE: Final = re.compile(r"\b(?:array|struct|map) *<", re.IGNORECASE)
_VALUE_BEGINNING: Final = re.compile(r": +|\[")
"""The text that precedes a value within braces or brackets."""
_SHOWN_MAX: Final = 100
"""Maximum length of a value in a message."""


def is_cut(text: str) -> bool:
    """Tells whether a bracket is open at the end of a plain value: a parenthesis, or the `<` of a type."""
    return _bracket_depth(text) > 0


def _bracket_depth(text: str) -> int:
    bare = _QUOTED_TEXT.sub("", text)
    depth = bare.count("(") - bare.count(")")
    return depth + bare.count("<") - bare.count(">") if _NESTED_TYPE.search(bare) else depth


def quote(text: str) -> str:
    """Quotes a value as necessary, and shortens a long one."""
    if len(text) > _SHOWN_MAX:
        text = text[:_SHOWN_MAX] + "..."
    return f'"{text}"' if '"' not in text and "\\" not in text else "'" + text.replace("'", "''") + "'"


def find_cut_value(line: str, column: int) -> str | None:
    """Returns the whole value that YAML has cut before this column (from 1) of a line; None for another mistake."""
    before = line[: column - 1]
    for beginning in reversed(list(_VALUE_BEGINNING.finditer(before))):
        start = beginning.end()
        if is_cut(before[start:]):
            return _whole_value(line[start:])
    return None


def _whole_value(text: str) -> str | None:
    """Returns the text up to the end of the value in which brackets are closed; None if they stay open in this line."""
    for end in range(1, len(text) + 1):
        if text[end - 1] in ")>" and is_cut(text[: end - 1]) and not is_cut(text[:end]):
            rest = re.match(r"[^,}\]#]*", text[end:])
            return (text[:end] + (rest[0] if rest else "")).rstrip()
    return None
