"""JSON values to columns: every record for itself."""

from __future__ import annotations

import datetime as dt
import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.datatypes import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    DataType,
)
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind
from tidegate.formats.kinds.json.reader import JsonDecoder

POINT = DataType("struct", fields=(("x", INT), ("at", TIMESTAMP)))
UTC = dt.UTC

LARGEST_FLOATS = (
    "3.4028235E38",  # as Java and Polars write it
    "3.4028235e+38",
    "3.4028234663852886e38",
    "340282346638528859811704183484516925440",
    "3.4028235677973362e38",  # the last double before the one that is halfway to 2^128
)


def decode_one(kind: DataType, text: str) -> tuple[object, str]:
    """The value of field `v` and the reason of the failure, one of them empty."""
    frame, failures = JsonDecoder([("v", kind)]).decode_values([b'{"v":%s}' % text.encode()])
    return (frame["v"][0], "") if not failures else (None, str(failures[0]))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (BIGINT, "9223372036854775807", 2**63 - 1),
        (BIGINT, "-9223372036854775808", -(2**63)),
        (TINYINT, "-128", -128),
        (DOUBLE, "1", 1.0),
        (DOUBLE, "-1.5e300", -1.5e300),
        (FLOAT, "0.5", 0.5),
        *((FLOAT, sign + one, float(f"{sign}3.4028234663852886e38")) for sign in ("", "-") for one in LARGEST_FLOATS),
        (STRING, '"\\ud83d\\ude00\\u0000"', "😀\0"),
        (BOOLEAN, "true", True),
        (BINARY, '"AP8="', b"\x00\xff"),
        (DATE, '"1969-12-31"', dt.date(1969, 12, 31)),
        (TIMESTAMP, '"2026-01-01T02:00:00.5+02:00"', dt.datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC)),
        (TIMESTAMP, '"2026-01-01T00:00:00"', dt.datetime(2026, 1, 1, tzinfo=UTC)),
        (DataType("array", element=BIGINT), "[1,null]", [1, None]),
        (POINT, '{"x":1,"more":[]}', {"x": 1, "at": None}),
        (DataType("array", element=POINT), '[{"at":"2026-01-01T00:00:00Z"},null]', None),
        (STRING, "null", None),
        (POINT, "null", None),
    ],
)
def test_values_of_every_type(kind: DataType, text: str, value: object) -> None:
    found, reason = decode_one(kind, text)
    assert reason == ""
    if isinstance(found, pl.Series):
        found = found.to_list()
    if value is not None or text == "null":
        assert found == value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (BIGINT, "9223372036854775808", "<= 9223372036854775807 - at `$.v`"),
        (INT, "2147483648", "<= 2147483647"),
        (SMALLINT, "-32769", ">= -32768"),
        (BIGINT, "1.0", "got `number` - at `$.v`"),
        (BIGINT, "true", "got `boolean`"),
        (BIGINT, '"1"', "got `string`"),
        (STRING, "1", "got `integer`"),
        (DOUBLE, '"NaN"', "got `string`"),
        (DOUBLE, "NaN", "malformed"),
        (DOUBLE, "1e400", "out of range"),
        (FLOAT, "1e39", "<="),
        (FLOAT, "3.4028235677973366e38", "<= 3.4028235677973362e+38"),
        (FLOAT, "-3.4028235677973366e38", ">= -3.4028235677973362e+38"),
        (FLOAT, str(2**128 - 2**103), "<="),
        (TIMESTAMP, "1767225600000", "got `integer`"),
        (TIMESTAMP, '"2026-01-01"', "Invalid RFC3339"),
        (DATE, '"2026-02-30"', "Invalid RFC3339"),
        (BINARY, '"!"', "base64"),
        (DataType("array", element=BIGINT), '[1,"x"]', "$.v[1]"),
        (POINT, '{"x":1.5}', "$.v.x"),
        (POINT, "[]", "got `array`"),
    ],
)
def test_what_does_not_fit_fails_with_its_path(kind: DataType, text: str, reason: str) -> None:
    assert reason in decode_one(kind, text)[1]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "tombstone"),
        (b"", "the value is empty"),
        (b" ", "truncated"),
        (b"{", "truncated"),
        (b"null", "got `null`"),
        (b"[]", "got `array`"),
        (b'{"v":1}{', "trailing characters"),
        (b'\xef\xbb\xbf{"v":1}', "MALFORMED_JSON: the value begins with a byte order mark, which JSON does not allow"),
        (b'{"w":' + b"[" * 100_000, "nested too deeply"),
        (b'{"s":"\xff"}', "not UTF-8"),
        (b'{"s":"\\ud800"}', "a string has an unpaired surrogate"),
        (b'{"s":"\\ud800', "truncated"),
    ],
)
def test_a_bad_record_fails_alone(value: bytes | None, reason: str) -> None:
    good = b'{"v":1}'
    frame, failures = JsonDecoder([("v", BIGINT), ("s", STRING)]).decode_values([good, value, good, value, value, good])
    assert frame["v"].to_list() == [1, 1, 1]
    assert [failure.row for failure in failures] == [1, 3, 4]
    assert all(reason in str(failure) for failure in failures)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-00:01"])
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (TIMESTAMP, "%s"),
        (POINT, '{"at":%s}'),
        (DataType("array", element=TIMESTAMP), '["2026-01-01T00:00:00Z",null,%s]'),
        (DataType("array", element=POINT), '[null,{"x":1},{"at":%s}]'),
        (DataType("struct", fields=(("p", POINT), ("n", INT))), '{"p":{"at":%s}}'),
    ],
)
def test_a_timestamp_that_its_offset_moves_out_of_the_calendar_fails_its_record(
    kind: DataType, shape: str, text: str
) -> None:
    """No Python value can hold it, and no reader of the output could read it."""
    bad, good = (b'{"v":%s}' % (shape % f'"{moment}"').encode() for moment in (text, "2026-01-01T00:00:00Z"))
    frame, failures = JsonDecoder([("v", kind), ("w", TIMESTAMP)]).decode_values([good, b"{", bad, good, b'{"v":null}'])
    assert frame.height == 3
    assert frame.to_dicts()[2] == {"v": None, "w": None}
    assert [failure.row for failure in failures] == [1, 2]
    assert failures[1].kind is FailureKind.OUT_OF_RANGE
    assert "9999 - at `$.v" in failures[1].message


