"""Intervals and units of time: creating and scaling intervals, adding them to dates and timestamps, counting units.

A sum or product is computed in 128 bits, and fails its record if Spark's 32 or 64 bits are not enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial

import polars as pl

from tidegate.datatypes import DATE
from tidegate.expressions.compiled.calendar import DAY, days_of, outside_calendar, within_calendar
from tidegate.expressions.compiled.compiled import Compiled, compiles, plain, strict
from tidegate.expressions.compiled.decimals import signed
from tidegate.expressions.compiled.rowwise import RowFailed, by_row
from tidegate.expressions.expression import Call
from tidegate.expressions.intervals import MICROSECONDS
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind

_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_MONTHS_MAX = 200_000
"""More than this leads out of the calendar from any date."""
_WIDE = pl.Int128
_EXACT = Context(prec=60, rounding=ROUND_HALF_UP)
_LIMITS = {"months": 1 << 31, "interval": 1 << 63}
_MICROS = {**MICROSECONDS, "dayofyear": DAY}


def _wide(argument: Compiled) -> pl.Expr:
    """Returns a number, or the number of an interval or moment, in 128 bits."""
    return argument.value.to_physical().cast(pl.Int64).cast(_WIDE)


def _within(number: pl.Expr, limit: int) -> tuple[pl.Expr, pl.Expr]:
    """Returns a 128-bit number in 64 bits, NULL if it does not fit, and where it does not fit."""
    outside = (number < -limit) | (number >= limit)
    return pl.when(~outside).then(number).cast(pl.Int64), outside


@compiles("make_dt_interval")
def _make_of_time(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    days, hours, minutes, seconds = map(_wide, arguments)
    micros = days * DAY + hours * MICROSECONDS["hour"] + minutes * MICROSECONDS["minute"] + seconds
    return _interval(call, arguments, micros)


@compiles("make_ym_interval")
def _make_of_months(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    years, months = map(_wide, arguments)
    return _interval(call, arguments, years * 12 + months)


def _interval(
    call: Call, arguments: Sequence[Compiled], number: pl.Expr, *own: tuple[FailureKind, pl.Expr]
) -> Compiled:
    value, outside = _within(number, _LIMITS[call.type.kind])
    checks = (*own, (FailureKind.ARITHMETIC_OVERFLOW, outside))
    return strict(call, arguments, value.cast(polars_type(call.type)), *checks)


@compiles("multiply_interval", "divide_interval")
def _scale(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Multiplies or divides an interval, rounded half away from zero, as in Spark."""
    divides = call.function == "divide_interval"
    zero = [(FailureKind.DIVIDE_BY_ZERO, arguments[1].value == 0)] if divides else []
    if arguments[1].type.kind == "decimal":
        limit = _LIMITS[call.type.kind]
        kinds = [FailureKind.DIVIDE_BY_ZERO] if divides else []
        each = partial(_scaled_by_decimal, divides=divides, limit=limit)
        return by_row(call, arguments, each, *kinds, FailureKind.ARITHMETIC_OVERFLOW)
    if arguments[1].type.kind == "double":
        return _scaled_by_double(call, arguments, zero)
    interval, number = map(_wide, arguments)
    if not divides:
        return _interval(call, arguments, interval * number)
    size, divisor = interval.abs(), number.abs()
    quotient = (size * 2 + divisor) // (divisor * 2)
    negative = (interval < 0) != (number < 0)
    return _interval(call, arguments, signed(quotient, negative), *zero)


def _scaled_by_double(
    call: Call, arguments: Sequence[Compiled], zero: Sequence[tuple[FailureKind, pl.Expr]]
) -> Compiled:
    interval = arguments[0].value.to_physical().cast(pl.Float64)
    zeros = interval * 0.0  # spreads a constant divisor: see `exact_quotient`
    number = arguments[1].value
    found = interval / (zeros + number) if call.function == "divide_interval" else interval * number
    rounded = found.round(0, mode="half_away_from_zero")
    limit = float(_LIMITS[call.type.kind])
    fits = rounded.is_finite() & (rounded >= -limit) & (rounded < limit)
    value = pl.when(fits).then(rounded).cast(pl.Int64).cast(polars_type(call.type))
    return strict(call, arguments, value, *zero, (FailureKind.ARITHMETIC_OVERFLOW, ~fits))


def _scaled_by_decimal(interval: int, number: Decimal, *, divides: bool, limit: int) -> int:
    if divides and not number:
        raise RowFailed(FailureKind.DIVIDE_BY_ZERO)
    exact = _EXACT.divide(Decimal(interval), number) if divides else _EXACT.multiply(Decimal(interval), number)
    found = int(exact.to_integral_value(ROUND_HALF_UP))
    if not -limit <= found < limit:
        raise RowFailed(FailureKind.ARITHMETIC_OVERFLOW)
    return found


