"""Checks that the defaults of a reader's fields are values of their types. Pure.

A writer's defaults are not checked: registries accept any, and they are not used for reading. An invalid default of the
reader would fail each record in which the writer has left out the field.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final
from uuid import UUID

from tidegate.datatypes import FIRST_DAY, FIRST_MOMENT, FLOAT_BOUND, LAST_DAY, LAST_MOMENT
from tidegate.formats.kinds.avro.schema import DAY, MICROS, AvroRefusal, AvroType

_WHOLE: Final = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}
_LARGEST: Final = {"float": FLOAT_BOUND, "double": sys.float_info.max}
_SHOWN_MAX: Final = 60


def check_defaults(one: AvroType, place: str = "") -> None:
    """Checks all fields in a type. Raises AvroRefusal for the first invalid default."""
    for field in one.fields:
        where = f"{place}.{field.name}".lstrip(".")
        if field.has_default and not is_value(field.type, field.default):
            shown = json.dumps(field.default, ensure_ascii=False)[:_SHOWN_MAX]
            raise AvroRefusal(where, f"the default {shown} is no value of its type")
        check_defaults(field.type, where)
    for inner in [*one.branches, *([one.items] if one.items else [])]:
        check_defaults(inner, place)


def is_value(one: AvroType, value: Any) -> bool:
    """Returns whether a JSON value is one of a type.

    Bytes are a text with one character per byte, and 0 is also a double.
    """
    match one.kind:
        case "null":
            return value is None
        case "union":
            return any(is_value(branch, value) for branch in one.branches)
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            return type(value) is int and _is_within(value, _WHOLE[one.kind]) and _has_meaning(one, value)
        case "float" | "double":
            return type(value) in (int, float) and _is_number(value, _LARGEST[one.kind])
        case "string":
            return isinstance(value, str) and (one.logical != "uuid" or _is_uuid(value))
        case "enum":
            return value in one.symbols
        case "bytes" | "fixed":
            return isinstance(value, str) and _is_binary(one, value)
        case "array":
            return isinstance(value, list) and all(_is_item(one, item) for item in value)
        case "map":
            return isinstance(value, dict) and all(_is_item(one, item) for item in value.values())
    return isinstance(value, dict) and all(
        is_value(field.type, value[field.name]) if field.name in value else field.has_default for field in one.fields
    )


def _is_item(one: AvroType, value: Any) -> bool:
    return one.items is not None and is_value(one.items, value)


def _is_number(value: float, largest: float) -> bool:
    """Converts to a double, as for numbers in JSON records, so that the bounds are the same."""
    try:
        return abs(float(value)) <= largest
    except OverflowError:
        return False


def _is_within(value: int, bounds: tuple[int, int]) -> bool:
    return bounds[0] <= value <= bounds[1]


def _has_meaning(one: AvroType, value: int) -> bool:
    """Returns whether a number is a day, time or timestamp within the range of a column."""
    if not one.logical:
        return True
    if one.logical == "date":
        return _is_within(value, (FIRST_DAY, LAST_DAY))
    if one.logical in DAY:
        return _is_within(value, (0, DAY[one.logical] - 1))
    factor, divisor = MICROS[one.logical.rpartition("-")[2]]
    return _is_within(value * factor // divisor, (FIRST_MOMENT, LAST_MOMENT))


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _is_binary(one: AvroType, text: str) -> bool:
    try:
        data = text.encode("latin-1")
    except UnicodeEncodeError:
        return False
    if one.kind == "fixed" and len(data) != one.size:
        return False
    return one.logical != "decimal" or abs(int.from_bytes(data, "big", signed=True)) < 10**one.precision
