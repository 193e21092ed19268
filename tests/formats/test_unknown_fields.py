"""The fate of a record depends on the schema and on what is said of other fields, never on who reads which column."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import DEPTH
from tests.formats.typed_values import TYPES
from tidegate.datatypes import INT, STRING, DataType, map_of
from tidegate.formats.columns import plain_values
from tidegate.formats.failures import FailureKind
from tidegate.formats.kinds.json.reader import JsonDecoder
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, UnknownFields

POINT = DataType("struct", fields=(("x", INT),))
COLUMNS = [("a", INT), ("s", POINT)]
FAIL = FormatOptions(unknown_fields=UnknownFields.FAIL)
KEEP = FormatOptions(unknown_fields=UnknownFields.KEEP, rest="rest")
REST = map_of(STRING, STRING)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "12.50", "1e2", "true", "AP8=", "2026-01-31", "2026-01-31T12:00:00"])
    | st.sampled_from(["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "1", "true"]), inner, max_size=2),
    max_leaves=4,
)
FIELDS = ("a", "b", "c", "d")


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[tuple[str, DataType]], FormatOptions, list[bytes | None]]:
    columns = [(name, draw(TYPES)) for name in draw(st.lists(st.sampled_from(FIELDS), min_size=1, unique=True))]
    options = draw(st.sampled_from([NO_OPTIONS, FAIL, KEEP]))
    if options is KEEP:
        columns.append(("rest", REST))
    records = draw(st.lists(st.dictionaries(st.sampled_from(FIELDS), VALUES), max_size=4))
    odd = st.sampled_from([None, b"", b"{", b'{"a":"\xff"}', b'{"zz":"\xff"}', b'{"zz":"\\ud800"}', b'{"b":{"zz":[]}}'])
    return columns, options, [*(json.dumps(one).encode() for one in records), *draw(st.lists(odd, max_size=2))]


@pytest.mark.slow
@settings(max_examples=50 * DEPTH)
@given(batches(), st.sets(st.sampled_from((*FIELDS, "rest"))))
def test_which_records_are_bad_and_why_does_not_depend_on_what_is_read(
    batch: tuple[list[tuple[str, DataType]], FormatOptions, list[bytes | None]], read: set[str]
) -> None:
    columns, options, values = batch
    whole = JsonDecoder(columns, columns, options=options).decode_values(values)
    part = JsonDecoder(columns, [one for one in columns if one[0] in read], options=options).decode_values(values)
    assert part.failures == whole.failures
    assert part.frame.height == whole.frame.height == len(values) - len(whole.failures)
    for name in part.frame.columns:
        assert repr(plain_values(part.frame[name])) == repr(plain_values(whole.frame[name]))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a":1,"b":2}', "Object contains unknown field `b`"),
        ('{"s":{"x":1,"y":2}}', "Object contains unknown field `y` - at `$.s`"),
        ('{"A":1}', "unknown field `A`"),
    ],
)
def test_a_field_that_no_column_names_fails_its_record(text: str, reason: str) -> None:
    frame, failures = JsonDecoder(COLUMNS, options=FAIL).decode_values([b'{"a":1}', text.encode(), b"{}"])
    assert frame["a"].to_list() == [1, None]
    assert [(one.row, one.kind) for one in failures] == [(1, FailureKind.UNKNOWN_FIELD)]
    assert reason in failures[0].message
    assert not JsonDecoder(COLUMNS).decode_values([text.encode()]).failures


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('{"a":1,"s":null}', []),
        ('{"b":"t\\n","c":null}', [("b", "t\n"), ("c", None)]),
        ('{"b": [1, {"x":null} ] , "c":1.50,"d":true}', [("b", '[1, {"x":null} ]'), ("c", "1.50"), ("d", "true")]),
        ('{"b":1,"b":2}', [("b", "2")]),
        ('{"rest":5,"":"é"}', [("rest", "5"), ("", "é")]),
        ('{"s":{"y":1}}', []),
        ('{"b":1e999999}', [("b", "1e999999")]),
    ],
)
def test_fields_that_no_column_names_are_kept_as_texts(text: str, kept: list[tuple[str, Any]]) -> None:
    frame, failures = JsonDecoder([*COLUMNS, ("rest", REST)], options=KEEP).decode_values([text.encode()])
    assert not failures
    assert plain_values(frame["rest"]) == [tuple(kept)]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b'{"b":"\xff"}', FailureKind.NOT_UTF8),
        (b'{"b":["\xff"]}', FailureKind.NOT_UTF8),
        (b'{"b":"\\ud800"}', FailureKind.MALFORMED_JSON),
        (b'{"a":"x","b":1}', FailureKind.WRONG_TYPE),
        (None, FailureKind.NULL_VALUE),
    ],
)
def test_what_cannot_be_kept_is_a_bad_record(value: bytes | None, kind: FailureKind) -> None:
    frame, failures = JsonDecoder([*COLUMNS, ("rest", REST)], options=KEEP).decode_values([value, b"{}"])
    assert frame.height == 1
    assert [(one.row, one.kind) for one in failures] == [(0, kind)]
