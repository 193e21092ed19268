"""Typing rules of date, timestamp and interval arithmetic, and of functions that create intervals or count units.

An interval is a value only inside expressions. Its type is `interval` (microseconds) or `months`.
"""

from __future__ import annotations

from tidegate.datatypes import (
    BIGINT,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    INTERVALS,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    decimal_of,
)
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression, Literal, text_of
from tidegate.expressions.functions.core import Argument, Site, resolves, simple
from tidegate.expressions.intervals import DAYS, MONTHS
from tidegate.expressions.typing_rules import INTEGRAL, NUMERIC, with_type

MOMENTS = ("date", "timestamp", "timestamp_ntz")
TIME_KINDS = (*MOMENTS, *INTERVALS)
UNITS = (
    *("year", "quarter", "month", "week", "day", "dayofyear", "hour", "minute", "second", "millisecond"),
    "microsecond",
)
"""The units of `timestampadd`."""
_NUMBERS = (*NUMERIC, "decimal", "string", "void")
_SECONDS = decimal_of(18, 6)


def time_arithmetic(site: Site, left: Argument, right: Argument) -> Expression:
    """Types `date + int`, `timestamp +- interval`, `timestamp - timestamp`, `date - date`, `interval +- interval`."""
    if site.function == "+" and left.type.kind in INTERVALS:
        left, right = right, left
    if left.type.kind in MOMENTS and right.type.kind in INTERVALS:
        return _moved(site, left, right)
    if left.type.kind == right.type.kind and left.type.kind in ("interval", "months"):
        return _sum_of_intervals(site, left, right)
    if site.function == "-" and left.type.kind in MOMENTS and right.type.kind in MOMENTS:
        kind = TIMESTAMP_NTZ if left.type == right.type == TIMESTAMP_NTZ else TIMESTAMP
        found = DAYS if left.type == right.type == DATE else INTERVAL
        return Call("-", tuple(with_type(one.start, one.expression, kind) for one in (left, right)), found)
    if site.function == "+" and right.type == DATE:
        left, right = right, left
    if left.type == DATE and right.type.kind in ("tinyint", "smallint", "int"):
        function = "date_add" if site.function == "+" else "date_sub"
        return Call(function, (left.expression, with_type(right.start, right.expression, INT)), DATE)
    raise _meaningless(site, left, right)


def _moved(site: Site, moment: Argument, interval: Argument) -> Expression:
    """Adds an interval to a date or a timestamp, or subtracts it."""
    back = site.function == "-"
    if interval.type.kind == "months":
        months = negate_interval(interval) if back else interval.expression
        return Call("add_months", (moment.expression, _months_of(months)), moment.type)
    if moment.type == DATE and interval.type == DAYS:
        return Call("date_sub" if back else "date_add", (moment.expression, _days_of(interval.expression)), DATE)
    kind = TIMESTAMP_NTZ if moment.type == TIMESTAMP_NTZ else TIMESTAMP
    operands = with_type(moment.start, moment.expression, kind), with_type(0, interval.expression, INTERVAL)
    return Call(site.function, operands, kind)


