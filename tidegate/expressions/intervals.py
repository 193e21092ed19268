"""Interval literals. `text_values.py` has dates and timestamps."""

from __future__ import annotations

import re
from decimal import Decimal

from tidegate.datatypes import INTERVAL, DataType
from tidegate.expressions.errors import ExpressionRefusal

MONTHS = DataType("months")
TAKING_MONTHS = frozenset(
    {"add_months", "multiply_interval", "divide_interval", "+", "-", "=", "<=>", "<", "<=", ">", ">=", "in"}
    | {"case", "coalesce", "isnull", "isnotnull"}
)
"""The compiled functions that take an interval of months."""
DAYS = DataType("interval", precision=1)
"""The type of literals that consist only of days and weeks, and of the difference of two dates. Adding it to a date
yields a date; adding it to a timestamp adds 24 hours per day.
"""
MICROSECONDS = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
    "day": 86_400_000_000, "week": 7 * 86_400_000_000,
}  # fmt: skip
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)", re.ASCII)
_MONTHS = {"month": 1, "year": 12}
_DAYS = {"day", "week"}
_LIMIT = 1 << 63


def interval_literal(start: int, text: str) -> tuple[DataType, int]:
    """Returns type and value: `1 day 2 hours` is (INTERVAL, microseconds), `2 days` (DAYS, microseconds), `1 year`
    (MONTHS, months).

    Raises ExpressionRefusal for an unknown unit, a missing number, or months mixed with days (Spark has no such ANSI
    type).
    """
    words = text.split()
    if not words or len(words) % 2:
        raise ExpressionRefusal(
            start, "an interval consists of pairs of a number and a unit", "write `interval 1 day 2 hours`"
        )
    micros, months = Decimal(0), Decimal(0)
    kinds, units = set(), set()
    for amount, unit in zip(words[::2], words[1::2], strict=True):
        name = unit.lower().removesuffix("s")
        if not _NUMBER.fullmatch(amount):
            raise ExpressionRefusal(start, f"`{amount}` is not a number", "write `interval 1 day`")
        number = Decimal(amount)
        if name not in MICROSECONDS and name not in _MONTHS:
            known = ", ".join([*MICROSECONDS, *_MONTHS])
            raise ExpressionRefusal(start, f"`{unit}` is not a unit of an interval", f"use one of {known}")
        if number != int(number) and name != "second":
            raise ExpressionRefusal(
                start, f"`{amount} {unit}` is not a whole number", "only seconds may have a fraction"
            )
        kinds.add(name in _MONTHS)
        units.add(name)
        micros += number * MICROSECONDS.get(name, 0)
        months += number * _MONTHS.get(name, 0)
    if len(kinds) > 1:
        raise ExpressionRefusal(
            start,
            "an interval cannot have months and days",
            "add them one after the other: `ts + interval 1 month + interval 1 day`",
        )
    value, kind = (int(months), MONTHS) if True in kinds else (int(micros), DAYS if units <= _DAYS else INTERVAL)
    return _fitting(start, kind, value)


def is_unit(word: str) -> bool:
    """Returns whether a word is a unit of an interval."""
    name = word.lower().removesuffix("s")
    return name in MICROSECONDS or name in _MONTHS


_PARTS = ("day", "hour", "minute", "second")
_RANGE_PARTS = {
    "day": r"(?P<day>[0-9]+)", "hour": r"(?P<hour>[0-9]{1,10})", "minute": r"(?P<minute>[0-9]{1,10})",
    "second": r"(?P<second>[0-9]{1,10}(?:\.[0-9]{1,9})?)",
}  # fmt: skip
_MOST = {"hour": 23, "minute": 59, "second": 59}
"""The maximum of a part that is not the first."""


def range_literal(start: int, *words: str) -> tuple[DataType, int]:
    """Returns `'1 02:00:00' day to second` or `'1-6' year to month`. The last of `words` is the last unit."""
    example = "write `interval '1 02:00:00' day to second`"
    if len(words) not in (3, 4):
        raise ExpressionRefusal(start, "an interval with TO has one text and two units", example)
    text, first, last = words[-3].strip(), words[-2].lower(), words[-1].lower()
    sign = -1 if text.startswith("-") else 1
    if text.startswith("--"):
        text, sign = text[1:], 1
    text = text.removeprefix("-").removeprefix("+")
    if (first, last) == ("year", "month"):
        found = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,2})", text)
        if found is None or int(found[2]) > 11:
            raise ExpressionRefusal(
                start, f"`{text}` is not an interval of years and months", "write `interval '1-6' year to month`"
            )
        return _fitting(start, MONTHS, sign * (int(found[1]) * 12 + int(found[2])))
    if first not in _PARTS or last not in _PARTS or _PARTS.index(first) >= _PARTS.index(last):
        raise ExpressionRefusal(start, f"an interval of {first} to {last} is not supported", example)
    units = _PARTS[_PARTS.index(first) : _PARTS.index(last) + 1]
    pattern = ":".join(_RANGE_PARTS[unit] for unit in units)
    if units[0] == "day":
        pattern = pattern.replace(":", " ", 1)
    found = re.fullmatch(pattern, text, re.ASCII)
    if found is None or any(Decimal(found[unit]) >= _MOST[unit] + 1 for unit in units[1:]):
        raise ExpressionRefusal(start, f"`{text}` is not an interval of {first} to {last}", example)
    micros = sum(int(Decimal(found[unit]) * MICROSECONDS[unit]) for unit in units)
    return _fitting(start, INTERVAL, sign * micros)


def _fitting(start: int, kind: DataType, value: int) -> tuple[DataType, int]:
    if not -_LIMIT <= value < _LIMIT or (kind is MONTHS and abs(value) >= 1 << 31):
        raise ExpressionRefusal(start, "the interval is too long", "use a shorter one")
    return kind, value
