"""Lines as producers write them, and as nobody would; rows of values; dialects. Drawn from a seed."""

from __future__ import annotations

import ctypes
import datetime as dt
import random
from decimal import Decimal
from typing import Any, Final

import polars as pl

from tidegate.datatypes import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    DataType,
    decimal_of,
)
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Columns
from tidegate.formats.kinds.delimited.dialect import Dialect
from tidegate.native.delimited import LineDecoder

COLUMNS: Final[Columns] = (
    ("flag", BOOLEAN),
    ("tiny", TINYINT),
    ("small", SMALLINT),
    ("whole", INT),
    ("big", BIGINT),
    ("single", FLOAT),
    ("double", DOUBLE),
    ("money", decimal_of(10, 2)),
    ("wide", decimal_of(38, 0)),
    ("text", STRING),
    ("day", DATE),
    ("at", TIMESTAMP),
    ("local", TIMESTAMP_NTZ),
)
DIALECTS: Final = (
    Dialect(",", '"', '"', ""),
    Dialect("\t", "", "", "\\N"),
    Dialect("|", '"', "\\", "NULL"),
    Dialect("||", "'", "'", ""),
    Dialect("::", '"', '"', "-", trim=True),
    Dialect(";", '"', "\\", "\\N", trim=True),
    Dialect("€", '"', '"', ""),
    Dialect("\x01", "", "", ""),
    Dialect("-", '"', '"', "1"),
)
ODD: Final = (
    "", " ", "true", "TRUE", "tru", "0", "-0", "+0", "-0.0", "00", "007", "+5", "- 5", "5 ", " 5", "127", "128", "-128",
    "32767", "32768", "2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "1_0",
    "99999999999999999999999999999999999999", "999999999999999999999999999999999999999", "1e3", "1E-3", "1.", ".5", ".",
    "-.5e+1", "1e400", "1e-400", "4.9e-324", "2.2250738585072011e-308", "3.4028235e38", "3.4028236e38", "1e39", "0x1p3",
    "0.1", "12.345", "12345678.90", "123456789.0", "NaN", "nan", "Infinity", "-Infinity", "inf", "Inf", "-Inf", "+Inf",
    "1d", "1,5", "2026-01-31", "2026-1-3", "2026-02-29", "2024-02-29", "0000-01-01", "0001-01-01", "9999-12-31",
    "2026-01-31T12:00:00", "2026-01-31 12:00:00", "2026-01-31t12:00:00z", "2026-01-31T12:00:00.1234567Z",
    "2026-01-31T12:00:00+01:00", "2026-01-31 12:00:00.5-09:30", "9999-12-31T23:59:59-01:00",
    "0001-01-01T00:00:00+01:00",
    "2026-01-31T24:00:00Z", "2026-01-31T12:00", "٣", "é", "日本", "\\N", "NULL", "null", "-", "a b", "\\", '"', "'",
    "a,b",
    'say "hi"', "'tis", "two\nlines", "cr\r", "tab\tbed", "||", "|", ":", "€", "\x01", '""', '\\"', "\\\\", "x" * 40,
)  # fmt: skip


YEARS_MICROS: Final = 9990 * 365 * 86_400 * 1_000_000


def draw_rows(rnd: random.Random, count: int) -> pl.DataFrame:
    """Rows of all columns, with NULLs."""

    def value(name: str) -> Any:
        if rnd.random() < 0.1:
            return None
        bits = {"tiny": 8, "small": 16, "whole": 32, "big": 64}.get(name)
        if bits:
            return rnd.choice((0, 1, -1, rnd.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))))
        moment = dt.datetime(2, 1, 1, tzinfo=dt.UTC) + dt.timedelta(
            microseconds=rnd.randrange(9990 * 365 * 86_400 * 1_000_000)
        )
        match name:
            case "flag":
                return rnd.random() < 0.5
            case "single" | "double":
                return rnd.choice((0.0, -0.0, rnd.gauss(0, 1e6), 1e-7, 1e20, float("nan"), float("inf"), -float("inf")))
            case "money":
                return Decimal(rnd.randrange(-(10**10) + 1, 10**10)).scaleb(-2)
            case "wide":
                return Decimal(rnd.randrange(-(10**38) + 1, 10**38))
            case "day":
                return moment.date()
            case "at":
                return moment
            case "local":
                return moment.replace(tzinfo=None)
        return rnd.choice((rnd.choice(ODD), "".join(rnd.choices("ab ,;|'\"\\\n\té-1", k=rnd.randrange(6)))))

    columns = {name: [value(name) for _ in range(count)] for name, _ in COLUMNS}
    return pl.DataFrame(columns, schema={name: polars_type(kind) for name, kind in COLUMNS})


def draw_lines(rnd: random.Random, dialect: Dialect, columns: Columns, count: int) -> list[bytes | None]:
    """Lines of mostly odd fields, some of which are damaged; among them none, and an empty one."""
    lines: list[bytes | None] = [None, b"", b"\n", b"\xff"]
    while len(lines) < count:
        fields = [_field(rnd, dialect) if rnd.random() < 0.3 else _good(rnd, kind.kind) for _, kind in columns]
        if rnd.random() < 0.05:
            del fields[rnd.randrange(len(fields))]
        line = dialect.separator.join(fields) + rnd.choice(("", "", "", "\n", "\r\n", "\r", dialect.separator))
        data = bytearray(line.encode())
        if rnd.random() < 0.1 and data:
            data[rnd.randrange(len(data))] = rnd.choice(b'\x00\x80\xff"\\\n\r ,|0')
        lines.append(bytes(data))
    return lines


def _good(rnd: random.Random, kind: str) -> str:
    match kind:
        case "boolean":
            return rnd.choice(("true", "false"))
        case "date":
            return f"{rnd.randrange(1, 10000):04}-{rnd.randrange(1, 13):02}-{rnd.randrange(1, 29):02}"
        case "timestamp" | "timestamp_ntz":
            return f"{rnd.randrange(1, 10000):04}-01-31T{rnd.randrange(24):02}:00:00.5"
        case "string":
            return rnd.choice(("", "abc", "a longer text than a view"))
        case "tinyint":
            return str(rnd.randrange(-128, 128))
    return str(rnd.randrange(-30_000, 30_000))


def _field(rnd: random.Random, dialect: Dialect) -> str:
    text, quote = rnd.choice(ODD), dialect.quote
    if rnd.random() < 0.3 and quote:
        text = text if rnd.random() < 0.2 else text.replace(quote, dialect.escape + quote)
        text = f"{quote}{text}{quote}" + (rnd.choice(("", " ", "x")) if rnd.random() < 0.1 else "")
    return f" {text}\t" if rnd.random() < 0.1 else text


def line_decoder(library: ctypes.CDLL, declared: Columns, wanted: set[str], dialect: Dialect) -> LineDecoder:
    """What decodes lines of a dialect in C."""
    return LineDecoder(
        library,
        DataType("struct", fields=tuple(declared)),
        wanted,
        separator=dialect.separator,
        null=dialect.null,
        quote=dialect.quote,
        escape=dialect.escape,
        blanks=dialect.blanks,
    )
