"""Values without quotes that YAML cuts in two inside braces: at a comma, at `: `, after a quoted word. Pure.

`{net: round(x, 2)}` is to YAML the value `round(x` and a key `2)`, and `{where: a in ('x', 'y')}` is no YAML at all.
Brackets that are still open show where the value was cut.
"""

from __future__ import annotations

import re
from typing import Final

_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
_TYPE: Final = re.compile(r"\b(?:array|struct|map) *<", re.IGNORECASE)
_BEGINNING: Final = re.compile(r": +|\[")
"""What stands before a value within braces, or within brackets."""
_LENGTH_MAX: Final = 100
"""Of a value in a message."""


def is_cut(text: str) -> bool:
    """Whether a bracket is still open at the end of a plain value: a parenthesis, or the `<` of a type."""
    return _depth(text) > 0


def _depth(text: str) -> int:
    bare = _QUOTED.sub("", text)
    depth = bare.count("(") - bare.count(")")
    return depth + bare.count("<") - bare.count(">") if _TYPE.search(bare) else depth


def quote(text: str) -> str:
    """A value in the quotes that it needs; a long one shortened."""
    if len(text) > _LENGTH_MAX:
        text = text[:_LENGTH_MAX] + "..."
    return f'"{text}"' if '"' not in text and "\\" not in text else "'" + text.replace("'", "''") + "'"


def find_cut_value(line: str, column: int) -> str | None:
    """The whole value that YAML has cut before this column (from 1) of a line; None for another mistake."""
    before = line[: column - 1]
    for beginning in reversed(list(_BEGINNING.finditer(before))):
        start = beginning.end()
        if is_cut(before[start:]):
            return _whole(line[start:])
    return None


def _whole(text: str) -> str | None:
    """Up to the end of what the closing bracket ends; None when no bracket closes it in this line."""
    for end in range(1, len(text) + 1):
        if text[end - 1] in ")>" and is_cut(text[: end - 1]) and not is_cut(text[:end]):
            rest = re.match(r"[^,}\]#]*", text[end:])
            return (text[:end] + (rest[0] if rest else "")).rstrip()
    return None
