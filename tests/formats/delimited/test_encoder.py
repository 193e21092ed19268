"""Rows as lines: which fields are quoted, and which rows no line can hold."""

from __future__ import annotations

import polars as pl
import pytest

from tests.support.records import listed
from tidegate.datatypes import BIGINT, BINARY, DOUBLE, STRING, DataType, decimal_of
from tidegate.formats.failures import FailureKind
from tidegate.formats.kinds.delimited import FORMAT
from tidegate.formats.records import RecordEncoder
from tidegate.formats.schemas import FormatOptions


def encode(frame: pl.DataFrame, *kinds: DataType, **settings: object) -> list[str]:
    columns = tuple(zip(frame.columns, kinds, strict=True))
    encoded = FORMAT.encoder(columns, FormatOptions(settings=settings)).encode(frame)
    assert list(encoded.failures) == []
    return [value.decode() for value in encoded.columns["value"]]


@pytest.mark.parametrize(
    ("text", "settings", "field"),
    [
        ("a b", {}, "a b"),
        (None, {}, ""),
        ("", {}, '""'),
        ("a,b", {}, '"a,b"'),
        ('say "hi"', {}, '"say ""hi"""'),
        ("two\nlines", {}, '"two\nlines"'),
        ("cr\r", {}, '"cr\r"'),
        (None, {"null_value": "\\N"}, "\\N"),
        ("", {"null_value": "\\N"}, '""'),
        ("", {"null_value": "\\N", "quote": ""}, ""),
        ("\\N", {"null_value": "\\N"}, '"\\N"'),
        ('a\\"b', {"escape": "\\"}, '"a\\\\\\"b"'),
        ("a\\b", {"escape": "\\"}, "a\\b"),
        ("a|", {"separator": "||"}, '"a|"'),
        ("a|b", {"separator": "||"}, "a|b"),
        ("a", {"quote_all": True}, '"a"'),
        (None, {"quote_all": True}, ""),
        ('"', {"quote": "'"}, '"'),
    ],
)
def test_a_text_is_quoted_where_a_reader_needs_it(text: str | None, settings: dict[str, object], field: str) -> None:
    assert encode(pl.DataFrame({"a": [text]}, schema={"a": pl.String()}), STRING, **settings) == [field]


def test_a_row_is_its_columns_in_order() -> None:
    frame = pl.DataFrame(
        {"id": [1, None], "x": [float("inf"), 0.1], "d": ["1.50", "-0.05"], "b": [b"\xff", b""]},
        schema_overrides={"d": pl.String()},
    ).cast({"d": pl.Decimal(10, 2)})
    kinds = (BIGINT, DOUBLE, decimal_of(10, 2), BINARY)
    assert encode(frame, *kinds) == ["1,Infinity,1.50,/w==", ',0.1,-0.05,""']
    assert encode(frame, *kinds, quote_all=True) == ['"1","Infinity","1.50","/w=="', ',"0.1","-0.05",""']


def test_finite_numbers_have_the_same_texts_with_and_without_infinite_ones() -> None:
    finite = [0.1, -0.0, 1e-7, 1e20, float("nan"), None]
    lines = encode(pl.DataFrame({"x": finite}), DOUBLE)
    assert lines == ["0.1", "-0.0", "1e-7", "1e+20", "NaN", ""]
    for more in (float("inf"), -float("inf")):
        assert encode(pl.DataFrame({"x": [*finite, more]}), DOUBLE)[:-1] == lines
    assert encode(pl.DataFrame({"x": [0.5, None]}), DOUBLE, quote_all=True) == ['"0.5"', ""]


def test_numbers_are_quoted_where_the_dialect_has_their_characters() -> None:
    frame = pl.DataFrame({"a": [-1, 1, 5], "b": [1, 2, 3]})
    assert encode(frame, BIGINT, BIGINT, separator="-", null_value="5") == ['"-1"-1', "1-2", '"5"-3']


def test_without_quotes_a_row_that_no_line_can_hold_is_bad() -> None:
    frame = pl.DataFrame({"a": ["x", "a\tb", "c\nd", "\\N", "y"], "b": ['"', "", "", "", "\t"]})
    settings: dict[str, object] = {"separator": "\t", "quote": "", "null_value": "\\N"}
    columns = (("a", STRING), ("b", STRING))
    encoded = RecordEncoder("delimited", columns, options=FormatOptions(settings=settings)).encode(frame)
    assert listed(encoded).values == [b'x\t"']
    assert [(one.row, one.kind) for one in encoded.failures] == [
        (row, FailureKind.MALFORMED_DELIMITED) for row in (1, 2, 3, 4)
    ]
    assert encoded.failures[3].message.startswith("`b` contains the separator, a line break or the text of NULL")