def _truncated(number: pl.Expr, unit: int) -> pl.Expr:
    return pl.when(number < 0).then(-(-number // unit)).otherwise(number // unit)


plain({"days_of_interval": lambda interval: _truncated(interval.to_physical(), DAY).cast(pl.Int32)})


@compiles("add_months")
def _add_months(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return _moved(call, arguments, months=_wide(arguments[1]))


@compiles("timestampadd")
def _timestamp_add(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    unit, number, moment = str(arguments[0].constant), arguments[1], arguments[2]
    order = (moment, number)
    if unit in _MONTHS:
        return _moved(call, order, months=_wide(number) * _MONTHS[unit])
    return _moved(call, order, more=_wide(number) * _MICROS[unit])


def _moved(
    call: Call,
    arguments: Sequence[Compiled],
    months: pl.Expr | None = None,
    more: pl.Expr | None = None,
) -> Compiled:
    """Moves a date or timestamp by months (at most to the last day of the month), then by days or microseconds."""
    value, outside = within_calendar(arguments[0].value, arguments[0].type)
    found = value.to_physical().cast(pl.Int64)
    if months is not None:
        found, left = _months_later(found, months, unit=1 if call.type == DATE else DAY)
        outside = outside | left
    if more is not None:
        found = found.cast(_WIDE) + more
    outside = outside | outside_calendar(found, call.type)
    result = pl.when(~outside).then(found).cast(pl.Int32 if call.type == DATE else pl.Int64)
    return strict(call, arguments, result.cast(polars_type(call.type)), (FailureKind.DATETIME_OVERFLOW, outside))


def _months_later(physical: pl.Expr, months: pl.Expr, unit: int) -> tuple[pl.Expr, pl.Expr]:
    """Adds months in 64 bits, and returns where the result leaves the calendar. `unit`: the length of a day in
    `physical`.

    The steps run in a frame of their own: a single expression would repeat them hundreds of times.
    """
    bounded = months.clip(-_MONTHS_MAX, _MONTHS_MAX).cast(pl.Int64)
    pairs = pl.struct(physical.alias("at"), bounded.alias("months"))
    found = pairs.map_batches(partial(_later, unit=unit), return_dtype=pl.Int64, is_elementwise=True)
    return found, found.is_null() & physical.is_not_null() & months.is_not_null()


def _later(pairs: pl.Series, *, unit: int) -> pl.Series:
    frame = pairs.struct.unnest()
    date = (pl.col("at") // unit).cast(pl.Int32).cast(pl.Date)
    parts = frame.select(
        date.dt.day().cast(pl.Int64).alias("day"),
        (pl.col("at") % unit).alias("clock"),
        (date.dt.year().cast(pl.Int64) * 12 + date.dt.month().cast(pl.Int64) - 1 + pl.col("months")).alias("total"),
    ).with_columns(pl.when(pl.col("total").is_between(12, 119_999)).then(pl.col("total")))
    total, one = pl.col("total"), pl.lit(1, pl.Int64)
    numbered = parts.with_columns(
        year=total // 12, month=total % 12 + 1, last=(total + 1) // 12, after=(total + 1) % 12 + 1
    )
    first = days_of(pl.col("year"), pl.col("month"), one)
    following = days_of(pl.col("last"), pl.col("after"), one)
    counted = numbered.with_columns(first=first, following=following)
    day = pl.min_horizontal("day", pl.col("following") - pl.col("first"))
    moved = (pl.col("first") + day - 1) * unit + pl.col("clock")
    return counted.select(pl.when(total.is_not_null()).then(moved).alias("found"))["found"]


@compiles("timestampdiff")
def _timestamp_difference(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    unit, start, end = str(arguments[0].constant), arguments[1], arguments[2]
    first, last = (one.value.cast(pl.Int64) for one in (start, end))
    if unit not in _MONTHS:
        return strict(call, (start, end), _truncated(last - first, MICROSECONDS[unit]))
    value, outside = _months_between(start, end)
    return strict(call, (start, end), _truncated(value, _MONTHS[unit]), (FailureKind.DATETIME_OVERFLOW, outside))


def _months_between(start: Compiled, end: Compiled) -> tuple[pl.Expr, pl.Expr]:
    """Counts whole months. An incomplete day does not count: the end is first moved to the previous or the next day."""
    (first, before), (last, beyond) = (within_calendar(one.value, one.type) for one in (start, end))
    days = [one.to_physical() // DAY for one in (first, last)]
    clocks = [one.to_physical() % DAY for one in (first, last)]
    less = (days[1] > days[0]) & (clocks[1] < clocks[0])
    more = (days[1] < days[0]) & (clocks[1] > clocks[0])
    whole = days[1] - less.cast(pl.Int64) + more.cast(pl.Int64)
    packed = [_packed(one.cast(pl.Int32).cast(pl.Date)) for one in (days[0], whole)]
    return _truncated(packed[1] - packed[0], 32), before | beyond


def _packed(date: pl.Expr) -> pl.Expr:
    """Packs months and days into one number, with 32 days to a month."""
    return (date.dt.year().cast(pl.Int64) * 12 + date.dt.month().cast(pl.Int64)) * 32 + date.dt.day().cast(pl.Int64)
