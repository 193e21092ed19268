"""Functions of time zones, and timestamps that are made of their parts."""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Sequence

import polars as pl

from tidegate.datatypes import FIRST_MOMENT, LAST_MOMENT
from tidegate.expressions.compiled.calendar import DAY, days_of, is_date, outside_calendar
from tidegate.expressions.compiled.compiled import Compiled, compiles, strict
from tidegate.expressions.compiled.rowwise import RowFailed, by_row
from tidegate.expressions.expression import Call
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def _zone(name: str) -> datetime.tzinfo:
    if name[0] not in "+-":
        return zoneinfo.ZoneInfo(name)
    offset = datetime.timedelta(hours=int(name[1:3]), minutes=int(name[4:6]))
    return datetime.timezone(-offset if name[0] == "-" else offset)


@compiles("from_utc_timestamp", "to_utc_timestamp")
def _shift(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Shifts between UTC and a zone. The first of two repeated hours counts; a skipped time moves by the gap's
    length.
    """
    zone = _zone(str(arguments[1].constant))
    from_utc = call.function == "from_utc_timestamp"

    def each(micros: int) -> int:
        try:
            moment = _EPOCH + datetime.timedelta(microseconds=micros)
            there = moment.astimezone(zone) if from_utc else moment.replace(tzinfo=zone)
            offset = (there.utcoffset() or datetime.timedelta()) // _MICROSECOND
        except OverflowError:
            raise RowFailed(FailureKind.DATETIME_OVERFLOW) from None
        found = micros + offset if from_utc else micros - offset
        if not FIRST_MOMENT <= found <= LAST_MOMENT:
            raise RowFailed(FailureKind.DATETIME_OVERFLOW)
        return found

    return by_row(call, arguments[:1], each, FailureKind.DATETIME_OVERFLOW)


@compiles("make_timestamp")
def _make(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Compiles make_timestamp. The second is a decimal with six fractional digits; 60 is the next minute."""
    year, month, day, hour, minute = (argument.value for argument in arguments[:5])
    micros = arguments[5].value.to_physical().cast(pl.Int64)
    valid = is_date(year, month, day) & hour.is_between(0, 23) & minute.is_between(0, 59)
    valid = valid & micros.is_between(0, 60_000_000)
    found = pl.when(valid).then(days_of(year, month, day) * DAY + (hour * 60 + minute) * 60_000_000 + micros)
    there = pl.all_horizontal([argument.value.is_not_null() for argument in arguments])
    return strict(
        call,
        arguments,
        pl.when(~outside_calendar(found, call.type)).then(found).cast(polars_type(call.type)),
        (FailureKind.DATETIME_FIELD_OUT_OF_BOUNDS, ~valid & there),
        (FailureKind.DATETIME_OVERFLOW, outside_calendar(found, call.type)),
    )
