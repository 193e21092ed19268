"""Conformance rows of patterns of dates, time zones, timestamps of parts, formats and rounding half to even."""

from __future__ import annotations

import datetime
from decimal import Decimal

from tests.expressions.compiled.like_spark import Case, Row

UTC = datetime.UTC
FORMS = (
    "d MMM yyyy",
    "dd MMMM yyyy",
    "M/d/yyyy",
    "MM/dd/yy",
    "ddMMMyyyy",
    "yyyy-MM-dd hh:mm a",
    "h:mm a, d MMM yyyy",
    "yyyy-MM-dd'T'HH:mm:ss" + 3 * "X",
    "yyyy-MM-dd HH:mm:ss X",
    "yyyy-MM-dd HH:mm:ss Z",
    "yyyy-MM-dd HH:mm:ssxxx",
    "yyyy-MM-dd HH:mm:ssXX",
    "yyyy-M-d H:m:s.SSS",
    "yyyy-MM-dd HH:mm:ssx",
)
DATES: tuple[Row, ...] = tuple(
    (text,)
    for text in (
        None,
        "",
        "3 sep 2020",
        "03 Sep 2020",
        "3 SEPTEMBER 2020",
        "03 September 2020",
        "31 Feb 2020",
        "3 Sept 2020",
        "0003 May 2020",
        "-3 May 2020",
        "3 May 20200",
        "1/2/2020",
        "01/02/2020",
        "13/1/2020",
        "01/02/20",
        "12/31/99",
        "03Sep2020",
        "03may2020",
        "2020-01-02 12:30 AM",
        "2020-01-02 12:30 pm",
        "2020-01-02 13:30 PM",
        "2020-01-02 00:30 AM",
        "5:04 pm, 3 Sep 2020",
        "12:00 Am, 3 Sep 2020",
        "2020-01-02T03:04:05Z",
        "2020-01-02T03:04:05z",
        "2020-01-02T03:04:05+02:00",
        "2020-01-02T03:04:05-00:30",
        "2020-01-02T03:04:05+18:00",
        "2020-01-02T03:04:05+18:01",
        "2020-01-02T03:04:05+19:00",
        "2020-01-02T03:04:05+02:60",
        "2020-01-02T03:04:05+2",
        "2020-01-02 03:04:05 +02",
        "2020-01-02 03:04:05 +0230",
        "2020-01-02 03:04:05 Z",
        "2020-01-02 03:04:05+02:00",
        "2020-01-02 03:04:05+0200",
        "2020-01-02 03:04:05Z",
        "2020-1-2 3:4:5.678",
        "2020-01-02 3:04:05.678",
        "2020-01-02 03:04:05+02",
    )
)
SHOWN = (
    "E",
    "EE",
    "EEE",
    "EEEE",
    "d MMMM yyyy",
    "d.MMM",
    "M",
    "h:mm a",
    "hh:mm:ss a",
    "H:m:s",
    "yy/MM/dd",
    3 * "X",
    "XX",
    "X",
    "x",
    "xxx",
    "Z",
    "EEE, dd MMM yyyy HH:mm:ss Z",
    "d.M.yyyy H:mm:ss.SS",
)
ZONES = ("Europe/Paris", "America/New_York", "UTC", "+05:30", "-18:00", "Asia/Kathmandu", "Pacific/Apia")


def _at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, micro: int = 0) -> object:
    return datetime.datetime(year, month, day, hour, minute, second, micro, UTC)


MOMENTS: tuple[Row, ...] = tuple(
    (moment,)
    for moment in (
        None,
        _at(2026, 1, 31, 12, 34, 56, 789012),
        _at(2020, 9, 3),
        _at(1, 1, 2),
        _at(9999, 12, 30, 23, 59, 59),
        _at(1970, 1, 1),
        _at(2026, 3, 29, 1, 30),
        _at(2026, 3, 29, 2, 30),
        _at(2026, 3, 29, 3, 0),
        _at(2026, 10, 25, 0, 30),
        _at(2026, 10, 25, 2, 30),
        _at(2026, 3, 8, 2, 30),
        _at(2026, 11, 1, 1, 30),
        _at(2011, 12, 30, 12),
        _at(1900, 1, 1),
        _at(1883, 11, 18, 12),
        _at(1940, 6, 14, 23),
    )
)

