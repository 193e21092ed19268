"""A parser for Spark's date and time patterns (`yyyy-MM-dd HH:mm:ss`). Pure.

Supported are numbers, quoted text, signs, English names of months and days, and zone offsets. Eras, weeks, quarters and
zone names are rejected.
"""

from __future__ import annotations

import itertools
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
    "yy": 2,
    "hh": 2,
}
"""Numbers with a fixed number of digits. When text is read, a fraction can have fewer."""
VARIABLE = ("M", "d", "H", "h", "m", "s")
"""Numbers with a variable number of digits."""
NAMES = ("MMM", "MMMM", "E", "EE", "EEE", "EEEE", "a")
ZONES = ("X", "XX", 3 * "X", "x", "xx", "xxx", "Z")
_KNOWN = {*WIDTHS, *VARIABLE, *NAMES, *ZONES}
_WORD = re.compile(r"([A-Za-z])\1*|'((?:[^']|'')*)'|([^A-Za-z'\[\]#{}]+)")


class PatternRefused(Exception):
    """A pattern with an unsupported part, which the text names."""


@dataclass(frozen=True, slots=True)
class Part:
    """A field (`field` contains its letters) or literal text (`field` is empty)."""

    field: str
    text: str


def derive_date_pattern(pattern: str) -> tuple[Part, ...]:
    """Returns the parts of a pattern.

    Raises PatternRefused for an unsupported letter, or a field that occurs twice.
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
        elif word not in _KNOWN:
            raise PatternRefused(f"`{word}`; use yyyy MM dd HH mm ss, S to SSSSSS, MMM, EEE, a, X, Z and quoted text")
        elif any(part.field[:1] == word[0] or {part.field, word} <= set(ZONES) for part in parts):
            raise PatternRefused(f"`{word}` twice")
        else:
            parts.append(Part(word, word))
    return tuple(parts)


def check_parsing(parts: tuple[Part, ...]) -> None:
    """Checks that a pattern reads text unambiguously.

    Raises PatternRefused for names of days (which Spark also rejects), for adjacent numbers where the first, or one
    that is not a fraction, has no fixed width, and for 12-hour values without AM/PM.
    """
    letters = {part.field[:1] for part in parts}
    if "E" in letters:
        raise PatternRefused("the name of a day, which says nothing besides the date; skip it by substring")
    if ("h" in letters) != ("a" in letters) or {"h", "H"} <= letters:
        raise PatternRefused("`h` without `a`, or `a` without `h`; use both or `HH`")
    numbers = {*WIDTHS, *VARIABLE}
    for part, following in itertools.pairwise(parts):
        if {part.field, following.field} <= numbers and {part.field, following.field} & set(VARIABLE):
            raise PatternRefused(
                f"`{part.field}` beside `{following.field}`; write {part.field * 2}{following.field * 2}"
            )
        if part.field.startswith("SS") and following.field in numbers:
            raise PatternRefused(f"`{following.field}` after a fraction; write a character between them")
