"""Tables with a column of every kind: what PostgreSQL has, what a source declares, and how both are compared. Pure."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from tests.compatibility.debezium.settings import PLAIN, WRAPPED


class Mode(msgspec.Struct, frozen=True):
    """How a connector writes, what a source has to say of it, and types that differ from those of `KINDS`."""

    connector: Mapping[str, str]
    written_as: Mapping[str, Any] = {}
    types: Mapping[str, str] = {}
    """An empty one: not read, for it cannot be compared."""


MODES: Final[Mapping[str, Mode]] = {
    "plain": Mode(PLAIN, {"decimals": "base64", "timestamps": {"ts": "us", "ts3": "ms"}}, {"nn": "", "ti3": "int"}),
    "wrapped": Mode(
        {**WRAPPED, "decimal.handling.mode": "string", "time.precision.mode": "microseconds",
         "interval.handling.mode": "string", "provide.transaction.metadata": "true"},
        {"decimals": "schema"},
        {"iv": "string"},
    ),
    "isostring": Mode(
        {**PLAIN, "decimal.handling.mode": "double", "time.precision.mode": "isostring"},
        {"decimals": "text"},
        {"nn": "", "m": "", "ti": "", "ti3": ""},
    ),
    "numeric": Mode(
        {**PLAIN, "value.converter.decimal.format": "NUMERIC", "time.precision.mode": "connect"},
        {"decimals": "text", "timestamps": "ms"},
        {"nn": "", "ts": "", "ti": ""},
    ),
}  # fmt: skip

KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "id": ("int PRIMARY KEY", "int"),
    "b": ("boolean", "boolean"),
    "small": ("smallint", "smallint"),
    "i": ("int", "int"),
    "l": ("bigint", "bigint"),
    "r": ("real", "float"),
    "d": ("double precision", "double"),
    "n": ("numeric(12,3)", "decimal(12,3)"),
    "n0": ("numeric(5,0)", "decimal(5,0)"),
    "nn": ("numeric", "decimal(38,9)"),
    "m": ("money", "decimal(19,2)"),
    "t": ("text", "string"),
    "vc": ("varchar(20)", "string"),
    "ch": ("char(5)", "string"),
    "by": ("bytea", "binary"),
    "da": ("date", "date"),
    "ti": ("time", "bigint"),
    "ti3": ("time(3)", "bigint"),
    "titz": ("timetz", "string"),
    "ts": ("timestamp", "timestamp_ntz"),
    "ts3": ("timestamp(3)", "timestamp_ntz"),
    "tstz": ("timestamptz", "timestamp"),
    "iv": ("interval", "bigint"),
    "u": ("uuid", "string"),
    "j": ("json", "string"),
    "jb": ("jsonb", "string"),
    "e": ("mood", "string"),
    "ia": ("int[]", "array<int>"),
    "ta": ("text[]", "array<string>"),
    "na": ("numeric(6,2)[]", "array<decimal(6,2)>"),
    "days": ("date[]", "array<date>"),
    "moments": ("timestamptz[]", "array<timestamp>"),
    "ip": ("inet", "string"),
    "po": ("point", "struct<x: double, y: double>"),
    "ra": ("int4range", "string"),
    "bi": ("bit(1)", "boolean"),
    "bi8": ("bit(8)", "binary"),
    "x": ("xml", "string"),
}
"""By column: the type in PostgreSQL, and in the schema of a source unless the mode has another."""

ASKED: Final[Mapping[str, str]] = {
    "r": "CASE WHEN r::text ~* 'nan|inf' THEN NULL ELSE r END",
    "d": "CASE WHEN d::text ~* 'nan|inf' THEN NULL ELSE d END",
    "m": "m::numeric",
    "by": "encode(by, 'base64')",
    "ti": "(extract(epoch FROM ti) * 1000000)::bigint",
    "j": "j::text",
    "jb": "jb::text",
    "po": "CASE WHEN po IS NULL THEN NULL ELSE json_build_object('x', po[0], 'y', po[1]) END",
    "bi": "bi = '1'",
    "x": "x::text",
}
"""What PostgreSQL is asked for in place of the column itself; JSON has no NaN, so sinks write NULL."""
NOT_ASKED: Final = ("ti3", "titz", "iv", "bi8")
"""Read, and not compared with PostgreSQL: Debezium writes them in a form that is its own."""
MOMENTS: Final = ("ts", "ts3", "tstz", "moments")

MOOD: Final = "CREATE TYPE mood AS ENUM ('happy', 'so ''so''')"
TABLES: Final = (
    MOOD,
    f"CREATE TABLE kinds ({', '.join(f'{name} {kind}' for name, (kind, _) in KINDS.items())})",
    "ALTER TABLE kinds REPLICA IDENTITY FULL",
    *(
        f"CREATE TABLE {name} (id int PRIMARY KEY, name text, long text NOT NULL, n numeric(10,2))"
        for name in ("thin", "whole")
    ),
    *(f"ALTER TABLE {name} ALTER COLUMN long SET STORAGE EXTERNAL" for name in ("thin", "whole")),
    "ALTER TABLE whole REPLICA IDENTITY FULL",
    "CREATE TABLE keyless (name text, n int)",
    "ALTER TABLE keyless REPLICA IDENTITY FULL",
    "CREATE TABLE outside (id int PRIMARY KEY, d date, ts timestamp, tstz timestamptz, n numeric(10,2))",
)
"""`thin` has the usual identity, `whole` the full one; `outside` has what no column of Tidegate's holds."""
SCHEMAS: Final[Mapping[str, Mapping[str, str]]] = {
    "thin": {"id": "int", "name": "string", "long": "string", "n": "decimal(10,2)", "more": "string"},
    "whole": {"id": "int", "name": "string", "long": "string", "n": "decimal(10,2)", "more": "string"},
    "keyless": {"name": "string", "n": "int"},
}
"""Of the other tables. The column `more` comes while the connector runs."""

