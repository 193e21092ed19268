"""Conformance rows of intervals: made, scaled, added, compared; and of functions that count units."""

from __future__ import annotations

import datetime
from decimal import Decimal

from tests.expressions.compiled.cases_time import DATES, MOMENTS, moment
from tests.expressions.compiled.like_spark import Case

_AT = moment("2026-01-31T12:34:56.789012")
_DAY = datetime.date(2026, 1, 31)
_INTEGERS = (0, -1, 7, -13, 1000, None)
_BIGINTS = (0, 1, -7, 2**40, 2**63 - 1, None)
_DOUBLES = (0.0, 0.5, -2.5, 0.1, 1e-9, 3.0, 1e300, float("nan"), None)
_DECIMALS = (*map(Decimal, ("0", "0.5", "-0.5", "1.5", "0.333333", "-2.25", "999999.999999")), None)
UNITS = ("YEAR", "quarter", "MONTH", "week", "DAY", "hour", "MINUTE", "second", "MILLISECOND", "microsecond")
_PAIRS = (
    ("2026-01-31T12:00:00", "2026-02-28T12:00:00"),
    ("2026-01-31T12:00:00", "2026-03-01T11:00:00"),
    ("2026-03-01T11:00:00", "2026-01-31T12:00:00"),
    ("2026-02-01T00:00:00", "2026-01-31T23:59:59.999999"),
    ("2024-02-29T10:00:00", "2025-02-28T10:00:00"),
    ("2024-02-29T10:00:00", "2025-03-01T09:59:59.999999"),
    ("1969-12-31T23:59:59.5", "1970-01-01T00:00:00.25"),
    ("0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"),
    ("9999-12-31T23:59:59.999999", "0001-01-01T00:00:00"),
    ("2026-01-31T12:00:00", "2026-01-31T12:00:00"),
)
PAIRS = (*((moment(start), moment(end)) for start, end in _PAIRS), (None, _AT), (_AT, None))

CASES = (
    Case(
        (
            "t + interval '1' second * n",
            "t + n * interval 1 second",
            "t - n * interval '1' minute",
            "t + interval 1 month * n",
            "t - interval 1 year * n",
            "t + interval 90 seconds / n",
            "t - interval 100 months / n",
            "t + make_dt_interval(n)",
            "t + make_dt_interval(n, 1, n, 0.000001)",
            "t + make_dt_interval(0, 0, 0, n)",
            "t - make_ym_interval(n)",
            "t + make_ym_interval(1, n)",
            "t + (- (interval 1 second * n))",
            "t + (interval 1 second * n + interval 1 day)",
            "t + interval '1' second * null",
            "dateadd(SECOND, n, t)",
            "date_add(HOUR, n, t)",
        ),
        "t timestamp, n int",
        (*((_AT, n) for n in _INTEGERS), (moment("2024-02-29T00:00:00"), 1), (None, 1)),
    ),
    Case(
        tuple(f"timestampadd({unit}, n, t)" for unit in (*UNITS, "dayofyear")),
        "t timestamp, n int",
        (*((_AT, n) for n in _INTEGERS), (moment("2024-02-29T23:00:00"), 12), (None, 1)),
    ),
    Case(
        (
            "t + interval 1 microsecond * n",
            "t + interval 3 days / n",
            "interval 1 second * n > interval 0 seconds",
            "(interval 1 month * n) > interval 2 years",
            "t + interval '1' month / n",
        ),
        "t timestamp, n bigint",
        tuple((_AT, n) for n in _BIGINTS),
    ),
    Case(
        (
            "t + interval 1 second * n",
            "t + interval 1 second / n",
            "t + interval 1 day / n",
            "t + interval 5 months * n",
            "t + interval 5 months / n",
        ),
        "t timestamp, n double",
        tuple((_AT, n) for n in _DOUBLES),
    ),
    Case(
        (
            "t + interval 1 second * n",
            "t + interval 1 microsecond * n",
            "t + interval 5 months * n",
            "t + interval 1 second / n",
            "t + interval 7 months / n",
            "t + make_dt_interval(0, 0, 0, n)",
        ),
        "t timestamp, n decimal(12,6)",
        tuple((_AT, n) for n in _DECIMALS),
    ),
    Case(
        (
            "d + interval 1 month * n",
            "d + interval '1' day * n",
            "d + interval '1' hour * n",
            "d + if(n > 0, interval 1 month, null)",
            "add_months(d, n)",
            "add_months(d, -n)",
            "d + make_ym_interval(0, n)",
            "dateadd(d, n)",
            "dateadd(MONTH, n, d)",
            "timestampadd(DAY, n, d)",
            "d + coalesce(interval 1 month * n, interval 1 year)",
            "d + (interval 1 day + interval 2 days)",
            "d - (date'2026-02-03' - d)",
            "d + (d - date'2026-01-01') / 2",
            "unix_timestamp(d)",
        ),
        "d date, n int",
        tuple((day, n) for (day,) in (DATES[2], *DATES[8:]) for n in (-1, 13, None)),
    ),
    Case(
        (
            *(f"timestampdiff({unit}, a, b)" for unit in UNITS),
            "datediff(MINUTE, a, b)",
            "timediff(HOUR, a, b)",
            "date_diff(month, a, b)",
            "datediff(b, a)",
            "(b - a) / 2 > interval 1 hour",
            "a + (b - a) / 2",
            "a + (b - a) * 0.5",
            "-(b - a) < interval 1 day",
        ),
        "a timestamp, b timestamp",
        PAIRS,
    ),
    Case(
        (
            "timestampdiff(HOUR, a, b)",
            "timestampadd(MONTH, 1, a)",
            "a + interval 1 second * 5",
        ),
        "a timestamp_ntz, b timestamp_ntz",
        tuple((start and start.replace(tzinfo=None), end and end.replace(tzinfo=None)) for start, end in PAIRS[:8]),
    ),
    Case(("datediff(DAY, a, b)", "timestampdiff(MONTH, a, b)"), "a date, b date", ((_DAY, DATES[3][0]), (None, _DAY))),
    Case(
        (
            "t + interval '1 02:00:00' day to second",
            "t + interval '-1 02:03' day to minute",
            "t - interval '1 2' day to hour",
            "t + interval '12:30' hour to minute",
            "t + interval '100:30:01.5' hour to second",
            "t + interval '90:00.000001' minute to second",
            "t + interval '1-6' year to month",
            "t + interval -'1-6' year to month",
            "t + interval - '-1 02:00:00' day to second",
            "t + interval -'3' day",
            "unix_timestamp(t)",
            "to_unix_timestamp(t, 'yyyy')",
            "extract(second from t)",
            "date_part('SECS', t)",
        ),
        "t timestamp",
        MOMENTS[2:8] + MOMENTS[10:],
    ),
    Case(("unix_timestamp(t)",), "t timestamp", MOMENTS),
    Case(
        (
            "t + interval 1 year * n",
            "t + make_ym_interval(n)",
            "t + make_dt_interval(n)",
            "t + interval 30000 days * n",
            "timestampadd(YEAR, n, t)",
        ),
        "t timestamp, n int",
        ((_AT, 2**31 - 1),),
    ),
    Case(("interval 3 days / n < interval 1 second",), "n bigint", ((-(2**63),), (-1,))),
    Case(
        ("unix_timestamp(s)", "unix_timestamp(s, 'yyyy-MM-dd')"),
        "s string",
        (("2026-01-31 12:00:00",), ("2026-01-31",), ("x",), ("1969-12-31 23:59:59",), (None,)),
    ),
)
