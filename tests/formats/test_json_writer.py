"""Columns to JSON."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.datatypes import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, FLOAT, STRING, TIMESTAMP, DataType
from tidegate.formats.columns import polars_type
from tidegate.formats.kinds.json.reader import JsonDecoder
from tidegate.formats.kinds.json.writer import json_objects

UTC = dt.UTC


def encode(columns: Sequence[tuple[str, DataType]], frame: pl.DataFrame) -> list[bytes]:
    encoded: list[bytes] = frame.select(value=json_objects(columns)).to_series().to_list()
    return encoded


def encode_one(kind: DataType, value: object) -> str:
    frame = pl.DataFrame([pl.Series("v", [value], dtype=polars_type(kind))])
    return encode([("v", kind)], frame)[0].decode()


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (TIMESTAMP, dt.datetime(2026, 1, 1, tzinfo=UTC), '"2026-01-01T00:00:00Z"'),
        (TIMESTAMP, dt.datetime(2026, 1, 1, 0, 0, 0, 5, UTC), '"2026-01-01T00:00:00.000005Z"'),
        (TIMESTAMP, dt.datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC), '"2026-01-01T00:00:00.500Z"'),
        (TIMESTAMP, dt.datetime(1, 1, 1, tzinfo=UTC), '"0001-01-01T00:00:00Z"'),
        (TIMESTAMP, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), '"1969-12-31T23:59:59.999999Z"'),
        (DATE, dt.date(2026, 1, 1), '"2026-01-01"'),
        (BINARY, b"\x00\xff", '"AP8="'),
        (DOUBLE, math.nan, "null"),
        (DOUBLE, -math.inf, "null"),
        (DOUBLE, -0.0, "-0.0"),
        (FLOAT, 0.1, "0.1"),
        (BOOLEAN, False, "false"),
        (STRING, 'é"\\\n\x00', '"é\\"\\\\\\n\\u0000"'),
        (
            DataType("array", element=TIMESTAMP),
            [dt.datetime(2026, 1, 1, tzinfo=UTC), None],
            '["2026-01-01T00:00:00Z",null]',
        ),
        (DataType("array", element=BINARY), [], "[]"),
        (DataType("struct", fields=(("b", BINARY), ("n", BIGINT))), {"b": b"\xff", "n": None}, '{"b":"/w==","n":null}'),
        (DataType("struct", fields=(("b", BINARY),)), None, "null"),
        (DataType("array", element=DataType("struct", fields=(("b", BINARY),))), [{"b": b""}, None], '[{"b":""},null]'),
    ],
)
def test_text_of_values(kind: DataType, value: object, text: str) -> None:
    assert encode_one(kind, value) == f'{{"v":{text}}}'


def test_fields_in_order_of_the_sink_and_no_others() -> None:
    frame = pl.DataFrame({"a": [1, None], "__tidegate_offset": [0, 1], "b": ["x", None]})
    assert encode([("b", STRING), ("a", BIGINT)], frame) == [b'{"b":"x","a":1}', b'{"b":null,"a":null}']


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | st.integers(-(2**63), 2**63 - 1),
            "d e": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "s": st.none() | st.text(),
            "t": st.none() | st.datetimes(timezones=st.just(UTC)),
            "x": st.none() | st.binary(),
            "l": st.none() | st.lists(st.none() | st.text()),
            "n": st.none() | st.fixed_dictionaries({"t": st.none() | st.datetimes(timezones=st.just(UTC))}),
        }
    ),
    min_size=1,
    max_size=5,
)
SCHEMA: tuple[tuple[str, DataType], ...] = (
    ("i", BIGINT),
    ("d e", DOUBLE),
    ("s", STRING),
    ("t", TIMESTAMP),
    ("x", BINARY),
    ("l", DataType("array", element=STRING)),
    ("n", DataType("struct", fields=(("t", TIMESTAMP),))),
)


@pytest.mark.slow
@given(ROWS)
def test_encoded_rows_decode_to_themselves(rows: list[dict[str, Any]]) -> None:
    frame = pl.DataFrame([pl.Series(n, [row[n] for row in rows], dtype=polars_type(kind)) for n, kind in SCHEMA])
    values = encode(SCHEMA, frame)
    decoded, failures = JsonDecoder(SCHEMA).decode_values(values)
    assert not failures
    assert decoded.rows() == frame.rows()


@pytest.mark.slow
@given(ROWS)
def test_the_standard_library_reads_what_is_written(rows: list[dict[str, Any]]) -> None:
    schema = [(name, kind) for name, kind in SCHEMA if name in ("i", "d e", "s", "l")]
    frame = pl.DataFrame([pl.Series(n, [row[n] for row in rows], dtype=polars_type(kind)) for n, kind in schema])
    found = [json.loads(value) for value in encode(schema, frame)]
    assert found == [{name: row[name] for name, _ in schema} for row in rows]
