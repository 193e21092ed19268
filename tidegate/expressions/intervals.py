"""Intervals as they stand in the text of an expression. Dates and timestamps: `text_values.py`."""

from __future__ import annotations

import re
from decimal import Decimal

from tidegate.datatypes import INTERVAL, DataType
from tidegate.expressions.errors import Refusal

MONTHS = DataType("months")  # a year-month interval; only literals have it
DAYS = DataType("interval", precision=1)
"""Of literals with nothing but days and weeks, as written, and of a date minus a date: a date plus such an interval is
a date, plus 24 hours a timestamp.
"""
MICROSECONDS = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
    "day": 86_400_000_000, "week": 7 * 86_400_000_000,
}  # fmt: skip
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)", re.ASCII)
_MONTHS = {"month": 1, "year": 12}
_DAYS = {"day", "week"}
_LIMIT = 1 << 63
MAX_MONTHS = 12 * 9999


def interval_literal(start: int, text: str) -> tuple[DataType, int]:
    """`1 day 2 hours` -> (INTERVAL, microseconds), `2 days` -> (DAYS, microseconds); `1 year` -> (MONTHS, months).

    :raises Refusal: unknown unit, no number, or months mixed with days (Spark has no such ANSI type).
    """
    words = text.split()
    if not words or len(words) % 2:
        raise Refusal(start, "an interval needs a number and a unit each time", "write: interval 1 day 2 hours")
    micros, months = Decimal(0), Decimal(0)
    kinds, units = set(), set()
    for amount, unit in zip(words[::2], words[1::2], strict=True):
        name = unit.lower().removesuffix("s")
        if not _NUMBER.fullmatch(amount):
            raise Refusal(start, f"`{amount}` is not the number of an interval", "write: interval 1 day")
        number = Decimal(amount)
        if name not in MICROSECONDS and name not in _MONTHS:
            known = ", ".join([*MICROSECONDS, *_MONTHS])
            raise Refusal(start, f"`{unit}` is not a unit of an interval", f"use one of {known}")
        if number != int(number) and name != "second":
            raise Refusal(start, f"`{amount} {unit}` is not a whole number", "only seconds may have a fraction")
        kinds.add(name in _MONTHS)
        units.add(name)
        micros += number * MICROSECONDS.get(name, 0)
        months += number * _MONTHS.get(name, 0)
    if len(kinds) > 1:
        raise Refusal(start, "an interval cannot have months and days", "add two intervals one after the other")
    value, kind = (int(months), MONTHS) if True in kinds else (int(micros), DAYS if units <= _DAYS else INTERVAL)
    if not -_LIMIT <= value < _LIMIT or (kind is MONTHS and abs(value) >= 1 << 31):
        raise Refusal(start, "the interval is too long", "use a shorter one")
    return kind, value
