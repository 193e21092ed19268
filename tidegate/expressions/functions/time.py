"""Typing rules of functions on dates and timestamps, and between UTC and time zones, which are literals."""

from __future__ import annotations

import re
import zoneinfo
from functools import cache

from tidegate.datatypes import BIGINT, DATE, INT, INTERVALS, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType, decimal_of
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression, Literal, text_of
from tidegate.expressions.functions.core import Argument, Function, Resolve, Site, check_count, simple
from tidegate.expressions.functions.intervals import seconds_of
from tidegate.expressions.patterns import PatternRefused, check_parsing, derive_date_pattern
from tidegate.expressions.typing_rules import with_type

UNITS = {
    "year": "year",
    "yyyy": "year",
    "yy": "year",
    "quarter": "quarter",
    "month": "month",
    "mon": "month",
    "mm": "month",
    "week": "week",
    "day": "day",
    "dd": "day",
    "hour": "hour",
    "minute": "minute",
    "second": "second",
    "millisecond": "millisecond",
    "microsecond": "microsecond",
}
_DATE_UNITS = ("year", "quarter", "month", "week")
_FIELDS = {
    "year": "year",
    "y": "year",
    "years": "year",
    "yr": "year",
    "quarter": "quarter",
    "qtr": "quarter",
    "month": "month",
    "mon": "month",
    "months": "month",
    "week": "weekofyear",
    "w": "weekofyear",
    "weeks": "weekofyear",
    "day": "day",
    "d": "day",
    "days": "day",
    "dayofweek": "dayofweek",
    "dow": "dayofweek",
    "doy": "dayofyear",
    "hour": "hour",
    "h": "hour",
    "hours": "hour",
    "minute": "minute",
    "m": "minute",
    "min": "minute",
    "minutes": "minute",
}
_SECONDS = ("second", "seconds", "sec", "secs", "s")
_OF_TIME = ("hour", "minute", "second")


def _field(name: str) -> Resolve:
    return simple(name, "timestamp" if name in _OF_TIME else "date", INT)


