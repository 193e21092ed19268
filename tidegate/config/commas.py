"""Unquoted values that YAML cuts inside braces: at a comma, at `: `, or after a quoted word. Pure.

YAML reads `{net: round(x, 2)}` as the value `round(x` and a key `2)`, and cannot read `{where: a in ('x', 'y')}`. Open
brackets reveal where a value was cut.
"""

from __future__ import annotations

import re
from typing import Final

_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_TYPE: Final = re.compile(r"\b(?:array|struct|map) *<", re.IGNORECASE)
_BEGINNING: Final = re.compile(r": +|\[")
"""The text that precedes a value within braces or brackets."""
_LENGTH_MAX: Final = 100
"""Maximum length of a value in a message."""


def is_cut(text: str) -> bool:
    """Tells whether a bracket is open at the end of a plain value: a parenthesis, or the `<` of a type."""
    return _depth(text) > 0


def _depth(text: str) -> int:
    bare = _QUOTED.sub("", text)
    depth = bare.count("(") - bare.count(")")
    return depth + bare.count("<") - bare.count(">") if _TYPE.search(bare) else depth


def quote(text: str) -> str:
    """Quotes a value as necessary, and shortens a long one."""
    if len(text) > _LENGTH_MAX:
        text = text[:_LENGTH_MAX] + "..."
    return f'"{text}"' if '"' not in text and "\\" not in text else "'" + text.replace("'", "''") + "'"


def find_cut_value(line: str, column: int) -> str | None:
    """Returns the whole value that YAML has cut before this column (from 1) of a line; None for another mistake."""
    before = line[: column - 1]
    for beginning in reversed(list(_BEGINNING.finditer(before))):
        start = beginning.end()
        if is_cut(before[start:]):
            return _whole(line[start:])
    return None


def _whole(text: str) -> str | None:
    """Returns the text up to the end of the value in which brackets are closed; None if they stay open in this line."""
    for end in range(1, len(text) + 1):
        if text[end - 1] in ")>" and is_cut(text[: end - 1]) and not is_cut(text[:end]):
            rest = re.match(r"[^,}\]#]*", text[end:])
            return (text[:end] + (rest[0] if rest else "")).rstrip()
    return None
