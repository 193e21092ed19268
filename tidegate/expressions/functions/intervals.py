"""Typing rules of date, timestamp and interval arithmetic, and of functions that create intervals or count units.

An interval is a value only inside expressions. It has one of Spark's three types: `interval` (microseconds), `months`,
and `calendar_interval`, which `make_interval` returns (months, days and microseconds).
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
from tidegate.expressions.functions.core import Argument, Function, Resolve, Site, check_count, simple
from tidegate.expressions.intervals import CALENDAR_INTERVAL, DAYS, MONTHS
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
    if interval.type == CALENDAR_INTERVAL:
        function = "subtract_interval" if back else "add_interval"
        return Call(function, (moment.expression, interval.expression), moment.type)
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
    if left.type == CALENDAR_INTERVAL:
        problem = f"`{site.function}` of a result of `make_interval` is not supported"
        raise ExpressionRefusal(left.start, problem, "multiply its arguments: `make_interval(0, 0, 0, 0, 0, 0, 2 * n)`")
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
    if argument.type == CALENDAR_INTERVAL:
        raise ExpressionRefusal(
            argument.start,
            "a result of `make_interval` cannot be negated",
            f"subtract it: `ts - {text_of(argument.expression)}`",
        )
    if isinstance(argument.expression, Literal) and argument.expression.value is not None:
        return Literal(-int(argument.expression.value), argument.type)
    return Call("multiply_interval", (argument.expression, Literal(-1, BIGINT)), argument.type)


def _made(name: str, parameters: str, kind: DataType) -> Resolve:
    """Types a function of integers, the last of which may be seconds with a fraction. Omitted arguments are 0."""
    words = parameters.split()

    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 0, len(words))
        typed: list[Expression] = []
        for word, argument in zip(words, arguments, strict=False):
            typed.append(seconds_of(site, argument, _SECONDS) if word == "seconds" else site.integer(argument))
        typed += [Literal("0", _SECONDS) if word == "seconds" else Literal(0, INT) for word in words[len(typed) :]]
        return Call(name, tuple(typed), kind)

    return resolve


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


def _timestamp_add(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 3, 3)
    unit, number, moment = arguments
    if number.type.kind not in (*INTEGRAL, "void"):
        raise site.refuse(number, "an integer")
    kind = TIMESTAMP_NTZ if moment.type == TIMESTAMP_NTZ else TIMESTAMP
    return Call(
        "timestampadd",
        (
            _unit(unit, UNITS),
            with_type(number.start, number.expression, BIGINT),
            with_type(moment.start, site.moment(moment), kind),
        ),
        kind,
    )


def _timestamp_difference(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 3, 3)
    unit, start, end = arguments
    units = tuple(one for one in UNITS if one != "dayofyear")
    return Call("timestampdiff", (_unit(unit, units), site.timestamp(start), site.timestamp(end)), BIGINT)


def _with_unit(with_unit: Resolve, without: Resolve) -> Resolve:
    """Chooses the function with a unit if there are three arguments."""

    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        return (with_unit if len(arguments) == 3 else without)(site, arguments)

    return resolve


FUNCTIONS = (
    Function(
        "make_interval",
        "time",
        "make_interval([years, months, weeks, days, hours, minutes, seconds])",
        "An interval to add or subtract. Omitted arguments are 0, and seconds may have a fraction.",
        _made("make_interval", "years months weeks days hours minutes seconds", CALENDAR_INTERVAL),
    ),
    Function(
        "make_dt_interval",
        "time",
        "make_dt_interval([days, hours, minutes, seconds])",
        "The same without months. It can also be compared, multiplied and divided.",
        _made("make_dt_interval", "days hours minutes seconds", INTERVAL),
    ),
    Function(
        "make_ym_interval",
        "time",
        "make_ym_interval([years, months])",
        "An interval of months.",
        _made("make_ym_interval", "years months", MONTHS),
    ),
    Function(
        "timestampadd",
        "time",
        "timestampadd(UNIT, n, ts), dateadd(UNIT, n, ts)",
        "A timestamp n units later. UNIT is YEAR, QUARTER, MONTH, WEEK, DAY, HOUR, MINUTE, SECOND, MILLISECOND or "
        "MICROSECOND, without quotes.",
        _timestamp_add,
    ),
    Function(
        "timestampdiff",
        "time",
        "timestampdiff(UNIT, start, end), datediff(UNIT, start, end)",
        "Whole units from start to end, rounded towards zero, a bigint.",
        _timestamp_difference,
        ("timediff",),
    ),
    Function(
        "date_add",
        "time",
        "date_add(d, days)",
        "Days later.",
        _with_unit(_timestamp_add, simple("date_add", "date integer", DATE)),
        ("dateadd",),
    ),
    Function("date_sub", "time", "date_sub(d, days)", "Days earlier.", simple("date_sub", "date integer", DATE)),
    Function(
        "datediff",
        "time",
        "datediff(end, start)",
        "Days between.",
        _with_unit(_timestamp_difference, simple("datediff", "date date", INT)),
        ("date_diff",),
    ),
    Function(
        "add_months",
        "time",
        "add_months(d, months)",
        "The date n months later, at most the last day of its month.",
        simple("add_months", "date integer", DATE),
    ),
)
