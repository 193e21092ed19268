"""Spark's patterns for dates and times (`yyyy-MM-dd HH:mm:ss`) -> a list of parts. Pure.

Only what means the same for every locale: numbers of fixed width, quoted text and signs. Letters for names, eras,
weeks and zones by name are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

WIDTHS = {
    "yyyy": 4,
    "MM": 2,
    "dd": 2,
    "HH": 2,
    "mm": 2,
    "ss": 2,
    "S": 1,
    "SS": 2,
    "SSS": 3,
    "SSSS": 4,
    "SSSSS": 5,
    "SSSSSS": 6,
}
_WORD = re.compile(r"([A-Za-z])\1*|'((?:[^']|'')*)'|([^A-Za-z'\[\]#{}]+)")


class PatternRefused(Exception):
    """A pattern with a part that is not supported; the text says which."""


@dataclass(frozen=True, slots=True)
class Part:
    """A field of digits (`field` is one of `WIDTHS`) or a text that stands for itself (`field` is empty)."""

    field: str
    text: str


def derive_date_pattern(pattern: str) -> tuple[Part, ...]:
    """The parts of a pattern.

    :raises PatternRefused: an unsupported letter, or a field that occurs twice.
    """
    parts: list[Part] = []
    at = 0
    while at < len(pattern):
        match = _WORD.match(pattern, at)
        if match is None:
            raise PatternRefused(f"`{pattern[at]}`")
        at = match.end()
        word = match[0]
        if match[1] is None:
            text = match[3] if match[3] is not None else (match[2].replace("''", "'") or "'")
            parts.append(Part("", text))
        elif word not in WIDTHS:
            raise PatternRefused(f"`{word}`; use yyyy MM dd HH mm ss, S to SSSSSS and quoted text")
        elif any(part.field[:1] == word[0] for part in parts):
            raise PatternRefused(f"`{word}` twice")
        else:
            parts.append(Part(word, word))
    return tuple(parts)
