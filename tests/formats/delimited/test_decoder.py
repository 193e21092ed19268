"""Lines as rows: what a field is, and which lines are bad."""

from __future__ import annotations

from typing import Any

import pytest

from tests.formats.batches import messages_of
from tidegate.datatypes import BIGINT, BOOLEAN, DATE, STRING
from tidegate.formats.contract import Columns, Decoded
from tidegate.formats.failures import FailureKind
from tidegate.formats.kinds.delimited import FORMAT
from tidegate.formats.schemas import FormatOptions, KnownSchemas

TWO: Columns = (("a", STRING), ("b", STRING))


def decode(
    *lines: bytes | None, columns: Columns = TWO, output: Columns | None = None, settings: dict[str, Any] | None = None
) -> Decoded:
    options = FormatOptions(settings=settings or {})
    decoder = FORMAT.decoder(columns, columns if output is None else output, options, KnownSchemas())
    found = decoder.decode(messages_of(lines))
    assert isinstance(found, Decoded)
    return found


@pytest.mark.parametrize(
    ("line", "settings", "fields"),
    [
        ("a,b", {}, ("a", "b")),
        ("a,b\n", {}, ("a", "b")),
        ("a,b\r\n", {}, ("a", "b")),
        (",", {}, (None, None)),
        ('"",""', {}, ("", "")),
        ('"a,b","c\nd"', {}, ("a,b", "c\nd")),
        ('"say ""hi""",\'x\'', {}, ('say "hi"', "'x'")),
        ('5" disk,a"b"', {}, ('5" disk', 'a"b"')),
        (' "a",b ', {}, (' "a"', "b ")),
        (' "a" , b ', {"trim": True}, ("a", "b")),
        ('" a ",b', {"trim": True}, (" a ", "b")),
        (" , ", {"trim": True}, (None, None)),
        ("a\t b", {"trim": True, "separator": "\t"}, ("a", "b")),
        ('"a\\"b","\\\\ \\n"', {"escape": "\\"}, ('a"b', "\\ \\n")),
        ("\\N,x", {"null_value": "\\N"}, (None, "x")),
        ('"\\N",', {"null_value": "\\N"}, ("\\N", "")),
        ("a||b", {"separator": "||"}, ("a", "b")),
        ("a|||b", {"separator": "||"}, ("a", "|b")),
        ('"a||"||b', {"separator": "||"}, ("a||", "b")),
        ('"a\tb"', {"separator": "\t", "quote": ""}, ('"a', 'b"')),
        ("'a,'',''b',", {"quote": "'"}, ("a,','b", None)),
        ("é€日", {"separator": "€"}, ("é", "日")),
    ],
)
def test_fields_of_a_line(line: str, settings: dict[str, object], fields: tuple[str | None, ...]) -> None:
    found = decode(line.encode(), settings=settings)
    assert list(found.failures) == []
    assert found.frame.rows() == [fields]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"a", "it has 1 field, but the schema has 2 columns; column 2 is `b`"),
        (b"a,b,c,d", "it has 4 fields, but the schema has 2 columns; field 3 is 'c'"),
        (b"a,b,", "it has 3 fields, but the schema has 2 columns; field 3 is NULL"),
        (b'"a,b', "column 1: the quote is not closed in '\"a,b'"),
        (b'a,"b', "column 2: the quote is not closed in '\"b'"),
        (b'"a"x,b', "column 1: 'x,b' follows the closing quote"),
        (b'"a" ,b', "column 1: ' ,b' follows the closing quote"),
        (b"a\nb,c", "it has several lines, but only quoted fields can contain line breaks"),
        (b"a,b\n\n", "it has several lines, but only quoted fields can contain line breaks"),
        (b"a,b\r", "it has several lines, but only quoted fields can contain line breaks"),
        (b"", "it has 1 field, but the schema has 2 columns; column 2 is `b`"),
    ],
)
def test_a_line_in_another_form_is_bad(line: bytes, reason: str) -> None:
    found = decode(b"1,2", line, b"3,4")
    assert found.frame.rows() == [("1", "2"), ("3", "4")]
    (failure,) = found.failures
    assert (failure.row, failure.kind, failure.message) == (1, FailureKind.MALFORMED_DELIMITED, reason)


def test_values_fail_with_their_column_and_all_columns_are_checked() -> None:
    columns: Columns = (("id", BIGINT), ("flag", BOOLEAN), ("day", DATE), ("name", STRING))
    lines = (b"1,true,2026-01-31,x", b"x,maybe,,", b"9223372036854775808,,,", b",,2026-1-31,", b"-7,FALSE,,")
    for output in (columns, columns[3:], ()):
        found = decode(*lines, columns=columns, output=output)
        assert [(one.row, str(one)) for one in found.failures] == [
            (1, "WRONG_TYPE: column 1 (`id`): expected bigint, got 'x'"),
            (2, "OUT_OF_RANGE: column 1 (`id`): '9223372036854775808' does not fit into bigint"),
            (3, "WRONG_TYPE: column 3 (`day`): expected date, got '2026-1-31'"),
        ]
        assert (found.frame.height, found.frame.columns) == (2, [name for name, _ in output])
    assert decode(*lines, columns=columns, output=columns[:2]).frame.rows() == [(1, True), (-7, False)]


def test_a_tombstone_and_other_encodings_are_bad() -> None:
    found = decode(None, "é,b".encode("latin-1"), b"a,b")
    assert [str(one) for one in found.failures] == [
        "NULL_VALUE: a tombstone has no line",
        "NOT_UTF8: the line is not UTF-8: invalid continuation byte at byte 0",
    ]
    assert found.frame.rows() == [("a", "b")]


def test_an_empty_line_is_the_field_of_one_column() -> None:
    assert decode(b"", b"\n", b"x", columns=TWO[:1]).frame.rows() == [(None,), (None,), ("x",)]


def test_header_lines_are_skipped_in_the_forms_of_files() -> None:
    options = FormatOptions(settings={"header": True, "separator": ";"})
    found = FORMAT.skipped_values(TWO, options)
    assert {b"a;b", b'"a";"b"\r\n', b"\xef\xbb\xbfa;b\n"} <= set(found)
    assert not {b"b;a", b"A;B", b"a,b", b"a;b;"} & set(found)
    assert FORMAT.skipped_values(TWO, FormatOptions()) == ()


def test_a_header_line_that_is_not_skipped_is_recognised() -> None:
    (failure,) = decode(b"name,id", b"x,1", columns=(("name", STRING), ("id", BIGINT))).failures
    assert failure.message.startswith("column 2 (`id`): expected bigint, got 'id'; this may be a header line")