YEARS = (dt.datetime(2, 1, 1), dt.datetime(9998, 12, 31))  # noqa: DTZ001  # bounds for any time zone
OFFSETS = st.none() | st.integers(-839, 839).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))


@given(st.lists(st.none() | st.datetimes(*YEARS, timezones=OFFSETS), max_size=8))  # type: ignore[arg-type]  # None, too
def test_timestamps_are_exact_to_the_microsecond_with_any_offset_and_without_one(
    moments: list[dt.datetime | None],
) -> None:
    values = [b'{"v":null}' if one is None else b'{"v":"%s"}' % one.isoformat().encode() for one in moments]
    frame, failures = JsonDecoder([("v", TIMESTAMP)]).decode_values(values)
    assert not failures
    utc = [one if one is None or one.tzinfo else one.replace(tzinfo=UTC) for one in moments]
    assert frame["v"].to_list() == utc
    assert frame.schema == {"v": polars_type(TIMESTAMP)}


def test_the_first_and_the_last_moment_are_taken() -> None:
    for text in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"):
        value, reason = decode_one(TIMESTAMP, f'"{text}"')
        assert reason == ""
        assert isinstance(value, dt.datetime)


def test_a_number_that_no_double_holds_is_out_of_range() -> None:
    assert decode_one(DOUBLE, "1e400")[1].startswith("OUT_OF_RANGE")


def test_unknown_fields_are_skipped_missing_ones_null_and_the_last_repetition_counts() -> None:
    frame, failures = JsonDecoder([("a b", BIGINT), ("class", STRING)]).decode_values(
        [b'{"x":{"y":[1,"\xff"]},"a b":1,"a b":2}', b'{"class":"c"}']
    )
    assert not failures
    assert frame.rows() == [(2, None), (None, "c")]


