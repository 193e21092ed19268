"""Lines of text: whole, and taken apart by patterns."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
import yaml

from tests.formats.batches import messages_of
from tests.plan.test_build import HEAD, check
from tidegate.config.fields.columns import derive_type
from tidegate.config.load import parse_pipeline
from tidegate.datatypes import BIGINT, INT, STRING, TIMESTAMP
from tidegate.formats.contract import Columns, Decoded, FormatRefusal
from tidegate.formats.kinds.text import FORMAT
from tidegate.formats.schemas import FormatOptions, KnownSchemas

WHOLE: Columns = (("value", STRING),)


def decode(*lines: bytes | None, columns: Columns = WHOLE, output: Columns | None = None, **settings: Any) -> Decoded:
    options = FormatOptions(settings=settings)
    found = FORMAT.decoder(columns, columns if output is None else output, options, KnownSchemas()).decode(
        messages_of(lines)
    )
    assert isinstance(found, Decoded)
    return found


def test_a_whole_text_is_the_column_value() -> None:
    lines = (b"a\n", b"", None, "é\r\n".encode(), b"\xff", b"b\n\n", b"c\r")
    found = decode(*lines)
    assert found.frame["value"].to_list() == ["a", "", "é", "b\n", "c\r"]
    assert [(one.row, str(one)) for one in found.failures] == [
        (2, "NULL_VALUE: a tombstone has no text"),
        (4, "NOT_UTF8: the text is not UTF-8: invalid start byte at byte 0"),
    ]
    assert decode(*lines, output=()).frame.height == 5


def test_groups_of_a_pattern_are_columns_of_their_types() -> None:
    columns: Columns = (("level", STRING), ("at", TIMESTAMP), ("took", INT), ("id", BIGINT))
    settings: dict[str, Any] = {
        "pattern": r"(?<level>[A-Z]+) (?<at>\S+)(?: (?<took>\d+)ms)? id=(?<id>\S*)",
        "null_value": "-",
    }
    lines = (
        b"INFO 2026-01-31T12:00:00Z 17ms id=5\n",
        b"WARN - id=-",
        b"info 2026-01-31T12:00:00Z id=1",
        b"INFO 2026-01-31T12:00:00Z 17ms id=5 more",
        b"INFO yesterday id=5",
        b"INFO 2026-01-31T12:00:00Z 99999999999ms id=x",
    )
    for output in (columns, columns[2:3], ()):
        found = decode(*lines, columns=columns, output=output, **settings)
        assert found.frame.height == 2
        assert [(one.row, str(one)) for one in found.failures] == [
            (2, f"PATTERN_MISMATCH: the pattern expects `(?<level>[A-Z]+)` at character 1, in {lines[2].decode()!r}"),
            (3, "PATTERN_MISMATCH: the pattern expects the end at character 36, in ' more'"),
            (4, "WRONG_TYPE: the group `at`: expected timestamp, got 'yesterday'"),
            (5, "OUT_OF_RANGE: the group `took`: '99999999999' does not fit into int"),
        ]
    moment = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
    assert decode(*lines, columns=columns, **settings).frame.rows() == [
        ("INFO", moment, 17, 5),
        ("WARN", None, None, None),
    ]


def test_a_mismatch_says_how_far_the_pattern_goes() -> None:
    found = decode(b"ab", b"abc", b"", columns=(("x", STRING),), pattern="a(?<x>b)cd")
    assert [one.message for one in found.failures] == [
        "the pattern expects `c` at character 3, where the text ends",
        "the pattern expects `d` at character 4, where the text ends",
        "the pattern expects `a` at character 1, where the text ends",
    ]
    found = decode(b"c", columns=(("x", STRING),), pattern="(?<x>a)|b")
    assert found.failures[0].message == "no branch of the pattern matches in 'c'"
    long = "".join(chr(ord("a") + place % 26) for place in range(1000))
    found = decode(long[:500].encode() + b"!", columns=(("x", STRING),), pattern=f"{long}(?<x>y)")
    (failure,) = found.failures
    assert failure.message.startswith("the pattern expects `")
    assert "at character 497" in failure.message


def test_a_match_whose_groups_take_no_part_is_a_row_of_nulls() -> None:
    assert decode(b"", b"a", b"b", columns=(("x", STRING),), pattern="(?<x>a)?").frame.rows() == [(None,), ("a",)]


def test_a_text_with_line_breaks_needs_a_flag() -> None:
    columns: Columns = (("first", STRING), ("rest", STRING))
    assert decode(b"a\nb\nc\n", columns=columns, pattern=r"(?<first>[^\n]*)\n(?<rest>.*)").frame.height == 0
    found = decode(b"a\nb\nc\n", columns=columns, pattern=r"(?s)(?<first>[^\n]*)\n(?<rest>.*)")
    assert found.frame.rows() == [("a", "b\nc")]


def test_no_pattern_takes_more_than_linear_time() -> None:
    """Python's `re` takes hours for each of these."""
    for pattern in (r"(?<x>(?:a+)+b)", r"(?<x>(?:a|a)*c)", r"(?<x>(?:.*.*.*.*)=)"):
        assert len(decode(b"a" * 20_000, columns=(("x", STRING),), pattern=pattern).failures) == 1


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("pattern: 'a(?=b)(?<x>c)'", "the pattern has `(?=` (look-around"),
        (r"pattern: '(?<x>a)\1'", r"the pattern has `\1`, a back-reference"),
        ("pattern: '(?<x>a++)'", "the pattern has a possessive or doubled quantifier"),
        ("pattern: '(?P<x>a)'", "named groups do not begin with `(?P<`; write `(?<name>...)`"),
        ("pattern: 'a(b)'", "the pattern has no named group, and each column needs one; for instance `pattern:"),
        ("pattern: '(?<x>a)(?<x>b)'", "the pattern has two groups `x`; rename one"),
        ("pattern: '(?<__tidegate_x>a)'", "the column `__tidegate_x` begins with `__tidegate`"),
        (
            "pattern: '(?<x>a'",
            r"the pattern has a group that is not closed; close it with `)`, or write '\(' for the character",
        ),
        (r"pattern: '(?<x>a){'", r"the pattern has `{` that is not a quantifier; write '\{'"),
        (r"pattern: '(?<x>\S{0,501})'", "the pattern has repetitions that multiply to more than 10,000 steps"),
        ("pattern: 7", "expected a regular expression, got `7`"),
    ],
)
def test_a_pattern_that_cannot_be_run_is_refused(setting: str, said: str) -> None:
    text = f"sources:\n  a: {{topic: in, format: text, text: {{{setting}}}}}\nsinks:\n  b: {{from: a, topic: b}}\n"
    (problem,) = parse_pipeline(HEAD + text, "p.yaml", {}).problems
    assert problem.path == "sources.a.text.pattern"
    assert f"{problem.message}; {problem.remedy}".startswith(said)


