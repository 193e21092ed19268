"""Conformance rows of maps and of timestamps without zone."""

from __future__ import annotations

import datetime as dt

from tests.expressions.compiled.like_spark import Case


def entries(**values: object) -> list[dict[str, object]]:
    """A map with text for keys as a column holds it."""
    return [{"key": key, "value": value} for key, value in values.items()]


def naive(text: str) -> dt.datetime:
    """A moment without zone."""
    return dt.datetime.fromisoformat(text)


MAPS = (
    (entries(a=1, b=2), "a", 1),
    (entries(a=None), "a", 2),
    (entries(b=-5), "a", 3),
    (entries(), "a", None),
    (entries(x=1, y=2, z=3), None, 1),
    (None, "a", 1),
    (None, None, None),
)
MOMENTS = tuple(
    (one, other, day, zoned)
    for one, other, day, zoned in (
        (
            naive("2026-01-31T12:34:56.789012"),
            naive("2026-03-01T00:00:00"),
            dt.date(2026, 1, 31),
            dt.datetime(2026, 1, 31, 12, 34, 56, 789012, dt.UTC),
        ),
        (
            naive("1969-12-31T23:59:59.999999"),
            naive("2000-02-29T01:00:00"),
            dt.date(1970, 1, 1),
            dt.datetime(1900, 1, 1, tzinfo=dt.UTC),
        ),
        (
            naive("0001-01-01T00:00:00"),
            naive("9999-12-31T23:59:59"),
            dt.date(1, 1, 1),
            dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        ),
        (None, naive("2026-03-01T00:00:00"), None, dt.datetime(2026, 3, 1, tzinfo=dt.UTC)),
        (naive("2026-03-01T00:00:00"), None, dt.date(2026, 3, 1), None),
    )
)
FIELDS = (
    "year",
    "quarter",
    "month",
    "day",
    "dayofweek",
    "weekday",
    "dayofyear",
    "weekofyear",
    "hour",
    "minute",
    "second",
)
TEXTS = tuple(
    (text,)
    for text in (
        "2026-01-31 12:34:56.789",
        "2026-01-31T12:34:56Z",
        "2026-01-31 12:34:56+02:00",
        "2026-01-31",
        "2026-01",
        "2026",
        "x",
        "",
        "2026-02-30",
        "2026-01-31 24:00:00",
        "2026-01-31 1:2:3",
        "2026-01-31 12",
        "2026-01-31 12:34:56-18:00",
        "2026-01-31 12:34:56.1234567",
        None,
    )
)

CASES = (
    Case(
        (
            "m['a']",
            "m[k]",
            "element_at(m, k)",
            "element_at(m, 'b')",
            "try_element_at(m, k)",
            "m[null]",
            "map_keys(m)",
            "map_values(m)",
            "map_contains_key(m, k)",
            "map_contains_key(m, 'b')",
            "size(m)",
            "cardinality(m)",
            "m is null",
            "coalesce(m, map('q', 9))",
            "map('x', n)",
            "map('x', n, 'y', 2)['y']",
            "m['a'] + 1.5",
            "if(n = 1, m, null)",
            "named_struct('m', m).m['a']",
            "array(m)[0]",
            "map(n, 'v')",
            "map('a', 1, 'b', 2.5)",
            "map('a', 1)['a']",
            "map(1L, 'x')[1]",
            "map(1.5, 'x')[1.50]",
            "map(date'2026-01-01', k)",
            "map(coalesce(k, 'z'), n, 'a', 2)",
            "map_from_entries(array(named_struct('q', n, 'r', k)))",
            "map_from_entries(array(named_struct('q', 1, 'r', k), named_struct('q', n, 'r', 'x')))",
            "map_values(map('a', 1, k, n))",
            "to_json(map(k, n, 'c', 1))",
            "to_json(map_from_entries(array(named_struct('q', k, 'r', n))))",
            "map(1, map('a', n))[1]['a']",
            "map('1', 'x')[cast(n as string)]",
        ),
        "m map<string,int>, k string, n int",
        MAPS,
    ),
    Case(
        ("m[1.5]", "map_keys(m)", "m[cast(1 as tinyint)]", "map_values(m)[0]['a']", "map_contains_key(m, 2)"),
        "m map<decimal(5,2),map<string,double>>",
        (([{"key": 1, "value": entries(a=0.5)}],), ([{"key": 2, "value": None}],), (None,)),
    ),
    Case(
        ("m[2]", "element_at(m, n)", "m[n]", "map_keys(m)[0]", "size(map_values(m))"),
        "m map<bigint,double>, n int",
        (
            ([{"key": 1, "value": 0.5}, {"key": 2, "value": float("nan")}], 1),
            ([{"key": 3, "value": None}], 3),
            ([{"key": 3, "value": 1.0}], None),
        ),
    ),
    Case(
        (
            *(f"{field}(a)" for field in FIELDS),
            "extract(month from a)",
            "a = b",
            "a < b",
            "a <=> b",
            "a > d",
            "a = z",
            "z >= a",
            "a in (b, timestamp_ntz'2026-03-01')",
            "a between b and z",
            "coalesce(a, b)",
            "coalesce(a, d)",
            "coalesce(a, z)",
            "greatest(a, b)",
            "least(a, z)",
            "nullif(a, b)",
            "cast(a as date)",
            "cast(a as timestamp)",
            "cast(a as string)",
            "cast(d as timestamp_ntz)",
            "cast(z as timestamp_ntz)",
            "a::timestamp_ltz",
            "concat('x', a)",
            "date_trunc('hour', a)",
            "date_trunc('month', a)",
            "trunc(a, 'month')",
            "date_format(a, 'yyyy-MM-dd HH:mm:ss.SSS')",
            "unix_seconds(a)",
            "unix_millis(a)",
            "unix_micros(a)",
            "to_timestamp(a)",
            "to_date(a)",
            "to_timestamp_ntz(d)",
            "last_day(a)",
            "datediff(a, d)",
            "datediff(b, a)",
            "a - b < interval 1 day",
            "a - d > interval 1 hour",
            "a - z = interval 0 seconds",
            "a > '2026-01-31 12:00:00'",
            "timestamp_ntz'2026-01-31 12:00:00.5'",
            "timestamp_ntz'2026-01-31 12:00:00+02:00'",
            "array(a, b)",
            "named_struct('a', a)",
            "if(a > b, a, b)",
            "a is null",
        ),
        "a timestamp_ntz, b timestamp_ntz, d date, z timestamp",
        MOMENTS,
    ),
    Case(
        (
            "a + interval 1 day",
            "a - interval 90 minutes",
            "a + interval 1 month",
            "a - interval 1 year",
            "date_add(a, 1)",
            "add_months(a, 1)",
            "interval 1 hour + a",
        ),
        "a timestamp_ntz, b timestamp_ntz, d date, z timestamp",
        (MOMENTS[0], MOMENTS[1], MOMENTS[3]),
    ),
    Case(("cast(s as timestamp_ntz)", "try_cast(s as timestamp_ntz)", "to_timestamp_ntz(s)"), "s string", TEXTS),
    Case(
        ("to_timestamp_ntz(s, 'yyyy/MM/dd HH:mm')",),
        "s string",
        (("2026/01/31 12:34",), ("x",), (None,)),
    ),
)
