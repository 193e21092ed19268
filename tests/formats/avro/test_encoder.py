"""Rows to messages: the bytes that fastavro writes, and rows that a schema has no place for."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from tests.formats.avro.any_avro import PREFIX, encode, record_of, text_of
from tests.support.records import listed
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
    TIMESTAMP_NTZ,
    DataType,
    decimal_of,
    map_of,
)
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Encoded
from tidegate.formats.kinds.avro import FORMAT
from tidegate.formats.kinds.avro.encoder import Wire
from tidegate.formats.record_parts import RecordParts
from tidegate.formats.records import RecordEncoder
from tidegate.formats.schemas import FormatOptions, IdPlace

AT = dt.datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=dt.UTC)
POINT = DataType("struct", fields=(("x", INT), ("tags", DataType("array", element=STRING))))
UNIONS = DataType("struct", fields=(("x", BIGINT), ("y", STRING)))
AVRO_POINT = record_of(("x", "int"), ("tags", {"type": "array", "items": "string"}), name="Point")


def written(kind: Any, column: DataType, values: list[Any]) -> Encoded:
    """Of a record with one field `a`."""
    text = text_of(record_of(("a", kind)))
    frame = pl.DataFrame([pl.Series("a", values, dtype=polars_type(column))])
    return FORMAT.encoder((("a", column),), FormatOptions(text)).encode(frame)


def logical(kind: str, word: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": word, **more}


@pytest.mark.parametrize(
    ("kind", "column", "values"),
    [
        ("boolean", BOOLEAN, [True, False]),
        ("int", INT, [0, -1, 63, -64, 64, 2**31 - 1, -(2**31)]),
        ("long", BIGINT, [0, 2**63 - 1, -(2**63)]),
        ("long", SMALLINT, [5]),
        ("double", FLOAT, [0.5]),
        ("float", FLOAT, [0.5, float("inf")]),
        ("double", DOUBLE, [0.1, float("-inf"), -0.0]),
        ("string", STRING, ["", "é", "x" * 1000]),
        ("bytes", BINARY, [b"", b"\x02\x04" * 40]),
        (["null", "string"], STRING, ["a", None]),
        (["string", "null"], STRING, ["a", None]),
        ({"type": "fixed", "name": "F", "size": 2}, BINARY, [b"ab"]),
        (["null", {"type": "fixed", "name": "F", "size": 2}], BINARY, [b"ab", None]),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, STRING, ["B", "A"]),
        (logical("int", "date"), DATE, [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
        (logical("long", "timestamp-micros"), TIMESTAMP, [AT]),
        (logical("long", "timestamp-millis"), TIMESTAMP, [AT.replace(microsecond=123000)]),
        (logical("long", "local-timestamp-micros"), TIMESTAMP_NTZ, [AT.replace(tzinfo=None)]),
        (logical("bytes", "decimal", precision=38, scale=2), decimal_of(38, 2), [Decimal("327.68"), Decimal("-1.28")]),
        (logical("bytes", "decimal", precision=9, scale=2), decimal_of(5, 2), [Decimal("0.00"), Decimal("-999.99")]),
        (logical("fixed", "decimal", precision=9, scale=2, name="D", size=8), decimal_of(9, 2), [Decimal("-0.01")]),
        (logical("string", "uuid"), STRING, ["12345678-1234-5678-1234-567812345678"]),
        ({"type": "array", "items": ["null", "int"]}, DataType("array", element=INT), [[1, None], []]),
        ({"type": "array", "items": "int"}, DataType("array", element=INT), [[1, 2], []]),
        (AVRO_POINT, POINT, [{"x": 1, "tags": ["a"]}, {"x": 2, "tags": []}]),
        (["null", AVRO_POINT], POINT, [None, {"x": 2, "tags": ["b", "c"]}]),
        (
            {"type": "array", "items": logical("bytes", "decimal", precision=9, scale=2)},
            DataType("array", element=decimal_of(9, 2)),
            [[Decimal("1.50")], []],
        ),
    ],
    ids=str,
)
def test_the_bytes_are_those_of_fastavro(kind: Any, column: DataType, values: list[Any]) -> None:
    encoded = written(kind, column, values)
    assert not encoded.failures
    assert encoded.columns["value"].to_list() == [encode(record_of(("a", kind)), {"a": value}) for value in values]


def test_maps_keep_their_order() -> None:
    entries = [{"key": "b", "value": 1}, {"key": "a", "value": 2}]
    encoded = written({"type": "map", "values": "long"}, map_of(STRING, BIGINT), [entries, []])
    schema = record_of(("a", {"type": "map", "values": "long"}))
    assert encoded.columns["value"].to_list() == [encode(schema, {"a": {"b": 1, "a": 2}}), encode(schema, {"a": {}})]


@pytest.mark.parametrize(
    ("kind", "column", "bad", "good", "message"),
    [
        ("int", INT, None, 1, "NULL_VALUE: `a` is NULL, but the schema does not allow null there"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, STRING, "B", "A", "OUT_OF_RANGE: `a` is not a symbol of E"),
        ({"type": "fixed", "name": "F", "size": 2}, BINARY, b"abc", b"ab", "OUT_OF_RANGE: `a` does not have 2 bytes"),
        (
            logical("string", "uuid"),
            STRING,
            "x",
            "1" * 8 + "-1111-1111-1111-" + "1" * 12,
            "OUT_OF_RANGE: `a` is not a UUID",
        ),
        (logical("int", "time-millis"), INT, 86_400_000, 86_399_999, "OUT_OF_RANGE: `a` is not a time of day"),
        (logical("long", "time-micros"), INT, -1, 0, "OUT_OF_RANGE: `a` is not a time of day"),
        (
            logical("long", "timestamp-nanos"),
            TIMESTAMP,
            AT.replace(year=9000),
            AT,
            "OUT_OF_RANGE: `a` is too far from 1970 for nanoseconds",
        ),
        (
            {"type": "array", "items": "int"},
            DataType("array", element=INT),
            [1, None],
            [1],
            "NULL_VALUE: `a[]` is NULL, but the schema does not allow null there",
        ),
        (
            ["null", AVRO_POINT],
            POINT,
            {"x": None, "tags": []},
            None,
            "NULL_VALUE: `a.x` is NULL, but the schema does not allow null there",
        ),
    ],
    ids=str,
)
def test_a_row_that_does_not_fit_fails_alone(kind: Any, column: DataType, bad: Any, good: Any, message: str) -> None:
    encoded = written(kind, column, [good, bad, good])
    assert [(one.row, str(one)) for one in encoded.failures] == [(1, message)]
    whole = written(kind, column, [good, good]).columns["value"].to_list()
    assert encoded.columns["value"].to_list() == [whole[0], None, whole[1]]


def test_fields_without_a_column_are_null() -> None:
    schema = record_of(("gone", ["null", "Point2"]), ("a", "int"), ("n", "null"))
    schema["fields"][0]["type"] = ["null", {**AVRO_POINT, "name": "Point2"}]
    encoded = FORMAT.encoder((("a", INT),), FormatOptions(text_of(schema))).encode(pl.DataFrame({"a": [1, 2]}))
    assert encoded.columns["value"].to_list() == [encode(schema, {"gone": None, "a": one, "n": None}) for one in (1, 2)]


def test_the_id_stands_in_front_or_nowhere() -> None:
    text = text_of(record_of(("a", "int")), 2**31 - 1)
    frame = pl.DataFrame({"a": pl.Series([1], dtype=pl.Int32), "k": ["x"]})
    prefixed = RecordEncoder("avro", (("a", INT),), RecordParts(key="k"), options=FormatOptions(text)).encode(frame)
    assert listed(prefixed)[:2] == ([b"\0\x7f\xff\xff\xff\2"], [b"x"])
    bare = RecordEncoder("avro", (("a", INT),), options=FormatOptions(text, IdPlace.NONE)).encode(frame)
    assert listed(bare).values == [b"\2"]
    assert RecordEncoder("avro", (("a", INT),), options=FormatOptions(text)).encode(frame.clear()).values.is_empty()


def test_a_value_that_has_the_bytes_of_a_guard_is_written_with_another(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([b"\x81\x82", b"\x83\x84"])
    monkeypatch.setattr(
        "tidegate.formats.kinds.avro.encoder.os.urandom",
        lambda size: next(drawn) if size == 2 else bytes(range(100, 100 + size)),
    )
    from tidegate.formats.kinds.avro.schema import parse_schema

    schema = record_of(("a", "bytes"), ("b", "bytes"))
    wire = Wire(parse_schema(text_of(schema)), PREFIX)
    frame = pl.DataFrame({"f0": [b"\x02\x04\x81\x82", b"\x04\x81\x82\x02"], "f1": [b"", b"\x02\x04\x81\x82\x02"]})
    expected = [encode(schema, {"a": a, "b": b}) for a, b in frame.rows()]
    assert wire.write(frame) == expected
    assert next(drawn, None) is None