def test_columns_and_groups_belong_together() -> None:
    options = FormatOptions(settings={"pattern": "(?<a_1>x)(?<b>y)(z)"})
    assert FORMAT.read_columns({}, options) == {"a_1": STRING, "b": STRING}
    assert FORMAT.read_columns({"b": INT, "a_1": STRING}, options) == {"b": INT, "a_1": STRING}
    with pytest.raises(FormatRefusal, match="the pattern has no group for the column `c`") as refused:
        FORMAT.read_columns({"a_1": INT, "b": INT, "c": INT}, options)
    assert refused.value.setting == "pattern"
    with pytest.raises(FormatRefusal, match="the group `b` of the pattern is not a column"):
        FORMAT.read_columns({"a_1": INT}, options)
    with pytest.raises(FormatRefusal, match="a group of a pattern holds a single value"):
        FORMAT.read_columns({"a_1": INT, "b": derive_type("array<int>")}, options)
    assert FORMAT.read_columns({}) == {"value": STRING}
    with pytest.raises(FormatRefusal, match="without a pattern, a text has the one column `value`"):
        FORMAT.read_columns({"line": STRING})
    text = "sources:\n  a: {topic: in, format: text, text: {pattern: '(?<x>a)'}, schema: {y: string}}\n"
    (problem,) = check(text + "sinks:\n  b: {from: a, topic: b}\n").problems
    assert problem.path == "sources.a.text.pattern"