_NULLS: Final = ", NULL" * (len(KINDS) - 1)
BEFORE: Final = (
    r"""INSERT INTO kinds VALUES (1, true, 1, 2, 3, 1.5, 2.25, 12.340, 42, 1234.5678, 12.34, 'text', 'varchar', 'ch',
    '\x00ff10', '2024-02-29', '13:14:15.123456', '13:14:15.123', '13:14:15.123456+02', '2024-02-29 13:14:15.123456',
    '2024-02-29 13:14:15.123', '2024-02-29 13:14:15.123456+02', '1 mon 2 days 03:04:05',
    '0190aaaa-0000-7000-8000-000000000001', '{"a":  1}', '{"b": [1, null]}', 'happy', '{1,2,NULL}', '{a,NULL,"b c"}',
    '{1.25,-2.50}', '{2024-02-29}', '{"2024-02-29 13:14:15.123456+02"}', '10.0.0.1/24', '(1,2)', '[1,5)', '1',
    '10101010', '<a>b</a>')""",
    f"INSERT INTO kinds VALUES (2{_NULLS})",
    r"""INSERT INTO kinds VALUES (3, false, -32768, -2147483648, -9223372036854775808, '-Infinity', 'NaN',
    -999999999.999, -99999, -0.000000001, -92233720368547758.08, '', '', '', '', '0001-01-01', '00:00:00', '00:00:00',
    '00:00:00-15', '0001-01-01 00:00:00', '0001-01-01', '0001-01-01 00:00:00+00', '-1 year',
    '00000000-0000-0000-0000-000000000000', 'null', 'null', 'so ''so''', '{}', '{}', '{}', '{}', '{}', '::1', NULL,
    'empty', '0', '00000000', NULL)""",
    r"""INSERT INTO kinds VALUES (4, true, 32767, 2147483647, 9223372036854775807, '1e-30', '1e300', 999999999.999,
    99999, 12345678901234567890123456789.123456789, 92233720368547758.07, E'\u00e4\u20ac\U0001F600\n"\\ \t', 'x',
    'abcde', '\xffffffff', '9999-12-31', '23:59:59.999999', '23:59:59.999', '24:00:00+15',
    '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59.999', '9999-12-31 23:59:59.999999+00', '178000000 years',
    'ffffffff-ffff-ffff-ffff-ffffffffffff', '[]', '{}', 'so ''so''', '{7}', '{NULL}', '{NULL}', '{NULL}', '{NULL}',
    NULL, NULL, NULL, '1', '11111111', NULL)""",
    (
        "INSERT INTO kinds (id, ts, ts3, tstz) VALUES (5, '1969-12-31 23:59:59.999999', '1969-12-31 23:59:59.999', "
        "'1969-12-31 23:59:59.999999+00')"
    ),
    "INSERT INTO thin VALUES (50, 'before', 'l', 1)",
    "INSERT INTO outside VALUES (1, 'infinity', NULL, NULL, NULL)",
    "INSERT INTO outside VALUES (2, NULL, '-infinity', NULL, NULL)",
    "INSERT INTO outside VALUES (3, NULL, NULL, 'infinity', NULL)",
    "INSERT INTO outside VALUES (4, NULL, '4713-01-01 BC', NULL, NULL)",
    "INSERT INTO outside VALUES (5, NULL, '10000-01-01', NULL, NULL)",
    "INSERT INTO outside VALUES (6, NULL, NULL, '294276-12-31', NULL)",
    "INSERT INTO outside VALUES (7, NULL, NULL, NULL, 'NaN')",
)
"""What the connector finds."""
LONG: Final = "repeat('long', 600)"
CHANGES: Final = (
    "INSERT INTO kinds (id, n, t) VALUES (10, 1.5, 'insert')",
    "UPDATE kinds SET t = 'updated' WHERE id = 1",
    "UPDATE kinds SET id = 11 WHERE id = 10",
    "DELETE FROM kinds WHERE id = 5",
    *(
        text.format(table=table)
        for table in ("thin", "whole")
        for text in (
            "INSERT INTO {table} VALUES (1, 'one', 'short', 1.5)",
            "UPDATE {table} SET name = 'uno' WHERE id = 1",
            f"INSERT INTO {{table}} VALUES (2, 'two', {LONG}, 2.5)",
            "UPDATE {table} SET name = 'due' WHERE id = 2",
            "UPDATE {table} SET id = 3 WHERE id = 2",
            "DELETE FROM {table} WHERE id = 1",
            "INSERT INTO {table} VALUES (4, 'four', 'short', 4)",
            "ALTER TABLE {table} ADD COLUMN more text DEFAULT 'more'",
            "INSERT INTO {table} VALUES (5, 'five', 'short', NULL, NULL)",
            "UPDATE {table} SET name = 'quattro' WHERE id = 4",
            "DELETE FROM {table} WHERE id = 3",
        )
    ),
    "INSERT INTO keyless VALUES ('a', 1)",
    "INSERT INTO keyless VALUES ('b', 2)",
    "UPDATE keyless SET n = 3 WHERE name = 'a'",
    "DELETE FROM keyless WHERE name = 'b'",
    "SELECT pg_logical_emit_message(true, 'prefix', 'content')",
)
LAST: Final = ("TRUNCATE thin", "INSERT INTO thin VALUES (99, 'last', '', 0)")
"""After the rows were asked for."""


