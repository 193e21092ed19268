"""Conversion of numbers and bytes in an expression's text to Spark's constants."""

from __future__ import annotations

import re
from decimal import Decimal

from tidegate.datatypes import (
    BIGINT,
    BINARY,
    DOUBLE,
    FLOAT,
    INT,
    MAX_PRECISION,
    SMALLINT,
    TINYINT,
    DataType,
)
from tidegate.expressions.decimal_types import decimal_of_literal
from tidegate.expressions.errors import ExpressionRefusal, with_article
from tidegate.expressions.syntax_tree import Constant
from tidegate.expressions.tokens import Token

_DECIMAL = DataType("decimal")
_NUMBER_SUFFIXES = {"L": BIGINT, "S": SMALLINT, "Y": TINYINT, "D": DOUBLE, "F": FLOAT, "BD": _DECIMAL}
GREATEST = {"float": Decimal(2**128 - 2**104), "double": Decimal(2**1024 - 2**971)}
"""The greatest values of the floating-point types."""
MAX_DIGITS = 1_000
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?")
"""Limits the exponent to as many digits as any type needs: written out, a greater number would exhaust the memory."""
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def number_literal(token: Token, start: int, *, negative: bool = False) -> Constant:
    """Returns `5`, `5L`, `1.5` (a decimal), `1e3`, `1.5D` ... as a constant of the type that Spark gives it.

    Raises ExpressionRefusal for an unknown suffix, or a number that does not fit the type of its suffix.
    """
    if len(token.text) > MAX_DIGITS:
        raise ExpressionRefusal(start, f"the number has more than {MAX_DIGITS:,} characters", "use a smaller number")
    text = ("-" if negative else "") + token.text
    digits = text.rstrip("LlSsYyDdFfBb")
    suffix = text[len(digits) :].upper()
    if suffix not in _NUMBER_SUFFIXES and suffix:
        raise ExpressionRefusal(start, f"`{text}` is not a number", "use the suffix L, S, Y, D, F or BD")
    if not _NUMBER.fullmatch(digits):
        raise ExpressionRefusal(
            start, f"`{text}` is not a number", "write it as 5, 1.5 or 1e3, with an exponent below 10000"
        )
    kind = _NUMBER_SUFFIXES.get(suffix)
    if kind is None and "e" in digits.lower():
        kind = DOUBLE
    if kind is None and "." in digits:
        kind = _DECIMAL
    if kind is None:
        kind = next((k for k in (INT, BIGINT) if _fits(int(digits), k)), _DECIMAL)
    if kind in (DOUBLE, FLOAT):
        if abs(Decimal(digits)) > GREATEST[kind.kind]:
            raise ExpressionRefusal(start, f"`{text}` does not fit into {kind}", "use a smaller number")
        return Constant(start, float(digits), kind)
    if kind is _DECIMAL:
        return _decimal_literal(start, text, Decimal(digits))
    if not digits.lstrip("-").isdigit() or not _fits(int(digits), kind):
        raise ExpressionRefusal(start, f"`{text}` is not {with_article(kind)}", "choose a wider type")
    return Constant(start, int(digits), kind)


def _decimal_literal(start: int, text: str, number: Decimal) -> Constant:
    kind = decimal_of_literal(number)
    if kind is None:
        raise ExpressionRefusal(
            start,
            f"`{text}` has more than {MAX_PRECISION} digits, the maximum of a decimal",
            "write `1.5D` for a double",
        )
    return Constant(start, format(number or number.copy_abs(), "f"), kind)  # Java's decimals have no negative zero


def _fits(value: int, kind: DataType) -> bool:
    return -(1 << (_INTEGER_BITS[kind.kind] - 1)) <= value < 1 << (_INTEGER_BITS[kind.kind] - 1)


def binary_literal(token: Token) -> Constant:
    """Returns the bytes of `x'4142'` as hexadecimal text. Raises ExpressionRefusal for other text."""
    digits = token.text if len(token.text) % 2 == 0 else "0" + token.text
    try:
        bytes.fromhex(digits)
    except ValueError as error:
        raise ExpressionRefusal(token.start, f"x'{token.text}' is not hexadecimal", "use 0-9 and A-F") from error
    return Constant(token.start, digits.lower(), BINARY)
