"""Lines compared with Spark's CSV reader and writer: the same rows, except for what the page of the format lists."""

from __future__ import annotations

import datetime as dt
import math
import random
from typing import Any, Final

import polars as pl
import pytest
from pyspark.sql import SparkSession

from tests.depth import DEPTH
from tests.formats.delimited.any_delimited import COLUMNS, draw_rows
from tidegate.config.fields.columns import derive_type
from tidegate.datatypes import STRING
from tidegate.formats.contract import Columns
from tidegate.formats.kinds.delimited.decoder import DelimitedDecoder
from tidegate.formats.kinds.delimited.dialect import Dialect
from tidegate.formats.kinds.delimited.encoder import DelimitedEncoder

pytestmark = pytest.mark.slow

TWO: Final[Columns] = (("a", STRING), ("b", STRING))
DIALECTS: Final = (
    Dialect(",", '"', '"', ""),
    Dialect("|", '"', "\\", "\\N"),
    Dialect("||", "'", "'", ""),
    Dialect("\t", "", "", "NULL"),
    Dialect(";", '"', '"', "-", trim=True),
)
TEXTS: Final = (
    "", "a", "b c", "-", "NULL", "\\N", "é", '"', '""', "'", "''", "\\", "\\\\", '\\"', ",", "|", "||", ";", "\t", " a",
    "a ", '"a"', '"a', 'a"', '"a""b"', '"a\\"b"', '"a,b"', "'a||b'", '"a|b"', "'it''s'", '" a "', '"-"', '"a"x', ' "a"',
)  # fmt: skip


def options_of(dialect: Dialect) -> dict[str, str]:
    """Spark's words."""
    return {
        "sep": dialect.separator,
        "quote": dialect.quote,
        "escape": dialect.escape or "\\",
        "nullValue": dialect.null,
        "ignoreLeadingWhiteSpace": str(dialect.trim).lower(),
        "ignoreTrailingWhiteSpace": str(dialect.trim).lower(),
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": "bad",
    }


def read_by_spark(spark: SparkSession, lines: list[str], columns: Columns, dialect: Dialect) -> list[tuple[Any, ...]]:
    """The fields of each line, with the whole line at the end if Spark takes it for corrupt."""
    from pyspark.sql.functions import from_csv

    schema = ", ".join(f"{name} {kind}" for name, kind in (*columns, ("bad", STRING)))
    frame = spark.createDataFrame([(line,) for line in lines], "line string")
    rows = frame.select(from_csv("line", schema, options_of(dialect)).alias("row")).collect()
    return [tuple(row["row"]) for row in rows]