def schema_of(table: str, mode: str) -> dict[str, str]:
    """What the source of a table declares."""
    if table != "kinds":
        return dict(SCHEMAS[table])
    types = MODES[mode].types
    return {name: types.get(name, kind) for name, (_, kind) in KINDS.items() if types.get(name, kind)}


def written_as(table: str, mode: str) -> dict[str, Any]:
    """What the source of a table says of its values: units are of columns that there are."""
    said = dict(MODES[mode].written_as)
    if table != "kinds" and "timestamps" in said:
        del said["timestamps"]
    return said


def query(table: str, mode: str) -> str:
    """Gives the rows of a table, as they are now, as JSON."""
    names = schema_of(table, mode)
    if table == "kinds":
        asked = [f"{ASKED.get(name, name)} AS {name}" for name in names if name not in NOT_ASKED]
    else:
        asked = list(names)
    return f"SELECT row_to_json(q) FROM (SELECT {', '.join(asked)} FROM {table}) q"


def rows_of(texts: Iterable[str | bytes], leave_out: Iterable[str] = NOT_ASKED) -> list[str]:
    """Rows of JSON as texts that are equal when their values are, in order."""
    parsed = [json.loads(one, parse_float=Decimal) for one in texts]
    left = set(leave_out)
    return sorted(
        json.dumps({name: _plain(name, value) for name, value in row.items() if name not in left}, sort_keys=True)
        for row in parsed
    )


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(name, one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(key, one) for key, one in value.items()}
    if name in MOMENTS and isinstance(value, str):
        return dt.datetime.fromisoformat(value).isoformat()
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        number = Decimal(value)
        return "0" if not number else str(number.normalize())
    return value
