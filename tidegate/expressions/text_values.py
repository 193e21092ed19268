"""The grammar of Spark in ANSI mode for text as a number, a boolean, a date or a timestamp.

It is defined once: literals are converted here, and the casts of columns use the same patterns (Python's and Rust's
`re` agree on them). `BLANKS` are trimmed at both ends of a text; for a double or decimal, `JAVA_BLANKS` are.
"""

from __future__ import annotations

import datetime
import math
import re
import struct
from decimal import Decimal
from fractions import Fraction
from typing import Final

from tidegate.datatypes import FIRST_MOMENT, LAST_MOMENT

JAVA_BLANKS: Final = "".join(map(chr, range(33)))
BLANKS: Final = JAVA_BLANKS + "\x7f"
INTEGER: Final = r"^[+-]?[0-9]+$"
DOUBLE: Final = r"^[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?$"
DECIMAL: Final = r"[+-]?(?:\d+(?:\.(?P<f>\d*))?|\.(?P<p>\d+))(?:[eE](?P<e>[+-]?\d{1,10}))?"
"""Digits of any alphabet, as in Java. Each number matches in only one way: if there were two, Python's `re` would take
quadratic time for a long text that is not a number."""
INFINITE: Final = r"^[+-]?inf(inity)?$"
"""In lower case, like `nan`."""
SIGNED_NAN: Final = ("+NaN", "-NaN")
"""Only in exactly this spelling."""
TRUE: Final = ("t", "true", "y", "yes", "1")
FALSE: Final = ("f", "false", "n", "no", "0")
"""The text in lower case."""

_FLOAT_MAX: Final = float(2**128 - 2**104)
_FLOAT_MAX_BITS: Final = 0x7F7FFFFF
_FLOAT_LIMIT: Final = Fraction(2**128 - 2**103)
"""Numbers from here on are nearer to infinity than to the greatest float."""
_JAVA_INT_LIMIT: Final = 1 << 31
DIGITS_MAX: Final = 30
"""More than any type has."""

_DAY = r"(?P<y>[0-9]{4})(?:-(?P<mo>[0-9]{1,2})(?:-(?P<d>[0-9]{1,2})"
_OFFSET = r"(?P<zo>[0-9](?:[0-9](?::[0-9]{1,2}|[0-9]{2})?|:[0-9]{1,2})?)"
"""`2`, `02`, `2:0`, `02:00`, `0200`, as one group in which each character belongs to only one part. Alternatives with a
common beginning would double the time of casting a column, whatever its texts."""
_ZONE = r"(?: ?(?P<z>Z|UTC|GMT)| ?(?P<zs>[+-])" + _OFFSET + r")?"
_SECONDS = r"(?::(?P<s>[0-9]{1,2})(?:\.(?P<f>[0-9]*))?" + _ZONE + r")?"
_CLOCK = r"[ T](?P<h>[0-9]{1,2})(?::(?P<mi>[0-9]{1,2})" + _SECONDS + r")?"
DATE: Final = rf"^{_DAY}(?:[ T](?s:.)*)?)?)?$"
TIMESTAMP: Final = rf"^{_DAY}(?:{_CLOCK})?)?)?$"
OFFSET_MINUTES_MAX: Final = 18 * 60

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def integer_of_text(text: str) -> int | None:
    """Returns the integer, truncated to `DIGITS_MAX` digits; None if the text is not an integer."""
    text = text.strip(BLANKS)
    if not re.fullmatch(INTEGER, text):
        return None
    number = int(text.lstrip("+-").lstrip("0")[:DIGITS_MAX] or 0)
    return -number if text.startswith("-") else number


def double_of_text(text: str) -> float | None:
    """Returns the number, which may be NaN or infinite; None if the text is not a number."""
    text = text.strip(JAVA_BLANKS)
    if text in SIGNED_NAN or text.lower() == "nan":
        return math.nan
    text = text.lower()
    if re.fullmatch(INFINITE, text):
        return -math.inf if text.startswith("-") else math.inf
    return float(text.rstrip("df")) if re.fullmatch(DOUBLE, text) else None


