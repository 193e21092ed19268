"""Constants of time: intervals, dates and timestamps as they stand in the text of an expression."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal, InvalidOperation

from tidegate.datatypes import INTERVAL, DataType
from tidegate.plan.errors import Refusal

MONTHS = DataType("months")  # a year-month interval; only literals have it
MICROSECONDS = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
    "day": 86_400_000_000, "week": 7 * 86_400_000_000,
}  # fmt: skip
_MONTHS = {"month": 1, "year": 12}
_LIMIT = 1 << 63
MAX_MONTHS = 12 * 9999
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,6})\d*)?(Z|[+-]\d{1,2}:\d{2})?)?"
)


def interval_literal(start: int, text: str) -> tuple[DataType, int]:
    """`1 day 2 hours` -> (INTERVAL, microseconds); `1 year 2 months` -> (MONTHS, months).

    :raises Refusal: unknown unit, no number, or months mixed with days (Spark has no such ANSI type).
    """
    words = text.split()
    if not words or len(words) % 2:
        raise Refusal(start, "an interval needs a number and a unit each time", "write: interval 1 day 2 hours")
    micros, months = Decimal(0), Decimal(0)
    kinds = set()
    for amount, unit in zip(words[::2], words[1::2], strict=True):
        name = unit.lower().removesuffix("s")
        try:
            number = Decimal(amount)
        except InvalidOperation as error:
            raise Refusal(start, f"`{amount}` is not the number of an interval", "write: interval 1 day") from error
        if name not in MICROSECONDS and name not in _MONTHS:
            known = ", ".join([*MICROSECONDS, *_MONTHS])
            raise Refusal(start, f"`{unit}` is not a unit of an interval", f"use one of {known}")
        if number != int(number) and name != "second":
            raise Refusal(start, f"`{amount} {unit}` is not a whole number", "only seconds may have a fraction")
        kinds.add(name in _MONTHS)
        micros += number * MICROSECONDS.get(name, 0)
        months += number * _MONTHS.get(name, 0)
    if len(kinds) > 1:
        raise Refusal(start, "an interval cannot have months and days", "add two intervals one after the other")
    value, kind = (int(months), MONTHS) if True in kinds else (int(micros), INTERVAL)
    if not -_LIMIT <= value < _LIMIT or (kind is MONTHS and abs(value) >= 1 << 31):
        raise Refusal(start, "the interval is too long", "use a shorter one")
    return kind, value


def date_literal(text: str) -> int | None:
    """Days since 1970 of `2026-1-31`, None when the text is not such a date."""
    match = _DATE.fullmatch(text.strip())
    if match is None:
        return None
    try:
        return (datetime.date(*map(int, match.groups())) - datetime.date(1970, 1, 1)).days
    except ValueError:
        return None


def timestamp_literal(text: str) -> int | None:
    """Microseconds since 1970 UTC of `2026-01-31 12:00:00.5+02:00`, None when the text is not such a timestamp."""
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        moment = datetime.datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0),
            int((fraction or "0").ljust(6, "0")), datetime.UTC,
        )  # fmt: skip
    except ValueError:
        return None
    offset = 0
    if zone not in (None, "Z"):
        hours, minutes = zone[1:].split(":")
        offset = (int(hours) * 60 + int(minutes)) * (-1 if zone[0] == "-" else 1)
        if abs(offset) > 18 * 60 or int(minutes) > 59:
            return None
    elapsed = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (elapsed.days * 86_400 + elapsed.seconds - offset * 60) * 1_000_000 + elapsed.microseconds