def wanted_difference(line: str, dialect: Dialect, ours: tuple[Any, ...] | None, theirs: tuple[Any, ...]) -> str:
    """Why the two differ; empty if nothing on the page says so."""
    if ours is None:
        if "\n" in line or "\r" in line:
            return "a line break outside of quotes"
        return "fewer or more fields" if theirs[-1] is not None else "something after a closing quote"
    if line.endswith("\n"):
        return "a line end is removed"
    if dialect.separator == "||" and "|'" in line:
        return "a defect: Spark doubles a quote after a part of a separator"
    if theirs[-1] is None:
        pairs = [(one, other) for one, other in zip(ours, theirs, strict=False) if one != other]
        if all(other is None and one in ("", dialect.null) for one, other in pairs):
            return "`null` in quotes, and empty fields where `null` is not empty"
    return ""


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: repr(one.separator + one.quote + one.escape))
def test_lines_are_split_like_spark_does(spark: SparkSession, dialect: Dialect) -> None:
    rnd = random.Random(f"{DEPTH} {dialect}")
    drawn = [dialect.separator.join(rnd.choices(TEXTS, k=rnd.choice((1, 2, 2, 2, 2, 3)))) for _ in range(400 * DEPTH)]
    lines = list(dict.fromkeys(drawn))
    theirs = read_by_spark(spark, lines, TWO, dialect)
    decoded = DelimitedDecoder(TWO, TWO, dialect).decode_values([line.encode() for line in lines])
    bad = {one.row: one.message for one in decoded.failures}
    rows = iter(decoded.frame.rows())
    unlike = []
    for row, line in enumerate(lines):
        ours = None if row in bad else next(rows)
        same = theirs[row] == (*ours, None) if ours is not None else theirs[row][-1] is not None
        if not same and not wanted_difference(line, dialect, ours, theirs[row]):
            unlike.append((line, ours or bad[row], theirs[row]))
    assert unlike == []
    assert decoded.frame.height > len(lines) // 4


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("boolean", ["true", "FALSE", "False", "t", "1", "yes"]),
        ("tinyint", ["127", "-128", "+5", "007", "128", "1.0", "x"]),
        ("int", ["2147483647", "-2147483648", "2147483648", "1e3", "0x1"]),
        ("bigint", ["9223372036854775807", "-9223372036854775808", "9223372036854775808"]),
        ("double", ["1.5", "1e3", "-0", ".5", "5.", "NaN", "Inf", "-Inf", "4.9e-324", "1e-400", "0.1", "1e", "1_0"]),
        ("float", ["0.1", "3.4028235e38", "16777217", "NaN", "-Inf", "1e-50"]),
        ("decimal(5,2)", ["1.5", "-123.45", "1e2", ".5", "1234.56", "x"]),
        ("date", ["2026-01-31", "0001-01-01", "9999-12-31", "2026-02-30", "2026-13-01", "20260131"]),
        ("timestamp", ["2026-01-31T12:00:00Z", "2026-01-31 12:00:00.5", "2026-01-31T12:00:00.123456+01:00", "x"]),
        ("timestamp_ntz", ["2026-01-31T12:00:00", "2026-01-31 12:00:00.25"]),
    ],
)
def test_values_are_those_of_spark(spark: SparkSession, kind: str, texts: list[str]) -> None:
    """Texts of the table of differences are not among these."""
    columns: Columns = (("v", derive_type(kind)),)
    theirs = read_by_spark(spark, texts, columns, DIALECTS[0])
    decoded = DelimitedDecoder(columns, columns, DIALECTS[0]).decode_values([text.encode() for text in texts])
    bad = {one.row for one in decoded.failures}
    assert bad == {row for row, one in enumerate(theirs) if one[-1] is not None}, theirs
    good = [plain(one[0]) for row, one in enumerate(theirs) if row not in bad]
    assert [plain(one) for one in decoded.frame["v"]] == good


def plain(value: Any) -> Any:
    """Comparable values: moments as text, NaN equal to itself."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat()
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def test_spark_reads_what_a_sink_writes(spark: SparkSession) -> None:
    """But not texts that equal `null`, which are NULL in Spark, and doubles that it writes in words of its own."""
    dialect = Dialect("|", '"', "\\", "\\N")
    columns = tuple(one for one in COLUMNS if one[0] not in ("single", "double"))
    rows = draw_rows(random.Random(DEPTH), 200 * DEPTH).select([name for name, _ in columns])
    rows = rows.filter(~pl.col("text").is_in([dialect.null]).fill_null(value=False))
    years = pl.col("at").dt.year().is_between(1900, 2200) | pl.col("at").is_null()
    rows = rows.filter(years & pl.col("local").dt.year().is_between(1900, 2200).fill_null(value=True))
    values = DelimitedEncoder(columns, dialect, quote_all=False).encode(rows).columns["value"]
    theirs = read_by_spark(spark, [value.decode() for value in values], columns, dialect)
    assert [[plain(one) for one in row[:-1]] for row in theirs] == [[plain(one) for one in row] for row in rows.rows()]
    assert {row[-1] for row in theirs} <= {None}


def test_a_source_reads_what_spark_writes(spark: SparkSession) -> None:
    from pyspark.sql.functions import struct, to_csv

    columns: Columns = (
        ("id", derive_type("bigint")),
        ("x", derive_type("double")),
        ("t", STRING),
        ("b", derive_type("boolean")),
    )
    rnd = random.Random(DEPTH)
    rows = [(n, rnd.gauss(0, 1e9), rnd.choice([*TEXTS, None]), rnd.choice((True, None))) for n in range(200 * DEPTH)]
    rows = [row for row in rows if row[2] != "\\N"]
    options = {"escape": '"', "nullValue": "\\N", "emptyValue": '""', "ignoreLeadingWhiteSpace": "false"}
    options["ignoreTrailingWhiteSpace"] = "false"
    frame = spark.createDataFrame(rows, "id bigint, x double, t string, b boolean")
    written = frame.select(to_csv(struct("*"), options).alias("line")).collect()
    decoded = DelimitedDecoder(columns, columns, Dialect(",", '"', '"', "\\N")).decode_values(
        [row["line"].encode() for row in written]
    )
    assert list(decoded.failures) == []
    assert decoded.frame.rows() == rows
