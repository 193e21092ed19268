"""Records like those of collections of CSV files, and lines from a seed, compared with the csv module of Python."""

from __future__ import annotations

import csv
import random
from typing import Final

import pytest

from tests.depth import DEPTH
from tidegate.datatypes import STRING
from tidegate.formats.contract import Columns
from tidegate.formats.kinds.delimited.decoder import DelimitedDecoder
from tidegate.formats.kinds.delimited.dialect import Dialect

CASES: Final[dict[str, tuple[str, list[str | None]]]] = {
    "a separator in quotes": (
        'Jane,Roe,"1 Main St., Springfield",IL',
        ["Jane", "Roe", "1 Main St., Springfield", "IL"],
    ),
    "empty fields": ('1,"",,x', ["1", "", None, "x"]),
    "an end of two characters": ("1,2,3\r\n", ["1", "2", "3"]),
    "doubled quotes": ('1,"ha ""ha"" ha",""""', ["1", 'ha "ha" ha', '"']),
    "JSON in a field": ('1,"{""type"": ""Point"", ""at"": [1.5, 2]}"', ["1", '{"type": "Point", "at": [1.5, 2]}']),
    "line breaks in quotes": ('1,"Once upon\na time","\r\n"', ["1", "Once upon\na time", "\r\n"]),
    "quotes and line breaks": ('1,"ha\n""ha""\n"', ["1", 'ha\n"ha"\n']),
    "other alphabets": ("1,ʤ,漢字,🦉", ["1", "ʤ", "漢字", "🦉"]),
    "blanks count": ("a , b, c ", ["a ", " b", " c "]),
    "only separators": (",,", [None, None, None]),
    "a quote within": ('5\'11",3" pipe', ["5'11\"", '3" pipe']),
}
COMMA = Dialect(",", '"', '"', "")
PIECES = ("a", "b c", "", '"', '""', ",", ",,", "\n", "\r\n", "\r", " ", '"x"', '"x,y"', '"x\ny"', "'", "é", "\\")


def columns_of(count: int) -> Columns:
    return tuple((f"c{place}", STRING) for place in range(count))


@pytest.mark.parametrize("name", CASES)
def test_records_of_collections(name: str) -> None:
    line, fields = CASES[name]
    columns = columns_of(len(fields))
    found = DelimitedDecoder(columns, columns, COMMA).decode_values([line.encode()])
    assert list(found.failures) == []
    assert list(found.frame.row(0)) == fields


@pytest.mark.parametrize("dialect", [COMMA, Dialect(";", "'", "'", "")])
def test_lines_are_split_like_the_csv_module_does(dialect: Dialect) -> None:
    rnd = random.Random(f"{DEPTH} {dialect}")
    swap = str.maketrans(',"', dialect.separator + dialect.quote)
    alike = bad = 0
    for _ in range(1_500 * DEPTH):
        line = "".join(rnd.choices(PIECES, k=rnd.randrange(7))).translate(swap)
        try:
            rows = list(
                csv.reader(
                    line.splitlines(keepends=True),
                    delimiter=dialect.separator,
                    quotechar=dialect.quote,
                    strict=True,
                )
            )
        except csv.Error:
            rows = []
        theirs = rows[0] if len(rows) == 1 and not differs(line) else None
        columns = columns_of(len(theirs) if theirs else 2)
        found = DelimitedDecoder(columns, columns, dialect).decode_values([line.encode()])
        if theirs:
            assert [text or "" for text in found.frame.row(0)] == theirs, line
            alike += 1
        elif not rows:
            assert len(found.failures) == 1, line
            bad += 1
    assert min(alike, bad) > 50 * DEPTH


def differs(line: str) -> bool:
    """Where the module goes by other rules: a carriage return is an end, and an empty line has no field."""
    return "\r" in line or line in ("", "\n")
