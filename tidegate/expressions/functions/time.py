"""Typing rules of functions on dates and timestamps, and between UTC and time zones, which are literals."""

from __future__ import annotations

import re
import zoneinfo
from functools import cache

from tidegate.datatypes import BIGINT, DATE, INT, INTERVALS, STRING, TIMESTAMP, TIMESTAMP_NTZ, decimal_of
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression, Literal, text_of
from tidegate.expressions.functions.core import FUNCTIONS, Argument, Site, resolves, simple
from tidegate.expressions.functions.intervals import seconds_of
from tidegate.expressions.patterns import PatternRefused, check_parsing, derive_date_pattern
from tidegate.expressions.typing_rules import with_type


def _by_word(words: dict[str, str]) -> dict[str, str]:
    return {word: name for name, own in words.items() for word in own.split()}


_UNITS = {
    "year": "year yyyy yy",
    "quarter": "quarter",
    "month": "month mon mm",
    "week": "week",
    "day": "day dd",
    **{unit: unit for unit in ("hour", "minute", "second", "millisecond", "microsecond")},
}
"""The units of date_trunc and their words."""
_UNIT_OF_WORD = _by_word(_UNITS)
_DATE_UNITS = ("year", "quarter", "month", "week")
_FIELDS = {
    "year": "year y years yr",
    "quarter": "quarter qtr",
    "month": "month mon months",
    "weekofyear": "week w weeks",
    "day": "day d days",
    "dayofweek": "dayofweek dow",
    "dayofyear": "doy",
    "hour": "hour h hours",
    "minute": "minute m min minutes",
}
"""The functions that compute the fields of extract, and their words."""
_FIELD_OF_WORD = _by_word(_FIELDS)
_SECONDS = ("second", "seconds", "sec", "secs", "s")

simple("date", INT, "year", "quarter", "month", "day", "dayofweek", "weekday", "dayofyear", "weekofyear")
simple("timestamp", INT, "hour", "minute", "second")
simple("bigint", TIMESTAMP, "timestamp_seconds", "timestamp_millis", "timestamp_micros")
simple("integer", DATE, "date_from_unix_date")
simple("integer integer integer", DATE, "make_date")
simple("date", DATE, "last_day")


