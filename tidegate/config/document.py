"""Parses YAML text into a tree of nodes with positions; `values.py` turns nodes into values.

The tree is built from libyaml's events without recursion, so that neither depth nor aliases of a hostile file can do
harm.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

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
_FLOW_REMEDY = (
    'within braces or brackets put a value with a comma, a colon, quotes or a variable into quotes: "${NAME}"; write a '
    "number or a boolean from a variable outside of them"
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
        remedy = _FLOW_REMEDY if "flow" in what else _YAML_REMEDY
        raise DocumentBroken(TextProblem(place, f"not valid YAML: {what}", remedy)) from error
    except yaml.YAMLError as error:
        position = int(getattr(error, "position", 0) or 0)
        place = YamlPosition(text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position), position)
        reason = str(getattr(error, "reason", "") or "unreadable")
        raise DocumentBroken(TextProblem(place, f"not valid YAML: {reason}", "save the file as UTF-8 text")) from error
    return builder.root, builder.problems


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
        if self._flows[-1] and parent.entries and _is_without_colon(key, value):
            self._join(parent, key)
            return
        lines = self._lines[-1]
        if key.text in lines:
            message = f"the key `{key.text[:100]}` is given twice, first in line {lines[key.text]}"
            self._report(key, key.mark, message, "remove one of them")
        else:
            lines[key.text] = key.mark.line
            parent.entries.append((key, value))

    def _join(self, parent: MappingNode, rest: ScalarNode) -> None:
        """Reports a key without a value, and joins it with the value before it, which YAML has cut at a comma.

        YAML reads `{net: round(x, 2)}` as the value `round(x` and a key `2)`.
        """
        name, cut = parent.entries[-1]
        if isinstance(cut, ScalarNode):
            whole = ScalarNode(cut.mark, rest.end, f"{cut.text}, {rest.text}", cut.style, cut.tag)
            parent.entries[-1] = (name, whole)
        if not self.problems or self.problems[-1].mark != cut.mark:
            message = f"within braces a comma ends the value of `{name.text[:100]}`, and `{rest.text[:100]}` has none"
            self._report(name, cut.mark, message, "put the whole value into quotes, or add the missing one")

    def _report(self, key: ScalarNode, mark: YamlPosition, message: str, remedy: str) -> None:
        """Reports a problem; `key` belongs to the innermost mapping, which may be the root."""
        root, *below = self._stack
        top = root.entries[-1][0] if below and isinstance(root, MappingNode) else key
        self.problems.append(TextProblem(mark, message, remedy, top.text))


def _is_without_colon(key: ScalarNode, value: Node) -> bool:
    return isinstance(value, ScalarNode) and value.mark.index == value.end == key.end
