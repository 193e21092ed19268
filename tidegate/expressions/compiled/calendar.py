"""The proleptic Gregorian calendar on whole columns: converts numbers to days, and checks the supported range.

Polars panics on dates far outside the calendar, so values are kept within the years 1 to 9999. A result outside this
range fails its record, whereas Spark accepts years up to 294247.
"""

from __future__ import annotations

import polars as pl

from tidegate.datatypes import DATE, FIRST_DAY, FIRST_MOMENT, LAST_DAY, LAST_MOMENT, DataType

DAY = 86_400_000_000  # microseconds


def outside_calendar(physical: pl.Expr, kind: DataType) -> pl.Expr:
    """Returns where days (date) or microseconds (timestamp) leave the years 1 to 9999."""
    first, last = (FIRST_DAY, LAST_DAY) if kind == DATE else (FIRST_MOMENT, LAST_MOMENT)
    return (physical < first) | (physical > last)


def within_calendar(value: pl.Expr, kind: DataType) -> tuple[pl.Expr, pl.Expr]:
    """Returns a date or timestamp column that is safe to pass to Polars, and where it was not."""
    outside = outside_calendar(value.to_physical(), kind)
    return pl.when(~outside).then(value), outside


def days_of(year: pl.Expr, month: pl.Expr, day: pl.Expr) -> pl.Expr:
    """Returns the days since 1970 of a valid date, in 64 bits (the algorithm `days_from_civil` of Howard Hinnant)."""
    shifted = year - (month <= 2).cast(pl.Int64)
    era = shifted // 400
    of_era = shifted - era * 400
    moved = pl.when(month > 2).then(month - 3).otherwise(month + 9)
    of_year = (moved * 153 + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def is_date(year: pl.Expr, month: pl.Expr, day: pl.Expr) -> pl.Expr:
    """Returns whether the day exists in the years 1 to 9999."""
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    short = month.is_in([4, 6, 9, 11])
    longest = pl.when(month == 2).then(28 + leap.cast(pl.Int64)).when(short).then(30).otherwise(31)
    return year.is_between(1, 9999) & month.is_between(1, 12) & (day >= 1) & (day <= longest)