@resolves("extract", takes=2)
def _part(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    word = site.fixed_text(arguments[0]).lower()
    if arguments[1].type.kind in INTERVALS:
        what = f"`{word}` cannot be extracted from an interval"
        raise ExpressionRefusal(arguments[1].start, what, "count whole units: `timestampdiff(SECOND, a, b)`")
    if word in _SECONDS:
        return Call("extract_seconds", (site.timestamp(arguments[1]),), decimal_of(8, 6))
    name = _FIELD_OF_WORD.get(word)
    if name is None:
        remedy = "use one of " + ", ".join(sorted({*_FIELDS, "second"}))
        if word == "epoch":
            text = text_of(arguments[1].expression)
            remedy = f"write `unix_timestamp({text})`, or `unix_micros({text}) / 1e6` with the fraction of a timestamp"
        raise ExpressionRefusal(arguments[0].start, f"`{word}` cannot be extracted", remedy)
    return FUNCTIONS[name].typed(Site(name, site.start), arguments[1:])


def _unit(site: Site, argument: Argument, units: tuple[str, ...]) -> str:
    word = site.fixed_text(argument).lower()
    unit = _UNIT_OF_WORD.get(word)
    if unit not in units:
        raise ExpressionRefusal(
            argument.start, f"`{word}` is not a unit of `{site.function}`", "use one of " + ", ".join(units)
        )
    return unit


@resolves("date_trunc", takes=2)
def _date_trunc(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    unit = _unit(site, arguments[0], tuple(_UNITS))
    return site.call(TIMESTAMP, unit, site.timestamp(arguments[1]))


@resolves("trunc", takes=2)
def _trunc(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    return site.call(DATE, site.date(arguments[0]), _unit(site, arguments[1], _DATE_UNITS))


def _pattern(site: Site, argument: Argument, *, parsing: bool) -> str:
    text = site.fixed_text(argument)
    try:
        parts = derive_date_pattern(text)
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
    return text


_PARSED = {
    "to_timestamp": TIMESTAMP, "try_to_timestamp": TIMESTAMP, "to_timestamp_ntz": TIMESTAMP_NTZ, "to_date": DATE,
    "try_to_date": DATE,
}  # fmt: skip


@resolves(*_PARSED, takes=(1, 2))
def _parsed(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    kind, attempt = _PARSED[site.name], site.name.startswith("try_")
    if len(arguments) == 1:
        moment = site.date(arguments[0]) if site.name == "to_date" else site.moment(arguments[0])
        return with_type(arguments[0].start, moment, kind, attempt=attempt)
    pattern = _pattern(site, arguments[1], parsing=True)
    if arguments[0].type.kind not in ("string", "void"):
        raise site.refuse(arguments[0], "a string when there is a pattern")
    return site.call(kind, site.text(arguments[0]), pattern)


@resolves("date_format", takes=2)
def _formatted(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    return site.call(STRING, site.timestamp(arguments[0]), _pattern(site, arguments[1], parsing=False))


_USUAL = "yyyy-MM-dd HH:mm:ss"


@resolves("from_unixtime", takes=(1, 2))
def _from_seconds(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    moment = Call("timestamp_seconds", (site.bigint(arguments[0]),), TIMESTAMP)
    pattern = _pattern(site, arguments[1], parsing=False) if len(arguments) == 2 else _USUAL
    return Call("date_format", (moment, Literal(pattern, STRING)), STRING)


@resolves("unix_seconds", "unix_millis", "unix_micros", takes=1)
def _to_number(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    if arguments[0].type.kind not in ("timestamp", "timestamp_ntz", "void"):
        raise site.refuse(arguments[0], "a timestamp")
    return site.call(BIGINT, site.timestamp(arguments[0]))


@resolves("unix_timestamp", takes=(0, 2))
def _unix_timestamp(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    if not arguments:
        message = f"`{site.function}()` returns another value at each call, so a replay would differ"
        raise ExpressionRefusal(site.start, message, "use a timestamp of the record")
    pattern = arguments[1:] or (Argument(Literal(_USUAL, STRING), site.start),)
    if arguments[0].type == STRING:
        moment = _parsed(Site("to_timestamp", site.start), (arguments[0], *pattern))
    else:
        moment = site.timestamp(arguments[0])
    micros = Call("unix_micros", (moment,), BIGINT)
    return Call("div", (micros, Literal(1_000_000, BIGINT)), BIGINT)


@resolves("unix_date", takes=1)
def _unix_date(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    if arguments[0].type.kind not in ("date", "void"):
        raise site.refuse(arguments[0], "a date")
    return site.call(INT, site.date(arguments[0]))


_OFFSET = re.compile(r"[+-](?:0[0-9]|1[0-7]):[0-5][0-9]|[+-]18:00")


@cache
def _regions() -> frozenset[str]:
    return frozenset(name for name in zoneinfo.available_timezones() if "/" in name or name in ("UTC", "GMT"))


def _zone(site: Site, argument: Argument) -> Literal:
    name = site.fixed_text(argument)
    if not _OFFSET.fullmatch(name) and name not in _regions():
        raise ExpressionRefusal(
            argument.start, f"`{name}` is not a time zone", "write it like Europe/Paris, UTC or +02:00"
        )
    return Literal(name, STRING)


@resolves("from_utc_timestamp", "to_utc_timestamp", takes=2)
def _shifted(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    return site.call(TIMESTAMP, site.timestamp(arguments[0]), _zone(site, arguments[1]))


@resolves("convert_timezone", takes=3)
def _convert(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    source, target = _zone(site, arguments[0]), _zone(site, arguments[1])
    moment = with_type(arguments[2].start, site.moment(arguments[2]), TIMESTAMP_NTZ)
    in_utc = Call("to_utc_timestamp", (moment, source), TIMESTAMP_NTZ)
    return Call("from_utc_timestamp", (in_utc, target), TIMESTAMP_NTZ)


@resolves("make_timestamp", takes=(6, 7))
def _make(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    whole = [with_type(one.start, site.integer(one), BIGINT) for one in arguments[:5]]
    made = site.call(TIMESTAMP, *whole, seconds_of(site, arguments[5], decimal_of(16, 6)))
    if len(arguments) == 6:
        return made
    return Call("to_utc_timestamp", (made, _zone(site, arguments[6])), TIMESTAMP)
