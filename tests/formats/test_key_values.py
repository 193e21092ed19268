"""Keys of records as columns, and back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.datatypes import BIGINT, BINARY, STRING, DataType, decimal_of
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind
from tidegate.formats.key_values import key_reader, key_writer

STRUCT = DataType("struct", fields=(("id", BIGINT), ("region", STRING)))
KEYS = st.lists(st.none() | st.binary(max_size=6), max_size=8)


def written(column: pl.Series, key_format: str) -> list[bytes | None]:
    frame = column.alias("k").to_frame()
    return frame.select(key_writer("k", key_format, column.dtype)).to_series().to_list()


@given(KEYS)
def test_raw_keys_are_their_bytes_both_ways(keys: list[bytes | None]) -> None:
    found = key_reader("k", "raw", BINARY)(keys)
    assert found.column.to_list() == keys
    assert written(found.column, "raw") == keys


@given(KEYS)
def test_a_string_key_is_bad_exactly_where_it_is_no_utf8(keys: list[bytes | None]) -> None:
    bad = []
    for row, key in enumerate(keys):
        try:
            (key or b"").decode()
        except UnicodeDecodeError:
            bad.append(row)
    found = key_reader("k", "string", STRING)(keys)
    assert [one.row for one in found.failures] == bad
    good = [row for row in range(len(keys)) if row not in bad]
    assert written(found.column.gather(good), "string") == [keys[row] for row in good]


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        (BIGINT, b"7", 7),
        (BIGINT, b" 7 ", 7),
        (STRING, b'"a\\"b"', 'a"b'),
        (STRING, b"null", None),
        (STRUCT, b'{"region":"eu","id":1,"more":2}', {"id": 1, "region": "eu"}),
        (DataType("array", element=BIGINT), b"[1,null]", [1, None]),
        (decimal_of(38, 2), b"12345678901234567.89", Decimal("12345678901234567.89")),
        (decimal_of(38, 2), b'"12.5"', Decimal("12.50")),
    ],
)
def test_a_json_key_is_any_value(kind: DataType, data: bytes, value: Any) -> None:
    found = key_reader("k", "json", kind)([None, data])
    assert (found.column.to_list(), found.failures) == ([None, value], ())
    assert found.column.dtype == polars_type(kind)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", FailureKind.EMPTY_VALUE),
        (b"x", FailureKind.MALFORMED_JSON),
        (b'1,"k":2', FailureKind.MALFORMED_JSON),
        (b"1}", FailureKind.MALFORMED_JSON),
        (b"1.5", FailureKind.WRONG_TYPE),
        (b"99999999999999999999", FailureKind.OUT_OF_RANGE),
    ],
)
def test_a_json_key_of_another_type_is_bad_and_the_message_names_the_key(data: bytes, kind: FailureKind) -> None:
    found = key_reader("k", "json", BIGINT)([b"1", data, None, b"3"])
    (failure,) = found.failures
    assert (failure.row, failure.kind) == (1, kind)
    assert failure.message.startswith("the key: ")
    assert found.column.gather([0, 2, 3]).to_list() == [1, None, 3]


@pytest.mark.parametrize(
    ("column", "keys"),
    [
        (pl.Series(['a"}', None]), [b'"a\\"}"', None]),
        (pl.Series([-5, None]), [b"-5", None]),
        (pl.Series([True, None]), [b"true", None]),
        (pl.Series([b"\xff", None]), [b'"/w=="', None]),
        (pl.Series([{"a": 1, "b": None}, None]), [b'{"a":1,"b":null}', None]),
        (pl.Series([Decimal("12.50"), None]), [b"12.50", None]),
        (pl.Series([{"a": Decimal("1.0"), "b": [1]}, None]), [b'{"a":1.0,"b":[1]}', None]),
    ],
)
def test_json_keys_are_written_as_json_and_null_is_no_key(column: pl.Series, keys: list[bytes | None]) -> None:
    assert written(column, "json") == keys
