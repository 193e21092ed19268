"""Parsers for the small languages in string literals: date patterns (`yyyy-MM-dd HH:mm:ss`), formats of `format_string`
(`%-10s`, `%,.2f`) as in `java.util.Formatter`, and paths of `get_json_object` (`$.order.lines[0]`). Pure.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

WIDTHS = {"yyyy": 4, **dict.fromkeys(("yy", "MM", "dd", "HH", "hh", "mm", "ss"), 2)}
WIDTHS |= {"S" * digits: digits for digits in range(1, 7)}
"""Numbers with a fixed number of digits. When text is read, a fraction can have fewer."""
VARIABLE = ("M", "d", "H", "h", "m", "s")
"""Numbers with a variable number of digits."""
NAMES = ("MMM", "MMMM", "E", "EE", "EEE", "EEEE", "a")
ZONES = ("X", "XX", 3 * "X", "x", "xx", "xxx", "Z")
_KNOWN = {*WIDTHS, *VARIABLE, *NAMES, *ZONES}
_WORD = re.compile(r"([A-Za-z])\1*|'((?:[^']|'')*)'|([^A-Za-z'\[\]#{}]+)")


class PatternRefused(Exception):
    """A pattern, format or path with an unsupported part, which the text names."""


@dataclass(frozen=True, slots=True)
class Part:
    """A field (`field` contains its letters) or literal text (`field` is empty)."""

    field: str
    text: str


def derive_date_pattern(pattern: str) -> tuple[Part, ...]:
    """Returns the parts of a pattern: numbers, quoted text, signs, English names of months and days, zone offsets.

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
        raise PatternRefused("the name of a day, which the date implies; cut it off with substring")
    if ("h" in letters) != ("a" in letters) or {"h", "H"} <= letters:
        raise PatternRefused("`h` without `a`, or `a` without `h`; use both or `HH`")
    numbers = {*WIDTHS, *VARIABLE}
    for part, following in itertools.pairwise(parts):
        if {part.field, following.field} <= numbers and {part.field, following.field} & set(VARIABLE):
            raise PatternRefused(
                f"`{part.field}` next to `{following.field}`; write {part.field * 2}{following.field * 2}"
            )
        if part.field.startswith("SS") and following.field in numbers:
            raise PatternRefused(f"`{following.field}` after a fraction; write a character between them")


WIDTH_MAX = 1_000
_SPECIFIER = re.compile(r"%(?:([1-9][0-9]{0,2})\$)?([-#+ 0,(]*)([1-9][0-9]{0,4})?(?:\.([0-9]{1,5}))?([A-Za-z%])")
_FLAGS = {"d": "-0,", "f": "-0,", "s": "-"}
_INTEGERS, _DOUBLES = ("tinyint", "smallint", "int", "bigint"), ("float", "double")
KINDS = {"d": _INTEGERS, "f": _DOUBLES, "s": ("string", "boolean", *_INTEGERS, *_DOUBLES)}
"""The types that a conversion takes."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Literal text (`conversion` is empty), or a value. `argument` counts from 0."""

    text: str = ""
    conversion: str = ""
    argument: int = 0
    flags: str = ""
    width: int = 0
    precision: int | None = None


def derive_format(text: str) -> tuple[Piece, ...]:
    """Returns the pieces of a format.

    Raises PatternRefused for a conversion or flag that is not supported.
    """
    pieces: list[Piece] = []
    at = ordinary = 0
    while at < len(text):
        place = text.find("%", at)
        if place < 0:
            pieces.append(Piece(text[at:]))
            break
        if place > at:
            pieces.append(Piece(text[at:place]))
        found = _SPECIFIER.match(text, place)
        if found is None:
            raise PatternRefused(f"`{text[place : place + 8]}`")
        at = found.end()
        if found[5] in "%n":
            if found[0] not in ("%%", "%n"):
                raise PatternRefused(f"`{found[0]}`")
            pieces.append(Piece("%" if found[5] == "%" else "\n"))
            continue
        pieces.append(_piece(found, ordinary))
        ordinary += found[1] is None
    return tuple(pieces)


def _piece(found: re.Match[str], ordinary: int) -> Piece:
    conversion, flags, width = found[5], found[2], int(found[3] or 0)
    wrong = conversion not in _FLAGS or set(flags) - set(_FLAGS[conversion]) or len(set(flags)) < len(flags)
    both = {"-", "0"} <= set(flags) or ({"-", "0"} & set(flags) and not width)
    if wrong or both or (found[4] is not None and conversion == "d") or width > WIDTH_MAX:
        raise PatternRefused(f"`{found[0]}`")
    precision = int(found[4]) if found[4] is not None else None
    if precision is not None and precision > 100:
        raise PatternRefused(f"`{found[0]}`, more than 100 digits")
    argument = int(found[1]) - 1 if found[1] else ordinary
    return Piece("", conversion, argument, flags, width, precision)


_STEP = re.compile(r"\.([^.\[]+)|\['([^'?]+)'\]|\[([0-9]{1,9})\]")
Path = tuple[str | int, ...]
"""Names of members, and array indices from 0."""


def derive_path(text: str) -> Path:
    """Returns the steps of a path.

    Raises PatternRefused if the text is not a path, or contains a wildcard.
    """
    if not text.startswith("$"):
        raise PatternRefused("does not begin with `$`")
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        if re.match(r"\.\*|\[\*\]|\['\*'\]", text[at:]):
            raise PatternRefused("has a wildcard")
        found = _STEP.match(text, at)
        name = (found[1] or found[2] or "x") if found else ""
        if found is None or name != name.strip() or name == "*":
            raise PatternRefused(f"has `{text[at:]}` where `.name`, `['name']` or `[0]` is expected")
        steps.append(int(found[3]) if found[3] else name)
        at = found.end()
    return tuple(steps)
