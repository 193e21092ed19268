"""A parser for format strings of `format_string` like `java.util.Formatter`: `%5d`, `%-10s`, `%,.2f`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

WIDTH_MAX = 1_000
_SPECIFIER = re.compile(r"%(?:([1-9][0-9]{0,2})\$)?([-#+ 0,(]*)([1-9][0-9]{0,4})?(?:\.([0-9]{1,5}))?([A-Za-z%])")
_FLAGS = {"d": "-+ 0,(", "x": "-0", "X": "-0", "o": "-0", "e": "-+ 0(", "f": "-+ 0,(", "s": "-", "S": "-", "b": "-"}
KINDS = {
    **dict.fromkeys("dxXo", ("tinyint", "smallint", "int", "bigint")),
    **dict.fromkeys("ef", ("float", "double")),
    **dict.fromkeys("sS", ("string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double")),
    "b": ("boolean",),
}
"""The types that a conversion takes."""


class FormatRefused(Exception):
    """A format with an unsupported part, which the text names."""


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

    Raises FormatRefused for a conversion or flag that is not supported.
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
            raise FormatRefused(f"`{text[place : place + 8]}`")
        at = found.end()
        if found[5] in "%n":
            if found[0] not in ("%%", "%n"):
                raise FormatRefused(f"`{found[0]}`")
            pieces.append(Piece("%" if found[5] == "%" else "\n"))
            continue
        pieces.append(_piece(found, ordinary))
        ordinary += found[1] is None
    return tuple(pieces)


def _piece(found: re.Match[str], ordinary: int) -> Piece:
    conversion, flags, width = found[5], found[2], int(found[3] or 0)
    wrong = conversion not in _FLAGS or set(flags) - set(_FLAGS[conversion]) or len(set(flags)) < len(flags)
    both = {"-", "0"} <= set(flags) or {"+", " "} <= set(flags) or ({"-", "0"} & set(flags) and not width)
    if wrong or both or (found[4] is not None and conversion in "dxXo") or width > WIDTH_MAX:
        raise FormatRefused(f"`{found[0]}`")
    precision = int(found[4]) if found[4] is not None else None
    if precision is not None and precision > 100:
        raise FormatRefused(f"`{found[0]}`, more than 100 digits")
    argument = int(found[1]) - 1 if found[1] else ordinary
    return Piece("", conversion, argument, flags, width, precision)