def nearest_float(number: Decimal) -> float:
    """Returns the 32-bit float nearest to a number, ties to even. Converting by way of a double would round twice."""
    exact = abs(Fraction(number))
    if exact >= _FLOAT_LIMIT:
        return -math.inf if number < 0 else math.inf
    (bits,) = struct.unpack("<i", struct.pack("<f", min(float(exact), _FLOAT_MAX)))
    near = struct.unpack("<3f", struct.pack("<3i", max(0, bits - 1), bits, min(bits + 1, _FLOAT_MAX_BITS)))
    found: float = min(near, key=lambda one: (abs(Fraction(one) - exact), struct.pack("<f", one)[0] & 1))
    return -found if number < 0 else found


def decimal_of_text(text: str) -> Decimal | None:
    """Returns the exact number; None if the text is not a number, has a suffix, or is NaN or an infinity."""
    match = re.fullmatch(DECIMAL, text.strip(JAVA_BLANKS))
    if match is None or (not text.isascii() and max(text) > "\uffff"):
        return None
    scale = len(match["f"] or match["p"] or "") - int(match["e"] or 0)
    return Decimal(match[0]) if -_JAVA_INT_LIMIT <= scale < _JAVA_INT_LIMIT else None


def boolean_of_text(text: str) -> bool | None:
    """Returns the boolean; None if the text is not one."""
    text = text.strip(BLANKS).lower()
    return True if text in TRUE else False if text in FALSE else None


def date_of_text(text: str) -> int | None:
    """Returns the days since 1970 of a date: `2026`, `2026-1` or `2026-1-31`, with anything after a space or T.

    Returns None for any other text.
    """
    match = re.fullmatch(DATE, text.strip(BLANKS))
    day = None if match is None else _day(match)
    return None if day is None else (day - _EPOCH).days


def timestamp_of_text(text: str, *, zone: bool = True) -> int | None:
    """Returns the microseconds since 1970 of a date, or of a date and `12[:34[:56[.789]]]` with Z, UTC, GMT or an
    offset (`+2`, `+02:00`, `+0200`).

    Returns None if the text is neither, or if the offset leads out of the years 1 to 9999. Without `zone` an offset is
    accepted but ignored, as for a `timestamp_ntz`.
    """
    found = moment_of_text(text, zone=zone)
    return None if found is None or not FIRST_MOMENT <= found <= LAST_MOMENT else found


def moment_of_text(text: str, *, zone: bool = True) -> int | None:
    """Does what `timestamp_of_text` does, but also accepts an offset that leads out of the years of a timestamp."""
    match = re.fullmatch(TIMESTAMP, text.strip(BLANKS))
    day = None if match is None else _day(match)
    if match is None or day is None:
        return None
    hour, minute, second = (int(match[name] or 0) for name in ("h", "mi", "s"))
    offset_text = match["zo"] or "0"
    zone_hour = int(offset_text[:2].rstrip(":"))
    zone_minute = int(offset_text[len(offset_text[:2].rstrip(":")) :].lstrip(":") or 0)
    offset = zone_hour * 60 + zone_minute
    if hour > 23 or minute > 59 or second > 59 or zone_minute > 59 or offset > OFFSET_MINUTES_MAX:
        return None
    offset = 0 if not zone else -offset if match["zs"] == "-" else offset
    micros = int((match["f"] or "").ljust(6, "0")[:6])
    seconds = ((day - _EPOCH).days * 24 + hour) * 3600 + (minute - offset) * 60 + second
    return seconds * 1_000_000 + micros


def _day(match: re.Match[str]) -> datetime.datetime | None:
    try:
        return datetime.datetime(int(match["y"]), int(match["mo"] or 1), int(match["d"] or 1), tzinfo=datetime.UTC)
    except ValueError:
        return None
