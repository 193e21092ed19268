"""`format_string`, row by row: formats values like `java.util.Formatter`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from tidegate.expressions.compiled.compiled import Compiled, compiles
from tidegate.expressions.compiled.json_text import java_double
from tidegate.expressions.compiled.json_values import java_float
from tidegate.expressions.compiled.rowwise import by_row, text_within_limit
from tidegate.expressions.expression import Call
from tidegate.expressions.printf import Piece, derive_format
from tidegate.formats.failures import FailureKind

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_CONTEXT = Context(prec=800, rounding=ROUND_HALF_UP)
_DIGITS = {"x": "x", "X": "X", "o": "o"}


@compiles("format_string")
def _format(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    pieces = derive_format(str(arguments[0].constant))
    kinds = [one.type.kind for one in arguments[1:]]

    def each(*values: Any) -> str:
        parts = [
            _formatted(piece, values[piece.argument], kinds[piece.argument]) if piece.conversion else piece.text
            for piece in pieces
        ]
        text = "".join(parts)
        text_within_limit(text)
        return text

    return by_row(call, arguments[1:] or arguments, each, FailureKind.RESULT_TOO_LARGE, needed=0)


def _formatted(piece: Piece, value: Any, kind: str) -> str:
    if piece.conversion in "sSb" or value is None:
        text = "false" if piece.conversion == "b" and value is None else _text(value, kind)
        text = text if piece.precision is None else _cut(text, piece.precision)
        return _padded(piece, text.upper() if piece.conversion in "SX" else text)
    if piece.conversion in _DIGITS:
        number = format(value & ((1 << _BITS[kind]) - 1), _DIGITS[piece.conversion])
        return number.zfill(piece.width) if "0" in piece.flags else _padded(piece, number)
    if isinstance(value, float) and not math.isfinite(value):
        return _padded(piece, _not_finite(piece, value))
    return _signed(piece, *_number(piece, value))


def _text(value: Any, kind: str) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return java_float(value) if kind == "float" else java_double(value)
    return str(value)


def _cut(text: str, units: int) -> str:
    """Returns the first characters. Java counts UTF-16 units, and half a character becomes `?`."""
    if text.isascii():
        return text[:units]
    cut = text.encode("utf-16-le")[: 2 * units].decode("utf-16-le", "replace")
    return cut[:-1] + "?" if cut.endswith("\ufffd") and not text.startswith(cut) else cut


def _padded(piece: Piece, text: str) -> str:
    more = 0 if text.isascii() else len(text.encode("utf-16-le")) // 2 - len(text)
    return text.ljust(piece.width - more) if "-" in piece.flags else text.rjust(piece.width - more)


def _not_finite(piece: Piece, value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if value < 0:
        return "(Infinity)" if "(" in piece.flags else "-Infinity"
    return next((sign for sign in "+ " if sign in piece.flags), "") + "Infinity"


def _number(piece: Piece, value: Any) -> tuple[bool, str]:
    """Returns whether the number is negative, and its digits."""
    grouped = "," if "," in piece.flags else ""
    if piece.conversion == "d":
        return value < 0, format(abs(value), f"{grouped}d")
    shortest = Decimal(java_double(abs(value)))  # a float is formatted as a double, as in Java
    digits = 6 if piece.precision is None else piece.precision
    negative = math.copysign(1, value) < 0
    if piece.conversion == "f":
        rounded = shortest.quantize(Decimal(1).scaleb(-digits), context=_CONTEXT)
        return negative, format(rounded, f"{grouped}.{digits}f")
    if not shortest:
        return negative, ("0." + "0" * digits if digits else "0") + "e+00"
    rounded = Context(prec=digits + 1, rounding=ROUND_HALF_UP).create_decimal(shortest)
    mantissa, _, exponent = format(rounded, f".{digits}e").partition("e")
    return negative, f"{mantissa}e{int(exponent):+03d}"


def _signed(piece: Piece, negative: bool, digits: str) -> str:
    front, back = ("(", ")") if negative and "(" in piece.flags else ("-", "") if negative else ("", "")
    if not negative:
        front = next((sign for sign in "+ " if sign in piece.flags), "")
    if "0" in piece.flags:
        digits = digits.rjust(piece.width - len(front) - len(back), "0")
    return _padded(piece, front + digits + back)
