"""Human-readable JSON: values of tests and previews, in which a number with a fraction keeps its digits. Pure.

Such a number is a `decimal.Decimal`: as a float, `12.50` would become 12.5, and 12345678901234567.89 another number.
"""

from __future__ import annotations

import base64
import json
from decimal import Decimal, InvalidOperation
from typing import Any

from tidegate.datatypes import MAX_PRECISION


def parse_json(data: bytes | str) -> Any:
    """Parses JSON. Raises ValueError."""
    try:
        return json.loads(data, parse_float=Decimal)
    except InvalidOperation as error:
        raise ValueError("the exponent of a number has more than 18 digits") from error


def render_json(value: Any, *, spaced: bool = False) -> str:
    """Returns the JSON text of a value; `spaced` adds spaces as Python does. Raises ValueError for NaN and infinity."""
    comma, colon = (", ", ": ") if spaced else (",", ":")
    if isinstance(value, Decimal):
        return render_number(value)
    if isinstance(value, dict):
        fields = (f"{_scalar(str(name))}{colon}{render_json(one, spaced=spaced)}" for name, one in value.items())
        return f"{{{comma.join(fields)}}}"
    if isinstance(value, list | tuple):
        return f"[{comma.join(render_json(one, spaced=spaced) for one in value)}]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def render_number(number: Decimal) -> str:
    """Returns all digits of a number. `str` would write a zero with eight decimal places as 0E-8."""
    exponent = number.as_tuple().exponent
    plain = isinstance(exponent, int) and -MAX_PRECISION <= exponent <= 0
    return format(number, "f") if plain else str(number)


def as_float(number: Decimal) -> float | None:
    """Returns the float that is written with the same digits; None if there is none, as for 12.50."""
    found = float(number)
    return found if Decimal(repr(found)).as_tuple() == number.as_tuple() else None


def text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    """Returns bytes as a field of this name: text, or in the field `<name>_base64` what is not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def header_to_plain(name: str, data: bytes | None) -> list[Any]:
    """Returns a header as a case of `tidegate test` has it."""
    found = text_or_base64("value", data)
    return [name, found["value"] if "value" in found else {"base64": found["value_base64"]}]