def _days_of(interval: Expression) -> Expression:
    """Returns the number of days of an interval of days."""
    if isinstance(interval, Literal):
        return Literal(None if interval.value is None else int(interval.value) // 86_400_000_000, INT)
    return Call("days_of_interval", (interval,), INT)


def _months_of(interval: Expression) -> Expression:
    """Returns the number of months of an interval of months, as a literal if it is one."""
    return Literal(interval.value, INT) if isinstance(interval, Literal) else interval


def _sum_of_intervals(site: Site, left: Argument, right: Argument) -> Expression:
    kind = left.type if left.type == right.type else INTERVAL
    return Call(site.function, tuple(with_type(one.start, one.expression, kind) for one in (left, right)), kind)


def _meaningless(site: Site, left: Argument, right: Argument) -> ExpressionRefusal:
    problem = f"{left.type} {site.function} {right.type} is not defined"
    kinds = (left.type.kind, right.type.kind)
    if set(kinds) <= set(INTERVALS):
        return ExpressionRefusal(
            site.start,
            problem,
            f"add one after the other: `ts + {text_of(left.expression)} {site.function} {text_of(right.expression)}`",
        )
    number = right if left.type.kind in MOMENTS else left
    if number.type.kind in (*NUMERIC, "decimal") and {"timestamp", "timestamp_ntz"} & set(kinds):
        how = f"{site.function} {text_of(number.expression)} * interval 1 second"
        return ExpressionRefusal(site.start, problem, f"name the unit: `ts {how}`")
    return ExpressionRefusal(site.start, problem, "add an interval: `ts + interval 1 day`")


def scale_interval(site: Site, left: Argument, right: Argument) -> Expression:
    """Types `interval * number`, `number * interval` and `interval / number`."""
    if site.function == "*" and left.type.kind not in INTERVALS:
        left, right = right, left
    if left.type.kind not in INTERVALS or right.type.kind in INTERVALS:
        problem = f"{left.type} {site.function} {right.type} is not defined"
        raise ExpressionRefusal(site.start, problem, "count a unit first: `timestampdiff(SECOND, a, b)`")
    if right.type.kind not in _NUMBERS:
        raise site.refuse(right, "a number")
    kind = BIGINT if right.type.kind in (*INTEGRAL, "void") else right.type if right.type.kind == "decimal" else DOUBLE
    return _scaled(left.expression, with_type(right.start, right.expression, kind), site.function)


def _scaled(interval: Expression, number: Expression, function: str = "*") -> Expression:
    kind = MONTHS if interval.type == MONTHS else INTERVAL
    name = "multiply_interval" if function == "*" else "divide_interval"
    return Call(name, (interval, number), kind)


def negate_interval(argument: Argument) -> Expression:
    """Types `- interval`."""
    if isinstance(argument.expression, Literal) and argument.expression.value is not None:
        return Literal(-int(argument.expression.value), argument.type)
    return Call("multiply_interval", (argument.expression, Literal(-1, BIGINT)), argument.type)


@resolves("make_dt_interval", takes=(0, 4))
def _interval_of_time(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    """Types a function of days, hours, minutes and seconds, which may have a fraction. Omitted arguments are 0."""
    whole = [site.integer(argument) for argument in arguments[:3]]
    seconds = [seconds_of(site, argument, _SECONDS) for argument in arguments[3:]] or [Literal("0", _SECONDS)]
    return site.call(INTERVAL, *whole, *[0] * (3 - len(whole)), *seconds)


@resolves("make_ym_interval", takes=(0, 2))
def _interval_of_months(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    return site.call(MONTHS, *map(site.integer, arguments), *[0] * (2 - len(arguments)))


def seconds_of(site: Site, argument: Argument, kind: DataType) -> Expression:
    """Returns seconds as a decimal with six fractional digits."""
    if argument.type.kind not in (*NUMERIC, "decimal", "void"):
        raise site.refuse(argument, "a number")
    return with_type(argument.start, argument.expression, kind)


def _unit(argument: Argument, units: tuple[str, ...]) -> Literal:
    literal = argument.expression
    word = str(literal.value).lower() if isinstance(literal, Literal) else ""
    if word not in units:
        known = ", ".join(units).upper()
        raise ExpressionRefusal(argument.start, f"`{word or text_of(literal)}` is not a unit", f"use one of {known}")
    return Literal(word, STRING)


@resolves("timestampadd", takes=3)
def _timestamp_add(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    unit, number, moment = arguments
    kind = TIMESTAMP_NTZ if moment.type == TIMESTAMP_NTZ else TIMESTAMP
    moved = with_type(moment.start, site.moment(moment), kind)
    return Call("timestampadd", (_unit(unit, UNITS), site.bigint(number), moved), kind)


@resolves("timestampdiff", takes=3)
def _timestamp_difference(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    unit, start, end = arguments
    units = tuple(one for one in UNITS if one != "dayofyear")
    return Call("timestampdiff", (_unit(unit, units), site.timestamp(start), site.timestamp(end)), BIGINT)


simple("date integer", DATE, "date_sub", "add_months")


@resolves("date_add", takes=(2, 3))
def _date_add(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    if len(arguments) == 3:
        return _timestamp_add(site, arguments)
    return site.call(DATE, site.date(arguments[0]), site.integer(arguments[1]))


@resolves("datediff", takes=(2, 3))
def _date_difference(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    if len(arguments) == 3:
        return _timestamp_difference(site, arguments)
    return site.call(INT, *map(site.date, arguments))