def test_a_sink_writes_one_text() -> None:
    assert FORMAT.written_columns({"a": INT, "value": STRING}) == {"value": STRING}
    with pytest.raises(FormatRefusal, match="a text sink writes the column `value`, a string, which does not exist"):
        FORMAT.written_columns({"a": STRING})


def example(source: str) -> tuple[Columns, dict[str, Any]]:
    """The source of the format's page."""
    for part in FORMAT.page.split("```yaml\n")[1:]:
        found = yaml.safe_load(part.split("```")[0])["sources"].get(source)
        if found is not None:
            columns = tuple((name, derive_type(kind)) for name, kind in found["schema"].items())
            return columns, {"null" if name is None else name: value for name, value in found["text"].items()}
    raise KeyError(source)


def test_access_logs_of_the_page() -> None:
    columns, settings = example("requests")
    lines = (
        rb'192.0.2.7 - frank [10/Oct/2026:13:55:36 -0700] "GET /a.gif HTTP/1.0" 200 2326 "http://example.com/" "Nav"',
        rb'2001:db8::1 - - [10/Oct/2026:13:55:36 +0000] "GET /a?q=\"x\" HTTP/1.1" 304 - "-" "a \"quoted\" agent"',
        rb'198.51.100.4 - - [10/Oct/2026:13:55:36 +0000] "\x16\x03\x01" 400 0',
        rb'198.51.100.4 - - [10/Oct/2026:13:55:36 +0000] "GET / HTTP/1.1" OK 0',
    )
    found = decode(*lines, columns=columns, **settings)
    first, second, third = found.frame.rows()
    assert first[:6] == ("192.0.2.7", "frank", "10/Oct/2026:13:55:36 -0700", "GET /a.gif HTTP/1.0", 200, 2326)
    assert first[6:] == ("http://example.com/", "Nav")
    assert second[3:] == (r"GET /a?q=\"x\" HTTP/1.1", 304, None, None, r"a \"quoted\" agent")
    assert third[3:] == (r"\x16\x03\x01", 400, 0, None, None)
    (failure,) = found.failures
    assert failure.message == r"the pattern expects `(?<status>\d{3})` at character 64, in 'OK 0'"


def test_syslog_of_the_page() -> None:
    columns, settings = example("syslog")
    lines = (
        '<165>1 2026-10-11T22:14:15.003Z host.example.com app - ID47 [a@1 x="1" y="\\]"][b@2] \ufeffstarted'.encode(),
        b"<34>1 - host su 77 ID47 -",
        b"<34>Oct 11 22:14:15 host su: failed",
    )
    found = decode(*lines, columns=columns, **settings)
    at = dt.datetime(2026, 10, 11, 22, 14, 15, 3000, tzinfo=dt.UTC)
    data = '[a@1 x="1" y="\\]"][b@2]'
    assert found.frame.rows() == [
        (165, 1, at, "host.example.com", "app", None, "ID47", data, "\ufeffstarted"),
        (34, 1, None, "host", "su", "77", "ID47", None, None),
    ]
    assert [one.row for one in found.failures] == [2]
    columns, settings = example("old_syslog")
    lines = (b"<34>Oct 11 22:14:15 host su[17]: failed: x", b"<13>Feb  5 17:32:18 192.0.2.1 cron: run", b"plain")
    found = decode(*lines, columns=columns, **settings)
    assert found.frame.rows() == [
        (34, "Oct 11 22:14:15", "host", "su", 17, "failed: x"),
        (13, "Feb  5 17:32:18", "192.0.2.1", "cron", None, "run"),
    ]
