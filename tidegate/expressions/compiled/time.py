"""Functions of dates and timestamps, of their parts, and of time zones."""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Callable, Sequence

import polars as pl

from tidegate.datatypes import FIRST_MOMENT, LAST_MOMENT
from tidegate.expressions.compiled.calendar import (
    DAY,
    days_of,
    is_date,
    outside_calendar,
    text_by_pattern,
    timestamp_by_pattern,
    within_calendar,
)
from tidegate.expressions.compiled.compiled import Compiled, compiles, plain, strict
from tidegate.expressions.compiled.decimals import packed
from tidegate.expressions.compiled.rowwise import RowFailed, by_row
from tidegate.expressions.expression import Call
from tidegate.expressions.patterns import derive_date_pattern
from tidegate.formats.columns import TIMESTAMP, polars_type
from tidegate.formats.failures import FailureKind

_FIELDS: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "year": lambda value: value.dt.year(),
    "quarter": lambda value: value.dt.quarter(),
    "month": lambda value: value.dt.month(),
    "day": lambda value: value.dt.day(),
    "dayofweek": lambda value: value.dt.weekday() % 7 + 1,
    "weekday": lambda value: value.dt.weekday() - 1,
    "dayofyear": lambda value: value.dt.ordinal_day(),
    "weekofyear": lambda value: value.dt.week(),
    "hour": lambda value: value.dt.hour(),
    "minute": lambda value: value.dt.minute(),
    "second": lambda value: value.dt.second(),
}
_UNITS = {
    "year": "1y", "quarter": "1q", "month": "1mo", "week": "1w", "day": "1d", "hour": "1h", "minute": "1m",
    "second": "1s", "millisecond": "1ms", "microsecond": "1us",
}  # fmt: skip
_MICROS = {"timestamp_seconds": 1_000_000, "timestamp_millis": 1_000, "timestamp_micros": 1}

plain({name: lambda value, field=field: field(value).cast(pl.Int32) for name, field in _FIELDS.items()})
plain(
    {
        "unix_seconds": lambda value: value.cast(pl.Int64) // 1_000_000,
        "unix_millis": lambda value: value.cast(pl.Int64) // 1_000,
        "unix_micros": lambda value: value.cast(pl.Int64),
        "unix_date": lambda value: value.cast(pl.Int32),
        "datediff": lambda end, start: end.cast(pl.Int32) - start.cast(pl.Int32),
    }
)


@compiles("extract_seconds")
def _seconds(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    micros = arguments[0].value.cast(pl.Int64) % 60_000_000
    return strict(call, arguments, packed(micros.cast(pl.Int128), call.type))


def _in_calendar(call: Call, argument: Compiled, compute: Callable[[pl.Expr], pl.Expr]) -> Compiled:
    """Compiles a function of a date or timestamp that Polars has only within the calendar."""
    value, outside = within_calendar(argument.value, argument.type)
    return strict(call, [argument], compute(value), (FailureKind.DATETIME_OVERFLOW, outside))


@compiles("date_trunc", "trunc")
def _truncate(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    unit, moment = arguments if call.function == "date_trunc" else arguments[::-1]
    return _in_calendar(call, moment, lambda value: value.dt.truncate(_UNITS[str(unit.constant)]))


@compiles("last_day")
def _last_day(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return _in_calendar(call, arguments[0], lambda value: value.dt.month_end())


@compiles("date_format")
def _format(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    pattern = derive_date_pattern(str(arguments[1].constant))
    return _in_calendar(call, arguments[0], lambda value: text_by_pattern(value, pattern))


@compiles("to_timestamp", "to_timestamp_ntz", "to_date", "try_to_timestamp", "try_to_date")
def _parse(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    text = arguments[0].value
    parsed = timestamp_by_pattern(text, derive_date_pattern(str(arguments[1].constant)))
    parsed = (parsed.to_physical() if call.type.kind == "timestamp_ntz" else parsed).cast(polars_type(call.type))
    if call.function.startswith("try_"):
        return strict(call, arguments, parsed)
    return strict(call, arguments, parsed, (FailureKind.CANNOT_PARSE_TIMESTAMP, text.is_not_null() & parsed.is_null()))


@compiles(*_MICROS)
def _from_number(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    number, factor = arguments[0].value, _MICROS[call.function]
    outside = (number < -(-FIRST_MOMENT // factor)) | (number > LAST_MOMENT // factor)
    value = pl.when(~outside).then(number * factor).cast(TIMESTAMP)
    return strict(call, arguments, value, (FailureKind.DATETIME_OVERFLOW, outside))


@compiles("date_from_unix_date")
def _from_unix_date(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    days = arguments[0].value.cast(pl.Int32)
    return strict(
        call, arguments, days.cast(pl.Date), (FailureKind.DATETIME_OVERFLOW, outside_calendar(days, call.type))
    )


@compiles("date_add", "date_sub")
def _date_add(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    days, more = (argument.value.cast(pl.Int32).cast(pl.Int64) for argument in arguments)
    moved = days + more if call.function == "date_add" else days - more
    outside = outside_calendar(moved, call.type)
    return strict(
        call,
        arguments,
        pl.when(~outside).then(moved).cast(pl.Int32).cast(pl.Date),
        (FailureKind.DATETIME_OVERFLOW, outside),
    )


@compiles("make_date")
def _make_date(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    year, month, day = (argument.value.cast(pl.Int64) for argument in arguments)
    valid = is_date(year, month, day)
    value = pl.when(valid).then(days_of(year, month, day)).cast(pl.Int32).cast(pl.Date)
    whole = pl.all_horizontal(part.is_not_null() for part in (year, month, day))
    return strict(call, arguments, value, (FailureKind.DATETIME_FIELD_OUT_OF_BOUNDS, whole & ~valid))


_START = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
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
            moment = _START + datetime.timedelta(microseconds=micros)
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
