"""Lines of a file as records, and records as lines of a terminal or a program."""

from __future__ import annotations

import json

import confluent_kafka as ck
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.cases import GivenSettings
from tidegate.dev.topics.client import _seen
from tidegate.dev.topics.records import LineReader, LineRefused, SeenRecord, render_json, render_text

AT_MS = 1_767_225_600_123
BYTES = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=20).map(str.encode))


def seen(
    key: bytes | None = b"ann", value: bytes | None = b'{"id": 1}', timestamp_ms: int | None = AT_MS
) -> SeenRecord:
    return SeenRecord("orders", 3, 12, timestamp_ms, key, value)


@pytest.mark.parametrize(
    ("reader", "line", "record"),
    [
        (LineReader(json=True), b'{"id": 1}\n', (None, b'{"id": 1}')),
        (LineReader(json=True), b"  \r\n", None),
        (LineReader(json=True, key="ann"), b"1", (b"ann", b"1")),
        (LineReader(json=True, separator=":"), b'ann:{"a": "b:c"}\r\n', (b"ann", b'{"a": "b:c"}')),
        (LineReader(json=True, separator="\t"), b"\t1\n", (b"", b"1")),
        (LineReader(json=False), b" a line \n", (None, b" a line ")),
        (LineReader(json=False, separator="::"), b"a:b::c::d\n", (b"a:b", b"c::d")),
    ],
)
def test_a_line_is_a_record(reader: LineReader, line: bytes, record: tuple[bytes | None, bytes] | None) -> None:
    assert reader.parse(1, line) == record


@pytest.mark.parametrize(
    ("reader", "line", "message"),
    [
        (LineReader(json=True), b'{"id": 1', r"line 7 is not JSON \(.*\): \{\"id\": 1; correct it, or .*--format text"),
        (LineReader(json=True), b"x" * 200, r"line 7 is not JSON \(.*\): x{60}\.\.\.; correct it"),
        (LineReader(json=True), b"[" * 5000, "line 7 is not JSON"),
        (LineReader(json=True, separator=":"), b"ann", "line 7 has no ':' after the key: ann"),
        (LineReader(json=True, separator=":"), b"a:b:1", "line 7 is not JSON"),
    ],
)
def test_a_line_that_makes_no_record_is_named(reader: LineReader, line: bytes, message: str) -> None:
    with pytest.raises(LineRefused, match=message):
        reader.parse(7, line)


def test_text_form() -> None:
    assert render_text(seen()) == '3:12      2026-01-01T00:00:00.123Z  ann  {"id": 1}'
    assert render_text(seen(None, None, None)) == "3:12      -  -  (null)"


def test_nothing_in_a_record_moves_the_cursor_of_a_terminal() -> None:
    line = render_text(seen(b"a\x1b[31m", "two\nlines\u202e\u00e9".encode() + b"\xff"))
    assert line.isprintable()
    assert line.endswith(r"  a\x1b[31m  two\nlines\u202eé\xff")


def test_a_timestamp_that_no_calendar_has_is_shown_as_a_number() -> None:
    assert f"  {2**60}ms  " in render_text(seen(timestamp_ms=2**60))


def test_json_form_nests_a_value_that_is_json_in_one_line() -> None:
    line = render_json(seen(value=b'{\n "id": 1.0,\n "big": 123456789012345678901234567890}'))
    assert line == (
        '{"topic":"orders","partition":3,"offset":12,"timestamp":"2026-01-01T00:00:00.123Z","key":"ann",'
        '"value":{"id":1.0,"big":123456789012345678901234567890}}'
    )


@pytest.mark.slow
def test_headers_are_as_preview_takes_them() -> None:
    """It is what `preview --records` says that its lines are; a pipeline that reads headers found none."""
    record = SeenRecord("orders", 3, 12, AT_MS, None, b"1", [("source", b"web"), ("trace", None), ("id", b"\x00\xff")])
    written = json.loads(render_json(record))["headers"]
    assert written == [["source", "web"], ["trace", None], ["id", {"base64": "AP8="}]]
    assert GivenSettings.model_validate({"headers": written}).headers == tuple(record.headers)
    assert "headers" not in json.loads(render_json(seen()))


@given(BYTES, BYTES, st.one_of(st.none(), st.integers(min_value=-(2**63), max_value=2**63 - 1)))
def test_any_record_is_one_line_of_each_form(key: bytes | None, value: bytes | None, timestamp_ms: int | None) -> None:
    record = seen(key, value, timestamp_ms)
    assert render_text(record).isprintable()
    line = render_json(record)
    assert "\n" not in line
    entry = json.loads(line)
    assert entry.keys() <= {"topic", "partition", "offset", "timestamp", "key", "value", "key_base64", "value_base64"}
    assert ("value" in entry) != ("value_base64" in entry)


@pytest.mark.parametrize(("at_ms", "shown"), [(-1, None), (-7, None), (0, "1970-01-01T00:00:00.000Z")])
def test_a_negative_timestamp_is_shown_as_none(at_ms: int, shown: str | None) -> None:
    stamp = (ck.TIMESTAMP_CREATE_TIME, at_ms)
    record = _seen(ck.Message(topic="orders", partition=3, offset=12, value=b"1", timestamp=stamp, error=None))
    assert json.loads(render_json(record))["timestamp"] == shown
