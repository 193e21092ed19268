"""Values of records as JSON that JavaScript reads without changing them. Pure."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import msgspec

SAFE_MAX: Final = (1 << 53) - 1
"""JavaScript has doubles only: larger whole numbers are rounded."""


def decode_row(text: str | bytes) -> dict[str, Any]:
    """Decodes a JSON object. Numbers that a double does not hold exactly become texts with all their digits.

    Raises ValueError, RecursionError.
    """
    found: dict[str, Any] = {name: _exact(value) for name, value in _DECODER.decode(text).items()}
    return found


def _exact(value: Any) -> Any:
    match value:
        case bool():
            return value
        case int():
            return value if -SAFE_MAX <= value <= SAFE_MAX else str(value)
        case list():
            return [_exact(item) for item in value]
        case dict():
            return {name: _exact(item) for name, item in value.items()}
    return value


def _derive_number(text: str) -> float | str:
    number = float(text)
    return number if Decimal(repr(number)) == Decimal(text) else text


_DECODER: Final = msgspec.json.Decoder(dict[str, Any], float_hook=_derive_number)