def test_no_records_make_an_empty_frame_with_the_schema() -> None:
    frame, failures = JsonDecoder([("v", TIMESTAMP)]).decode_values([])
    assert not failures
    assert frame.schema == {"v": polars_type(TIMESTAMP)}


def test_a_source_of_which_no_field_is_used_still_counts_its_records() -> None:
    frame, _ = JsonDecoder([]).decode_values([b"{}", b'{"v":1}'])
    assert frame.height == 2


@pytest.mark.slow
def test_a_value_of_10_mb_is_decoded() -> None:
    frame, failures = JsonDecoder([("s", STRING)]).decode_values([json.dumps({"s": "é" * 5_000_000}).encode()])
    assert not failures
    assert frame["s"].str.len_chars()[0] == 5_000_000


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "b": st.none() | st.booleans(),
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "d": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": st.none() | st.text(),
        "l": st.none() | st.lists(st.none() | st.integers(-5, 5)),
        "n": st.none() | st.fixed_dictionaries({"s": st.none() | st.text()}),
        "unknown": st.recursive(st.none() | st.text(), st.lists),
    },
)
SCHEMA = (
    ("b", BOOLEAN),
    ("i", BIGINT),
    ("d", DOUBLE),
    ("s", STRING),
    ("l", DataType("array", element=BIGINT)),
    ("n", DataType("struct", fields=(("s", STRING),))),
)


@pytest.mark.slow
@given(st.lists(FIELDS, max_size=5))
def test_decoding_agrees_with_the_standard_library(records: list[dict[str, object]]) -> None:
    frame, failures = JsonDecoder(SCHEMA).decode_values([json.dumps(record).encode() for record in records])
    assert not failures
    assert frame.rows() == [tuple(record.get(name) for name, _ in SCHEMA) for record in records]


@pytest.mark.slow
@given(st.lists(st.binary(max_size=20), max_size=6))
def test_any_bytes_give_a_row_or_a_failure(values: list[bytes]) -> None:
    frame, failures = JsonDecoder(SCHEMA).decode_values(values)
    assert frame.height + len(failures) == len(values)


WRONG: dict[str, tuple[DataType, bytes]] = {
    "type": (BIGINT, b'"5"'),
    "range": (TINYINT, b"128"),
    "text": (DATE, b'"2026-02-30"'),
    "moment": (TIMESTAMP, b'"0001-01-01T00:00:00+01:00"'),
    "last": (TIMESTAMP, b'"9999-12-31T23:59:59-01:00"'),
    "nested": (DataType("array", element=POINT), b'[null, {"at": "0001-01-01T00:00:00+01:00"}]'),
    "deep": (POINT, b'{"x": 1.5}'),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("read", [[], [("id", BIGINT)]])
def test_X19_declared_fields_are_checked_whether_they_are_read_or_not(
    name: str, read: list[tuple[str, DataType]]
) -> None:
    kind, wrong = WRONG[name]
    declared = [("id", BIGINT), ("v", kind)]
    values: list[bytes | None] = [b'{"id":0}', b'{"id":1,"v":%s}' % wrong, b'{"id":2,"v":null,"else":[1]}']
    frame, failures = JsonDecoder(declared, read).decode_values(values)
    whole, same = JsonDecoder(declared).decode_values(values)
    assert failures == same
    assert [failure.row for failure in failures] == [1]
    assert frame.height == whole.height == 2
    assert frame.equals(whole.select(column for column, _ in read)) or not read


def test_X19_timestamps_of_the_first_and_last_year_are_read_and_unread() -> None:
    values: list[bytes | None] = [b'{"v":"0001-01-01T00:00:00Z"}', b'{"v":"9999-12-31T23:59:59.999999Z"}', b"{}"]
    for read in ([("v", TIMESTAMP)], []):
        frame, failures = JsonDecoder([("v", TIMESTAMP)], read).decode_values(values)
        assert (frame.height, failures) == (3, [])