def _part(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    field = site.fixed_text(arguments[0])
    word = str(field.value).lower() if isinstance(field, Literal) else ""
    if arguments[1].type.kind in INTERVALS:
        what = f"`{word}` cannot be extracted from an interval"
        raise ExpressionRefusal(arguments[1].start, what, "count whole units: `timestampdiff(SECOND, a, b)`")
    if word in _SECONDS:
        return Call("extract_seconds", (site.timestamp(arguments[1]),), decimal_of(8, 6))
    name = _FIELDS.get(word)
    if name is None:
        remedy = "use one of " + ", ".join(sorted({*_FIELDS.values(), "second"}))
        if word == "epoch":
            text = text_of(arguments[1].expression)
            remedy = f"write `unix_timestamp({text})`, or `unix_micros({text}) / 1e6` with the fraction of a timestamp"
        raise ExpressionRefusal(arguments[0].start, f"`{word}` cannot be extracted", remedy)
    return _field(name)(Site(name, site.start), arguments[1:])


def _unit(site: Site, argument: Argument, units: tuple[str, ...]) -> Literal:
    literal = site.fixed_text(argument)
    word = str(literal.value).lower() if isinstance(literal, Literal) else ""
    unit = UNITS.get(word)
    if unit not in units:
        raise ExpressionRefusal(
            argument.start, f"`{word}` is not a unit of `{site.function}`", "use one of " + ", ".join(units)
        )
    return Literal(unit, STRING)


def _date_trunc(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    unit = _unit(site, arguments[0], tuple(dict.fromkeys(UNITS.values())))
    return Call("date_trunc", (unit, site.timestamp(arguments[1])), TIMESTAMP)


def _trunc(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    return Call("trunc", (site.date(arguments[0]), _unit(site, arguments[1], _DATE_UNITS)), DATE)


def _pattern(site: Site, argument: Argument, *, parsing: bool) -> Expression:
    literal = site.fixed_text(argument)
    try:
        parts = derive_date_pattern(str(literal.value) if isinstance(literal, Literal) else "")
        if parsing:
            check_parsing(parts)
    except PatternRefused as refused:
        raise ExpressionRefusal(
            argument.start, f"the pattern has {refused}", "see `tidegate docs expressions`"
        ) from refused
    letters = {part.field[:1] for part in parts}
    if site.function == "to_timestamp_ntz" and letters & set("XxZ"):
        raise ExpressionRefusal(argument.start, "a timestamp_ntz has no zone", "use to_timestamp")
    if parsing and not {"y", "M", "d"} <= letters:
        raise ExpressionRefusal(
            argument.start, "the pattern needs yyyy, MM and dd", "for other texts use substring and cast"
        )
    return literal


def _parsed(kind: DataType, *, attempt: bool = False) -> Resolve:
    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 1, 2)
        if len(arguments) == 1:
            moment = site.date(arguments[0]) if kind == DATE and not attempt else site.moment(arguments[0])
            return with_type(arguments[0].start, moment, kind, attempt=attempt)
        pattern = _pattern(site, arguments[1], parsing=True)
        if arguments[0].type.kind not in ("string", "void"):
            raise site.refuse(arguments[0], "a string when there is a pattern")
        return Call(site.function, (with_type(arguments[0].start, arguments[0].expression, STRING), pattern), kind)

    return resolve


def _formatted(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    return Call("date_format", (site.timestamp(arguments[0]), _pattern(site, arguments[1], parsing=False)), STRING)


def _from_seconds(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, 2)
    moment = _from_number("timestamp_seconds")(site, arguments[:1])
    pattern = (
        _pattern(site, arguments[1], parsing=False) if len(arguments) == 2 else Literal("yyyy-MM-dd HH:mm:ss", STRING)
    )
    return Call("date_format", (moment, pattern), STRING)


def _from_number(name: str) -> Resolve:
    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 1, 1)
        if arguments[0].type.kind not in ("tinyint", "smallint", "int", "bigint", "void"):
            raise site.refuse(arguments[0], "an integer")
        return Call(name, (with_type(arguments[0].start, arguments[0].expression, BIGINT),), TIMESTAMP)

    return resolve


def _to_number(name: str) -> Resolve:
    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 1, 1)
        if arguments[0].type.kind not in ("timestamp", "timestamp_ntz", "void"):
            raise site.refuse(arguments[0], "a timestamp")
        return Call(name, (site.timestamp(arguments[0]),), BIGINT)

    return resolve


def _unix_timestamp(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    if not arguments:
        message = f"`{site.function}()` returns another value at each call, so a replay would differ"
        raise ExpressionRefusal(site.start, message, "use a timestamp of the record")
    check_count(site, arguments, 1, 2)
    pattern = arguments[1:] or (Argument(Literal("yyyy-MM-dd HH:mm:ss", STRING), site.start),)
    if arguments[0].type == STRING:
        moment = _parsed(TIMESTAMP)(Site("to_timestamp", site.start), (arguments[0], *pattern))
    else:
        moment = site.timestamp(arguments[0])
    micros = Call("unix_micros", (moment,), BIGINT)
    return Call("div", (micros, Literal(1_000_000, BIGINT)), BIGINT)


def _unix_date(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, 1)
    if arguments[0].type.kind not in ("date", "void"):
        raise site.refuse(arguments[0], "a date")
    return Call("unix_date", (site.date(arguments[0]),), INT)


_OFFSET = re.compile(r"[+-](?:0[0-9]|1[0-7]):[0-5][0-9]|[+-]18:00")


@cache
def _regions() -> frozenset[str]:
    return frozenset(name for name in zoneinfo.available_timezones() if "/" in name or name in ("UTC", "GMT"))


def _zone(site: Site, argument: Argument) -> Literal:
    literal = site.fixed_text(argument)
    name = str(literal.value) if isinstance(literal, Literal) else ""
    if not _OFFSET.fullmatch(name) and name not in _regions():
        raise ExpressionRefusal(
            argument.start, f"`{name}` is not a time zone", "write it like Europe/Paris, UTC or +02:00"
        )
    return Literal(name, STRING)


def _shifted(name: str) -> Resolve:
    """Types from_utc_timestamp and to_utc_timestamp."""

    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 2, 2)
        return Call(name, (site.timestamp(arguments[0]), _zone(site, arguments[1])), TIMESTAMP)

    return resolve


def _convert(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 3, 3)
    source, target = _zone(site, arguments[0]), _zone(site, arguments[1])
    moment = with_type(arguments[2].start, site.moment(arguments[2]), TIMESTAMP_NTZ)
    in_utc = Call("to_utc_timestamp", (moment, source), TIMESTAMP_NTZ)
    return Call("from_utc_timestamp", (in_utc, target), TIMESTAMP_NTZ)


def _make(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 6, 7)
    whole = [with_type(one.start, site.integer(one), BIGINT) for one in arguments[:5]]
    parts = (*whole, seconds_of(site, arguments[5], decimal_of(16, 6)))
    made = Call("make_timestamp", parts, TIMESTAMP)
    if len(arguments) == 6:
        return made
    return Call("to_utc_timestamp", (made, _zone(site, arguments[6])), TIMESTAMP)


FUNCTIONS = (
    Function(
        "to_timestamp",
        "time",
        "to_timestamp(s [, pattern])",
        "A timestamp from text; without a pattern, like a cast.",
        _parsed(TIMESTAMP),
    ),
    Function(
        "to_timestamp_ntz",
        "time",
        "to_timestamp_ntz(s [, pattern])",
        "The same without zone; an offset in the text is ignored.",
        _parsed(TIMESTAMP_NTZ),
    ),
    Function(
        "to_date", "time", "to_date(s [, pattern])", "A date from text; without a pattern, like a cast.", _parsed(DATE)
    ),
    Function(
        "try_to_timestamp",
        "time",
        "try_to_timestamp(s [, pattern])",
        "Like to_timestamp, but NULL for other text.",
        _parsed(TIMESTAMP, attempt=True),
    ),
    Function(
        "try_to_date",
        "time",
        "try_to_date(s [, pattern])",
        "Like to_date, but NULL for other text.",
        _parsed(DATE, attempt=True),
    ),
    Function(
        "date_format", "time", "date_format(ts, pattern)", "The timestamp as text, by a literal pattern.", _formatted
    ),
    Function(
        "from_unixtime",
        "time",
        "from_unixtime(seconds [, pattern])",
        "The timestamp of seconds since 1970 as text.",
        _from_seconds,
    ),
    Function(
        "date_trunc",
        "time",
        "date_trunc(unit, ts)",
        "The beginning of the year, quarter, month, week (Monday), day, hour, ...",
        _date_trunc,
    ),
    Function("trunc", "time", "trunc(date, unit)", "The first day of the year, quarter, month or week.", _trunc),
    Function("year", "time", "year(d)", "The year.", _field("year")),
    Function("quarter", "time", "quarter(d)", "The quarter, 1 to 4.", _field("quarter")),
    Function("month", "time", "month(d)", "The month, 1 to 12.", _field("month")),
    Function("day", "time", "day(d)", "The day of the month.", _field("day"), ("dayofmonth",)),
    Function("dayofweek", "time", "dayofweek(d)", "1 is Sunday, 7 is Saturday.", _field("dayofweek")),
    Function("weekday", "time", "weekday(d)", "0 is Monday, 6 is Sunday.", _field("weekday")),
    Function("dayofyear", "time", "dayofyear(d)", "The day of the year from 1.", _field("dayofyear")),
    Function("weekofyear", "time", "weekofyear(d)", "The ISO week.", _field("weekofyear")),
    Function("hour", "time", "hour(ts)", "The hour.", _field("hour")),
    Function("minute", "time", "minute(ts)", "The minute.", _field("minute")),
    Function("second", "time", "second(ts)", "The whole second.", _field("second")),
    Function(
        "extract",
        "time",
        "extract(field from ts), date_part('field', ts)",
        "year, quarter, month, week, day, dow, doy, hour, minute, or second as a decimal(8,6).",
        _part,
        ("date_part", "datepart"),
    ),
    Function(
        "unix_seconds", "time", "unix_seconds(ts)", "Seconds since 1970, rounded down.", _to_number("unix_seconds")
    ),
    Function(
        "unix_millis", "time", "unix_millis(ts)", "Milliseconds since 1970, rounded down.", _to_number("unix_millis")
    ),
    Function("unix_micros", "time", "unix_micros(ts)", "Microseconds since 1970.", _to_number("unix_micros")),
    Function(
        "timestamp_seconds",
        "time",
        "timestamp_seconds(n)",
        "A timestamp from whole seconds since 1970.",
        _from_number("timestamp_seconds"),
    ),
    Function(
        "timestamp_millis",
        "time",
        "timestamp_millis(n)",
        "A timestamp from milliseconds since 1970.",
        _from_number("timestamp_millis"),
    ),
    Function(
        "timestamp_micros",
        "time",
        "timestamp_micros(n)",
        "A timestamp from microseconds since 1970.",
        _from_number("timestamp_micros"),
    ),
    Function(
        "unix_timestamp",
        "time",
        "unix_timestamp(ts), unix_timestamp(s [, pattern])",
        "Seconds since 1970, rounded towards zero. Text is read by the pattern, by default `yyyy-MM-dd HH:mm:ss`.",
        _unix_timestamp,
        ("to_unix_timestamp",),
    ),
    Function("unix_date", "time", "unix_date(d)", "Days since 1970.", _unix_date),
    Function(
        "date_from_unix_date",
        "time",
        "date_from_unix_date(n)",
        "A date from days since 1970.",
        simple("date_from_unix_date", "integer", DATE),
    ),
    Function("last_day", "time", "last_day(d)", "The last day of the month.", simple("last_day", "date", DATE)),
    Function(
        "make_date",
        "time",
        "make_date(year, month, day)",
        "A date; an invalid one fails the record.",
        simple("make_date", "integer integer integer", DATE),
    ),
    Function(
        "make_timestamp",
        "time",
        "make_timestamp(year, month, day, hour, minute, second [, 'zone'])",
        "A timestamp. The second may have a fraction, and an invalid part fails the record.",
        _make,
    ),
    Function(
        "from_utc_timestamp",
        "time",
        "from_utc_timestamp(ts, 'zone')",
        "The time that a clock in the zone shows at ts, as if it were UTC.",
        _shifted("from_utc_timestamp"),
    ),
    Function(
        "to_utc_timestamp",
        "time",
        "to_utc_timestamp(ts, 'zone')",
        "The time at which a clock in the zone shows ts as it is in UTC; the earlier one of two.",
        _shifted("to_utc_timestamp"),
    ),
    Function(
        "convert_timezone",
        "time",
        "convert_timezone('from', 'to', ts)",
        "The time that a clock in the second zone shows when one in the first shows ts; a timestamp_ntz.",
        _convert,
    ),
)
