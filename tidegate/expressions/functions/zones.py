"""Typing rules of functions of time zones, and of timestamps that are made of their parts."""

from __future__ import annotations

import re
import zoneinfo
from functools import cache

from tidegate.datatypes import BIGINT, STRING, TIMESTAMP, TIMESTAMP_NTZ, decimal_of
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression, Literal
from tidegate.expressions.functions.core import Argument, Function, Resolve, Site, check_count
from tidegate.expressions.functions.intervals import seconds_of
from tidegate.expressions.typing_rules import with_type

_OFFSET = re.compile(r"[+-](?:0[0-9]|1[0-7]):[0-5][0-9]|[+-]18:00")


@cache
def _regions() -> frozenset[str]:
    return frozenset(name for name in zoneinfo.available_timezones() if "/" in name or name in ("UTC", "GMT"))


def _zone(site: Site, argument: Argument) -> Literal:
    literal = site.fixed_text(argument)
    name = str(literal.value) if isinstance(literal, Literal) else ""
    if not _OFFSET.fullmatch(name) and name not in _regions():
        raise ExpressionRefusal(
            argument.start, f"`{name}` is no time zone", "write it like Europe/Paris, UTC or +02:00"
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
        "make_timestamp",
        "time",
        "make_timestamp(year, month, day, hour, minute, second [, 'zone'])",
        "A timestamp; a second may have a fraction, and a wrong part fails the record.",
        _make,
    ),
    Function(
        "from_utc_timestamp",
        "time",
        "from_utc_timestamp(ts, 'zone')",
        "What a clock in the zone shows at ts, as if it were UTC.",
        _shifted("from_utc_timestamp"),
    ),
    Function(
        "to_utc_timestamp",
        "time",
        "to_utc_timestamp(ts, 'zone')",
        "When a clock in the zone shows what ts is in UTC; the first time of two.",
        _shifted("to_utc_timestamp"),
    ),
    Function(
        "convert_timezone",
        "time",
        "convert_timezone('from', 'to', ts)",
        "What a clock in the second zone shows when one in the first shows ts, a timestamp_ntz.",
        _convert,
    ),
)
