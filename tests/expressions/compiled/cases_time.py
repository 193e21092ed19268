"""Conformance rows of dates, timestamps, intervals, arrays and structs."""

from __future__ import annotations

import datetime

from tests.expressions.compiled.like_spark import Case

UTC = datetime.UTC


def moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=UTC)


MOMENTS = (
    *tuple(
        (moment(text),)
        for text in (
            "1970-01-01T00:00:00",
            "1969-12-31T23:59:59.999999",
            "2000-02-29T12:34:56.789123",
            "2024-12-30T00:00:00",
            "2021-01-03T23:59:59.100000",
            "1900-03-01T01:02:03",
            "1582-10-15T00:00:00",
            "1582-10-04T12:00:00",
            "0001-01-01T00:00:00",
            "9999-12-31T23:59:59.999999",
            "2026-01-31T10:20:30.001",
        )
    ),
    (None,),
)
DATES = (
    *tuple(
        (datetime.date.fromisoformat(text),)
        for text in (
            "1970-01-01",
            "1969-12-31",
            "2000-02-29",
            "2024-12-30",
            "2021-01-03",
            "1900-03-01",
            "0001-01-01",
            "9999-12-31",
            "2026-01-31",
            "2023-08-31",
        )
    ),
    (None,),
)
UNITS = (
    "year",
    "YYYY",
    "yy",
    "quarter",
    "month",
    "MON",
    "mm",
    "week",
    "day",
    "dd",
    "hour",
    "minute",
    "second",
    "millisecond",
    "microsecond",
)
FIELDS = ("year", "quarter", "month", "day", "dayofmonth", "dayofweek", "weekday", "dayofyear", "weekofyear")
TEXTS = tuple(
    (text,)
    for text in (
        "2026-01-31",
        "2026-1-3",
        "2026",
        "2026-02",
        " 2026-01-31 ",
        "2026-01-31 12:34:56",
        "2026-01-31T12:34:56.789",
        "2026-01-31T12:34:56.123456789",
        "2026-01-31 1:2:3",
        "2026-01-31 12:34",
        "2026-01-31T12:34:56Z",
        "2026-01-31T12:34:56+02:00",
        "2026-01-31T12:34:56-01:30",
        "2026-01-31 12:34:56 UTC",
        "2026-01-31T00:00:00.",
        "2026-02-30",
        "2026-13-01",
        "2026-01-31 24:00:00",
        "2026-01-31 12:60:00",
        "2024-02-29",
        "1900-02-29",
        "",
        "x",
        "2026/01/31",
        "26-01-31",
        "2026-01-31T",
        "2026-01-31x",
        "2026-01-31 x",
        "1969-12-31 23:59:59.999999",
        "2026-01-31T12:34:56+19:00",
        "2026-1",
        "20260131",
        "2026-01-31 12:34:56GMT",
        "2026-01-31 12:34:56+1:00",
        "2026-01-31 12",
        "2026-01-31T9Z",
        "2026-01-31 12:34+02:00",
        *(
            f"2026-01-31 12:34:56{offset}"
            for offset in ("+0200", "-1230", " +0200", "+0260", "+1801", "+200", "+02000")
        ),
        None,
    )
)
PATTERNED = tuple(
    (text,)
    for text in (
        "2026-01-31 12:34:56",
        "2026-01-31 12:34:56.789",
        "2026-01-31 12:34:56.7",
        "2026-01-31 12:34:56.",
        "2026-01-31 12:34:56.7891",
        "31.01.2026",
        "2026-1-31 12:34:56",
        "2026-02-30 00:00:00",
        "20260131",
        "2026-01-31T12:34:56",
        "2026-01-31t12:34:56",
        " 2026-01-31 12:34:56",
        "2026-01-31 25:00:00",
        "",
        None,
    )
)
NUMBERS = tuple((number,) for number in (0, 1, -1, 1_700_000_000, -1_700_000_001, 253402300799, -62135596800, None))
LISTS: tuple[tuple[list[int | None] | None], ...] = (
    ([1, 2, 3],),
    ([],),
    ([None, 1],),
    ([None],),
    (None,),
    ([5],),
    ([3, 1, 2, 3],),
)