CASES = (
    Case(
        (
            *('try_to_timestamp(s, "' + form + '")' for form in FORMS),
            "try_to_date(s, 'd MMM yyyy')",
            "try_to_date(s)",
        ),
        "s string",
        DATES,
    ),
    Case(("try_to_timestamp(s)",), "s string", DATES[24:32]),
    Case(("to_timestamp(s, 'd MMM yyyy')", "to_date(s, 'd MMM yyyy')"), "s string", (*DATES[:3], *DATES[6:8])),
    Case(
        (
            *(f"date_format(t, '{form}')" for form in SHOWN),
            *(f"from_utc_timestamp(t, '{zone}')" for zone in ZONES),
            *(f"to_utc_timestamp(t, '{zone}')" for zone in ZONES),
            "convert_timezone('Europe/Paris', 'America/New_York', cast(t as timestamp_ntz))",
            "try_to_timestamp(t)",
            "try_to_date(t)",
        ),
        "t timestamp",
        MOMENTS,
    ),
    Case(
        (
            "make_timestamp(y, m, d, h, i, s)",
            "make_timestamp(y, m, d, h, i, 5)",
            "make_timestamp(y, m, d, h, i, s, 'Europe/Paris')",
            "make_timestamp(y, 2, 29, 23, 59, 60)",
            "make_timestamp(y, 1, 1, 0, 0, f)",
            "make_timestamp(y, 1, 1, 0, 0, 59.9999999D)",
        ),
        "y int, m int, d int, h int, i int, s decimal(8,6), f double",
        (
            (2026, 1, 31, 12, 34, Decimal("56.789012"), 1.5),
            (2024, 2, 29, 23, 59, Decimal("60.000000"), 0.1234565),
            (2025, 2, 29, 0, 0, Decimal("0.000000"), -0.1),
            (2, 1, 1, 0, 0, Decimal("59.999999"), 60.0),
            (2026, 13, 1, 0, 0, Decimal("1.000000"), 61.0),
            (2026, 1, 1, 24, 0, Decimal("1.000000"), float("nan")),
            (2026, 1, 1, 0, 60, Decimal("1.000000"), 1e12),
            (2026, 1, 1, 0, 0, Decimal("-1.000000"), 2.9999999),
            (2026, 1, 1, 0, 0, Decimal("60.000001"), None),
            (None, 1, 1, 0, 0, Decimal("1.000000"), 1.0),
            (2026, 1, 1, 0, 0, None, 1.0),
        ),
    ),
    Case(
        (
            "format_string('%s|%10s|%-10s|%.2s|%-8.1s|', s, s, s, s, s)",
            "format_string('%d|%5d|%-5d|%05d|%,d|%,15d|%0,15d', i, i, i, i, i, i, i)",
            "format_string('%d %-12d', t, l)",
            "format_string('%f|%.0f|%.2f|%10.3f|%-10.1f|%010.2f|%,.2f|%0,12.1f', d, d, d, d, d, d, d, d)",
            "printf('%s %s %s %s', i, l, d, f)",
            "format_string('%.3f %.10f', f, f)",
            "format_string('%2$s %1$s %s %s %%%n', i, s)",
            "format_string('%s %s', i > 0, null)",
            "format_string('plain')",
            "format_string('%s%d', 'a', 1)",
            "bround(d)",
            "bround(d, 2)",
            "bround(d, -1)",
            "bround(f, 1)",
            "bround(i)",
            "bround(l, 2)",
            "bround('2.5')",
        ),
        "s string, i int, t tinyint, l bigint, d double, f float",
        (
            ("abc", 5, 5, 5, 2.675, 0.125),
            ("ß\U0001f600", -5, -1, -1, -1.5, -2.5),
            ("", 0, 0, 0, 0.0, 0.0),
            (None, None, None, None, None, None),
            ("a", 1234567, 127, 2**63 - 1, 1234567.891, 16777216.0),
            ("a", -(2**31), -128, -(2**63), 1e20, 1.5),
            ("a", 1, 1, 1, float("nan"), float("nan")),
            ("a", 1, 1, 1, float("-inf"), float("inf")),
            ("a", 1, 1, 1, 0.5, 0.25),
            ("a", 1, 1, 1, 2.5, 0.35),
            ("a", 1, 1, 1, 1.0005, 0.75),
            ("a", 1, 1, 1, 1e-7, 3.5),
            ("a", 1, 1, 1, 9.995, 4.5),
            ("a", 1, 1, 1, -0.4, -0.5),
            ("a", 1, 1, 1, 15.0, 1e-10),
            ("a", 1, 1, 1, 4503599627370497.5, 3.0),
            ("a", 1, 1, 1, 99.99999999, 9.96),
            ("a", 1, 1, 1, 1e300, 3e38),
        ),
    ),
)
