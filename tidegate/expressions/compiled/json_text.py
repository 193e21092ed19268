"""A reader and writer of JSON that behaves like Jackson with Spark's settings, value by value.

When reading, single quotes are equivalent to double quotes, and anything after the first value is ignored. Objects keep
all members in order, and numbers keep their text. When writing, numbers with a point are doubles: `1.50` becomes `1.5`.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

DEPTH_MAX = 200
"""Deeper values fail their record. Jackson allows 1,000, which may exceed the remaining stack of Python."""
_CONSTANTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf, "-INF": -math.inf}
_CONSTANTS |= {"+INF": math.inf, "+Infinity": math.inf}
_BLANKS = re.compile(r"[ \t\n\r]*")
_AFTER_NUMBER, _AFTER_WORD = re.compile(r"[^ \t\n\r]"), re.compile(r"[\w$]")
"""A value at the top level is malformed if one of these follows."""
_WORD = re.compile(r"[A-Za-z0-9_+\-.]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_ESCAPED = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_UNICODE = re.compile(r"[0-9a-fA-F]{4}")
_BRACKETS = re.compile(r"\"[^\"]*\"?|'[^']*'?|[\[\]{}]")
"""Brackets, or a whole string without escapes. An unterminated string also matches: otherwise each quote in it would
start a search to the end."""
_TO_ESCAPE = re.compile(r"[\x00-\x1f\"\\\ud800-\udfff]")
_BEYOND = re.compile(r"[\U00010000-\U0010ffff]")
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_NUMBER_CHARACTERS_MAX = 1_000


class Number(str):
    """The text of a number."""

    __slots__ = ()


class Members(list[tuple[str, Any]]):
    """An object: names and values in order, including duplicates."""


class Malformed(Exception):
    """Text that is not JSON."""


class TooDeep(Exception):
    """Text that is nested deeper than `DEPTH_MAX`."""


def read_json(text: str, *, controls: bool, constants: bool) -> Any:
    """Returns the first value in a text.

    `controls`: control characters are allowed in strings. `constants`: NaN and the infinities are numbers. Raises
    Malformed if the text is not JSON, and TooDeep if it is nested too deeply.
    """
    if text.count("[") + text.count("{") > DEPTH_MAX and _depth(text) > DEPTH_MAX:
        raise TooDeep(text[:50])
    decoder = (
        (_WITH_CONTROLS if controls else _STRICT) if constants else (_WITH_CONTROLS_ONLY if controls else _STRICT_ONLY)
    )
    try:
        value, end = decoder.raw_decode(text, _start(text))
    except ValueError:
        return _Reader(text, controls=controls, constants=constants).whole()
    alone = _AFTER_NUMBER if isinstance(value, Number) else None if isinstance(value, (str, list)) else _AFTER_WORD
    if alone is not None and alone.match(text, end):
        raise Malformed(text[:50])
    return value


def _start(text: str) -> int:
    found = _BLANKS.match(text)
    return found.end() if found else 0


def _depth(text: str) -> int:
    for escaped in ("\\\\", '\\"', "\\'"):
        text = text.replace(escaped, "")
    deepest = depth = 0
    for found in _BRACKETS.finditer(text):
        depth += (found[0] in "[{") - (found[0] in "]}")
        deepest = max(deepest, depth)
    return deepest


def _number(text: str) -> Number:
    if len(text) > _NUMBER_CHARACTERS_MAX:
        raise ValueError(text[:50])
    return Number(text)


def _refused(text: str) -> Any:
    raise ValueError(text)


def _decoder(*, controls: bool, constants: bool) -> json.JSONDecoder:
    constant: Callable[[str], Any] = Number if constants else _refused
    return json.JSONDecoder(
        object_pairs_hook=Members, parse_float=_number, parse_int=_number, parse_constant=constant, strict=not controls
    )


_STRICT, _WITH_CONTROLS = _decoder(controls=False, constants=True), _decoder(controls=True, constants=True)
_STRICT_ONLY, _WITH_CONTROLS_ONLY = _decoder(controls=False, constants=False), _decoder(controls=True, constants=False)


class _Reader:
    """Reader for text that Jackson accepts but the standard library rejects."""

    def __init__(self, text: str, *, controls: bool, constants: bool) -> None:
        self._text, self._controls, self._constants = text, controls, constants
        self._at = 0
        self._has_units = "\\u" in text

    def whole(self) -> Any:
        """Reads the first value."""
        try:
            return self._value()
        except IndexError:
            raise Malformed(self._text[:50]) from None

    def _next(self) -> str:
        found = _BLANKS.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at]

    def _expect(self, sign: str) -> str:
        found = self._next()
        if found not in sign:
            raise Malformed(self._text[:50])
        self._at += 1
        return found

    def _value(self) -> Any:
        sign = self._next()
        if sign == "{":
            return self._object()
        if sign == "[":
            return self._array()
        if sign in "\"'":
            return self._string()
        word = _WORD.match(self._text, self._at)
        if word is None:
            raise Malformed(self._text[:50])
        self._at = word.end()
        after = self._text[self._at : self._at + 1]
        if after and after not in " \t\n\r,]}":
            raise Malformed(self._text[:50])
        return self._scalar(word[0])

    def _scalar(self, word: str) -> Any:
        if word in ("true", "false", "null"):
            return {"true": True, "false": False, "null": None}[word]
        if self._constants and word in _CONSTANTS:
            return Number(word)
        if not _NUMBER.fullmatch(word) or len(word) > _NUMBER_CHARACTERS_MAX:
            raise Malformed(self._text[:50])
        return Number(word)

    def _object(self) -> Members:
        self._at += 1
        members = Members()
        if self._next() == "}":
            self._at += 1
            return members
        while True:
            if self._next() not in "\"'":
                raise Malformed(self._text[:50])
            name = self._string()
            self._expect(":")
            members.append((name, self._value()))
            if self._expect(",}") == "}":
                return members

    def _array(self) -> list[Any]:
        self._at += 1
        if self._next() == "]":
            self._at += 1
            return []
        values: list[Any] = []
        while True:
            values.append(self._value())
            if self._expect(",]") == "]":
                return values

    def _string(self) -> str:
        quote = self._text[self._at]
        parts: list[str] = []
        self._at += 1
        while (character := self._text[self._at]) != quote:
            if character == "\\":
                parts.append(self._escape())
                continue
            if character < " " and not self._controls:
                raise Malformed(self._text[:50])
            parts.append(character)
            self._at += 1
        self._at += 1
        joined = "".join(parts)
        if not self._has_units:
            return joined
        return joined.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

    def _escape(self) -> str:
        letter = self._text[self._at + 1]
        self._at += 2
        if letter == "u" and (digits := _UNICODE.match(self._text, self._at)):
            self._at += 4
            return chr(int(digits[0], 16))
        if letter not in _ESCAPED:
            raise Malformed(self._text[:50])
        return _ESCAPED[letter]


def number_of(text: Number) -> float:
    """Returns the double nearest to a number, which may be NaN or an infinity."""
    return _CONSTANTS[text] if text in _CONSTANTS else float(text)


def java_double(number: float, shortest: str = "") -> str:
    """Formats a double as Java does. `shortest`: the text of a float in another form, equal to `number` to the bit."""
    text = shortest or repr(number)
    size = abs(number)
    if math.isnan(number) or math.isinf(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if size == 0 or 1e-3 <= size < 1e7:
        return text if "." in text else f"{text}.0"
    sign, digits, exponent = Decimal(text).normalize().as_tuple()
    if len(digits) == 1:  # Java shows two: the two that are nearest
        sign, digits, exponent = Decimal(f"{number:.1e}").normalize().as_tuple()
    power = len(digits) - 1 + int(exponent)
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{digits[0]}.{fraction}E{power}"


def java_float(value: float) -> str:
    """Formats a 32-bit float as Java does."""
    if value != value or value in (float("inf"), float("-inf")):
        return java_double(value)
    shortest = repr(value)
    for digits in range(1, 10):
        shortest = f"{value:.{digits}g}"
        try:
            if struct.pack("<f", float(shortest)) == struct.pack("<f", value):
                break
        except OverflowError:
            continue
    return java_double(value, format(Decimal(shortest), "f"))


def quoted(text: str) -> str:
    """Returns a string in double quotes."""
    return f'"{_TO_ESCAPE.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    return _SHORT.get(found[0]) or f"\\u{ord(found[0]):04X}"


def _pair(found: re.Match[str]) -> str:
    """Escapes a character beyond U+FFFF as Jackson does when it writes bytes: with two escapes."""
    first, second = found[0].encode("utf-16-be")[:2], found[0].encode("utf-16-be")[2:]
    return f"\\u{first.hex().upper()}\\u{second.hex().upper()}"


def text_of_number(number: Number) -> str:
    """Formats a number for output: integers unchanged, others as doubles."""
    if number.isdigit() or (number[0] == "-" and number[1:].isdigit()):
        return "0" if number == "-0" else number[:]
    text = java_double(number_of(number))
    return text if text[-1].isdigit() else quoted(text)


def write_json(value: Any) -> str:
    """Formats a value of `read_json` without whitespace."""
    if isinstance(value, Number):
        return text_of_number(value)
    if isinstance(value, str):
        return _BEYOND.sub(_pair, quoted(value))
    if isinstance(value, Members):
        return "{" + ",".join(f"{write_json(name[:])}:{write_json(one)}" for name, one in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(write_json, value)) + "]"
    return "null" if value is None else "true" if value else "false"