CASES = (
    Case(tuple(f"date_trunc('{unit}', t)" for unit in UNITS), "t timestamp", MOMENTS),
    Case(
        tuple(f"{field}(t)" for field in (*FIELDS, "hour", "minute", "second"))
        + tuple(
            f"extract({field} from t)"
            for field in ("year", "quarter", "month", "week", "day", "dow", "doy", "hour", "minute")
        )
        + ("date_part('year', t)", "datepart('doy', t)"),
        "t timestamp",
        MOMENTS,
    ),
    Case(
        (
            "unix_seconds(t)",
            "unix_millis(t)",
            "unix_micros(t)",
            "cast(t as string)",
            "cast(t as date)",
            "cast(t as bigint)",
            "cast(t as double)",
            "cast(t as float)",
            "try_cast(t as int)",
            "try_cast(t as smallint)",
            "to_timestamp(t)",
            "to_date(t)",
            "date_format(t, 'yyyy-MM-dd HH:mm:ss')",
            "date_format(t, 'dd.MM.yyyy')",
            "date_format(t, \"yyyyMMdd'T'HHmmss.SSS\")",
            "date_format(t, 'SSSSSS')",
            "date_format(t, 'HH:mm:ss.S')",
            "date_format(t, 'ss.SSSSS %')",
        ),
        "t timestamp",
        MOMENTS,
    ),
    Case(
        (
            "t + interval 1 day",
            "t - interval '1' hour",
            "t + interval 1 day 2 hours 3 minutes",
            "interval 90 seconds + t",
            "t + interval 1 month",
            "t - interval 13 months",
            "t + interval '1' year",
            "t + interval '1.5' second",
            "t - interval 1 week",
        ),
        "t timestamp",
        MOMENTS[2:8] + MOMENTS[10:],
    ),
    Case(
        (
            "a - b > interval 1 hour",
            "a - b = b - a",
            "a > b",
            "a <=> b",
            "a between b and b + interval 1 day",
            "greatest(a, b)",
            "coalesce(a, b)",
            "a = cast(b as date)",
            "a - b < interval -1 day",
            "(a - b) + interval 1 day > interval 0 seconds",
        ),
        "a timestamp, b timestamp",
        (
            (moment("2026-01-02T00:00:00"), moment("2026-01-01T00:00:00")),
            (moment("2026-01-01T00:30:00"), moment("2026-01-01T00:00:00")),
            (None, moment("2026-01-01T00:00:00")),
            (moment("1969-01-01T00:00:00"), moment("2026-01-01T00:00:00")),
        ),
    ),
    Case(
        (
            "t >= '2026-01-01'",
            "t < '2026-01-31 11:00:00'",
            "t = timestamp'2026-01-31 10:20:30.001'",
            "t > date'2000-02-29'",
            "t in ('1970-01-01', '2000-01-01')",
        ),
        "t timestamp",
        MOMENTS,
    ),
    Case(
        tuple(f"{field}(d)" for field in FIELDS)
        + tuple(f"trunc(d, '{unit}')" for unit in ("year", "YY", "quarter", "month", "MM", "week"))
        + (
            "cast(d as string)",
            "cast(d as timestamp)",
            "unix_date(d)",
            "to_date(d)",
            "to_timestamp(d)",
            "last_day(d)",
            "d > '2000-01-01'",
            "d = date'2000-02-29'",
            "datediff(d, date'2000-01-01')",
            "date_diff(date'2000-01-01', d)",
            "hour(d)",
            "date_format(d, 'yyyy')",
        ),
        "d date",
        DATES,
    ),
    Case(
        (
            "d + 1",
            "1 + d",
            "d - 30",
            "date_add(d, 365)",
            "date_sub(d, 1)",
            "add_months(d, 1)",
            "add_months(d, -11)",
            "d + interval 1 month",
            "d - interval '2' day",
            "d + interval 1 year",
            "d + interval 36 hours",
            "d + interval 24 hours",
            "d - interval 1 day 0 hours",
            "d - interval 2 weeks",
            "d + (- interval 1 day)",
            "date_add(d, n)",
            "d - n",
            "d - date'2020-01-01' > interval 1 day",
        ),
        "d date, n int",
        tuple((day, n) for (day,) in (*DATES[1:6], *DATES[8:]) for n in (0, -400, None)),
    ),
    Case(("try_cast(s as timestamp)", "try_cast(s as date)"), "s string", TEXTS),
    Case(
        ("cast(s as timestamp)", "to_timestamp(s)", "to_date(s)", "year(s)", "date_trunc('day', s)", "hour(s)"),
        "s string",
        TEXTS[4:6] + TEXTS[15:16] + TEXTS[22:23] + TEXTS[-1:],
    ),
    Case(
        (
            "to_timestamp(s, 'yyyy-MM-dd HH:mm:ss')",
            "to_timestamp(s, 'yyyy-MM-dd HH:mm:ss.SSS')",
            "to_date(s, 'dd.MM.yyyy')",
            "to_date(s, 'yyyyMMdd')",
            "to_timestamp(s, \"yyyy-MM-dd'T'HH:mm:ss\")",
        ),
        "s string",
        PATTERNED,
    ),
    Case(
        (
            "timestamp_seconds(n)",
            "timestamp_millis(n)",
            "timestamp_micros(n)",
            "cast(n as timestamp)",
            "from_unixtime(n)",
            "from_unixtime(n, 'yyyy')",
        ),
        "n bigint",
        NUMBERS,
    ),
    Case(
        ("cast(x as timestamp)",),
        "x double",
        ((0.0,), (1.5,), (-1.5,), (1e9 + 0.123456,), (float("nan"),), (float("inf"),), (None,)),
    ),
    Case(
        (
            "date_from_unix_date(n)",
            "make_date(2000 + n, 2, 29)",
            "make_date(2020, n, 1)",
            "make_date(2020, n, 31)",
            "make_date(2020, 13, n)",
        ),
        "n int",
        ((0,), (1,), (-1,), (4,), (100,), (12,), (13,), (None,)),
    ),
    Case(
        (
            "size(a)",
            "cardinality(a)",
            "array_size(a)",
            "a[0]",
            "a[2]",
            "element_at(a, 1)",
            "element_at(a, -1)",
            "try_element_at(a, 2)",
            "try_element_at(a, -3)",
            "get(a, 0)",
            "get(a, 5)",
            "get(a, -1)",
            "array_contains(a, 1)",
            "array_contains(a, 9)",
            "cast(a as array<bigint>)",
            "cast(a as array<string>)",
            "a = array(1, 2, 3)",
            "coalesce(a, array(0))",
            "if(size(a) > 0, a[0], -1)",
        ),
        "a array<int>",
        LISTS,
    ),
    Case(
        (
            "a[n]",
            "element_at(a, n)",
            "get(a, n)",
            "array_contains(a, n)",
            "array(n, 2, n)",
            "try_element_at(array(1, 2), n + 5)",
        ),
        "a array<int>, n int",
        (([1, 2], 0), ([1, 2], 1), ([1, 2], -1), ([1, 2], 2), ([1, 2], None), ([1, None], 3), (None, 1), ([], 0)),
    ),
    Case(
        (
            "a[0]",
            "array_join(a, '-')",
            "array_contains(a, 'x')",
            "upper(a[1])",
            "array_join(split('p,q', ','), '')",
            "split('a b', ' ')[1]",
        ),
        "a array<string>",
        ((["x", "y"],), (["", "z"],), ([None, "x"],), (None,), ([None, None],)),
    ),
    Case(
        ("array_contains(a, x)", "a[0] = x"),
        "a array<double>, x double",
        (([1.0, float("nan")], float("nan")), ([0.0], -0.0), ([1.0], None), ([None], 1.0)),
    ),
    Case(
        (
            "s.a",
            "s.B",
            "s.a + 1",
            "upper(s.b)",
            "s",
            "named_struct('x', s.a, 'y', 'k').y",
            "named_struct('n', s.a)",
            "s.a is null",
            "coalesce(s.b, 'none')",
            "s <=> s",
        ),
        "s struct<a:int,b:string>",
        (({"a": 1, "b": "q"},), ({"a": None, "b": None},), (None,)),
    ),
)
