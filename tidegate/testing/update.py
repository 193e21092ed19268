"""Writes output into the cases of a file. Only records that differ change; every other byte stays. Pure.

The text is edited at the positions of its YAML nodes. A record that agrees keeps its text, including comments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import yaml

from tidegate.config.cases import CaseSettings, ExpectedSet
from tidegate.testing.compare import Record, derive_expected, match_records
from tidegate.testing.flow_text import render_record

WIDTH_MAX: Final = 120


class Edit(msgspec.Struct, frozen=True, order=True):
    """Replaces the characters from `start` up to `end` by `text`."""

    start: int
    end: int
    text: str


class UpdateRefused(Exception):
    """The text of a case cannot be edited; the message gives the reason."""


def update_text(text: str, changes: Mapping[int, tuple[CaseSettings, Mapping[str, Sequence[Record]]]]) -> str:
    """Returns the text of a file with the output of cases, by their index. Raises UpdateRefused."""
    root = yaml.compose(text, Loader=yaml.CSafeLoader)
    cases = _entry(root, "tests")
    edits: list[Edit] = []
    for index, (case, output) in changes.items():
        if not isinstance(cases, yaml.SequenceNode) or not _is_inside(cases.value[index], cases):
            raise UpdateRefused(f"case {case.name!r} is written by an alias: write it out")
        edits += _Case(text, cases.value[index], case).edits(output)
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _entry(node: yaml.Node | None, name: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == name:
                found: yaml.Node = value
                return found
    return None


def _is_inside(node: yaml.Node, parent: yaml.Node) -> bool:
    """Returns whether a node is inside its parent. An alias is not, because its node has the position of its anchor."""
    inside: bool = parent.start_mark.index <= node.start_mark.index and node.end_mark.index <= parent.end_mark.index
    return inside


def _end_of(node: yaml.Node, text: str) -> int:
    """Returns the position after a node's last character.

    The marks of block collections include the comments and blank lines that follow, and those of block scalars the
    beginning of the next line.
    """
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end_of(last[1] if isinstance(last, tuple) else last, text)
    end: int = node.end_mark.index
    return len(text[:end].rstrip()) if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">") else end


class _Case:
    """The edits of one case."""

    def __init__(self, text: str, node: yaml.Node, case: CaseSettings) -> None:
        assert isinstance(node, yaml.MappingNode)
        self._text = text
        self._node = node
        self._case = case

    def edits(self, output: Mapping[str, Sequence[Record]]) -> list[Edit]:
        """Returns the edits. `output`: the actual records of all sinks whose expectations must change."""
        expect = _entry(self._node, "expect")
        if expect is None or not self._case.expect:
            return [self._add_all(expect, output)]
        edits: list[Edit] = []
        for sink, actual in output.items():
            node = _entry(expect, sink)
            expected = self._case.expect[sink]
            if isinstance(expected, ExpectedSet):
                node, records = _entry(node, "set"), expected.set_
            else:
                records = expected
            if not isinstance(node, yaml.SequenceNode) or not _is_inside(node, self._node):
                raise UpdateRefused(f"case {self._case.name!r}: what {sink} is to write is an alias: write it out")
            wanted = [derive_expected(one) for one in records]
            edits += self._edit_list(node, wanted, actual, ordered=not isinstance(expected, ExpectedSet))
        return edits

    def _add_all(self, expect: yaml.Node | None, output: Mapping[str, Sequence[Record]]) -> Edit:
        """Adds `expect` as a whole, as the last entry of the case or instead of an empty one."""
        flow = "{" + ", ".join(f"{sink}: [{', '.join(_texts(records))}]" for sink, records in output.items()) + "}"
        if expect is not None:
            if not _is_inside(expect, self._node):
                raise UpdateRefused(f"case {self._case.name!r}: `expect` is an alias: write it out")
            return Edit(expect.start_mark.index, expect.end_mark.index, flow)
        if self._node.flow_style:
            at = self._node.end_mark.index - 1
            comma = "" if self._text[:at].rstrip().endswith(",") else ", "
            return Edit(at, at, f"{comma}expect: {flow}")
        indent = " " * self._node.value[0][0].start_mark.column
        lines = [f"{indent}expect:"]
        for sink, records in output.items():
            lines.append(f"{indent}  {sink}:{'' if records else ' []'}")
            lines += [f"{indent}    - {text}" for text in _texts(records)]
        at = self._line_end(self._end_of(self._node))
        return Edit(at, at, "".join(f"{self._newline}{line}" for line in lines))

    def _edit_list(
        self, node: yaml.SequenceNode, wanted: Sequence[Record], actual: Sequence[Record], *, ordered: bool
    ) -> list[Edit]:
        fields = list(dict.fromkeys(name for one in wanted for name in one))
        if not all(_is_inside(item, node) for item in node.value):
            raise UpdateRefused(f"case {self._case.name!r}: a record is an alias: write it out")
        kept, actual = match_records(wanted, actual, ordered=ordered)
        if node.flow_style or not actual:
            own = {came: self._text[item.start_mark.index : item.end_mark.index] for item, came in _pairs(node, kept)}
            texts = [own.get(came) or _text_of(one, fields) for came, one in enumerate(actual)]
            return [Edit(node.start_mark.index, self._end_of(node), self._flow_list(node, texts))]
        return self._edit_block(node, kept, [_text_of(one, fields) for one in actual])

    def _flow_list(self, node: yaml.SequenceNode, texts: Sequence[str]) -> str:
        line = f"[{', '.join(texts)}]"
        if node.start_mark.column + len(line) <= WIDTH_MAX or len(texts) < 2:
            return line
        start = self._text.rfind("\n", 0, node.start_mark.index) + 1
        first = self._text[start : node.start_mark.index]
        indent = " " * (len(first) - len(first.lstrip(" -")) + 2)
        return "[" + ",".join(f"{self._newline}{indent}{text}" for text in texts) + "]"

    def _edit_block(self, node: yaml.SequenceNode, kept: Sequence[int | None], texts: Sequence[str]) -> list[Edit]:
        """Edits a block sequence. Between two records that stay, new records replace removed ones."""
        edits: list[Edit] = []
        indent = " " * node.start_mark.column
        came, going, at = 0, list[yaml.Node](), node.start_mark.index
        for item, partner in [*zip(node.value, kept, strict=True), (None, len(texts))]:
            if item is not None and partner is None:
                going.append(item)
                continue
            assert partner is not None
            new = list(texts[came:partner])
            for old in going:
                if new:
                    edits.append(Edit(old.start_mark.index, self._end_of(old), new.pop(0)))
                else:
                    edits.append(self._without_item(old))
            if new:
                before = [*going, *node.value[: node.value.index(item) if item is not None else len(node.value)]]
                edits.append(self._with_items(max(map(self._end_of, before), default=None), at, indent, new))
            came, going = partner + 1, []
        return edits

    def _with_items(self, after: int | None, first: int, indent: str, texts: Sequence[str]) -> Edit:
        if after is None:
            return Edit(first, first, "".join(f"- {text}{self._newline}{indent}" for text in texts))
        at = self._line_end(after)
        return Edit(at, at, "".join(f"{self._newline}{indent}- {text}" for text in texts))

    def _without_item(self, item: yaml.Node) -> Edit:
        """Removes the lines of an item, from its dash on."""
        dash = self._text.rfind("-", 0, item.start_mark.index)
        start = self._text.rfind("\n", 0, dash)
        return Edit(start, self._line_end(self._end_of(item)), "")

    def _end_of(self, node: yaml.Node) -> int:
        return _end_of(node, self._text)

    def _line_end(self, at: int) -> int:
        end = self._text.find("\n", at)
        end = len(self._text) if end < 0 else end
        return end - 1 if self._text[end - 1 : end] == "\r" and end > at else end

    @property
    def _newline(self) -> str:
        return "\r\n" if "\r\n" in self._text else "\n"


def _pairs(node: yaml.SequenceNode, kept: Sequence[int | None]) -> list[tuple[yaml.Node, int]]:
    return [(item, came) for item, came in zip(node.value, kept, strict=True) if came is not None]


def _texts(records: Sequence[Record]) -> list[str]:
    return [_text_of(one, ()) for one in records]


def _text_of(record: Record, fields: Sequence[str]) -> str:
    """Renders the fields that the case has named for this sink.

    Without any, renders key, value, headers, and a topic chosen per record.
    """
    wanted = {name.partition("_")[0] for name in fields} or {"key", "value", "headers", "topic"}
    chosen = {name: value for name, value in record.items() if name.partition("_")[0] in wanted}
    if not fields and chosen.get("key", "") is None:
        del chosen["key"]
    return render_record(chosen)
