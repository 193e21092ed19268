"""Rows to messages: every type there and back, what a message cannot hold, and what is in front of it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from tests.formats.protobuf.any_protobuf import decoder_of, file_of, text_of, type_of
from tidegate.datatypes import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    decimal_of,
    map_of,
)
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Columns, Decoded, Encoded, FormatRefusal
from tidegate.formats.failures import FailureKind
from tidegate.formats.kinds.protobuf import FORMAT
from tidegate.formats.kinds.protobuf.encoder import ProtobufEncoder
from tidegate.formats.schemas import FormatOptions, IdPlace

WELL_KNOWN = [f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "wrappers")]
TIMES = [("at", "google.protobuf.Timestamp"), ("took", "google.protobuf.Duration")]
WRAPPED = [("word", "google.protobuf.StringValue"), ("count", "google.protobuf.UInt64Value")]


def encode(file: Any, columns: Columns, *rows: dict[str, Any], message: str = "", ids: str = "prefix") -> Encoded:
    frame = pl.DataFrame(rows, schema={name: polars_type(kind) for name, kind in columns})
    options = FormatOptions(text_of(file, message=message), IdPlace(ids))
    return ProtobufEncoder(columns, options).encode(frame)


def test_what_is_written_is_read_again() -> None:
    fields: list[tuple[Any, ...]] = [("id", "uint64"), ("kind", "enum:t.Kind"), ("home", "t.Address", "repeated")]
    fields += [("counts", ("string", "t.Address")), ("note", "string", "optional"), *TIMES, *WRAPPED]
    messages = {"R": fields, "Address": [("street", "string", "optional"), ("flag", "bool")]}
    file = file_of(messages, enums={"Kind": {"NEW": 0, "OLD": 1}}, imports=WELL_KNOWN)
    columns = tuple(FORMAT.schema_columns(text_of(file)).items())
    address = {"street": None, "flag": True}
    rows = [
        {
            "id": Decimal(2**64 - 1),
            "kind": "OLD",
            "home": [address, {"street": "", "flag": False}],
            "counts": [{"key": "a", "value": address}, {"key": "b", "value": {"street": "s", "flag": False}}],
            "note": "",
            "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
            "took": -1_000_001,
            "word": "",
            "count": Decimal(1),
        },
        {
            "id": 0,
            "kind": "7",
            "home": [],
            "counts": [],
            "note": None,
            "at": None,
            "took": 0,
            "word": None,
            "count": None,
        },
    ]
    encoded = encode(file, columns, *rows)
    assert list(encoded.failures) == []
    decoded = decoder_of(file).decode_values(encoded.columns["value"].to_list())
    assert isinstance(decoded, Decoded)
    assert decoded.frame.rows(named=True) == rows


@pytest.mark.parametrize(
    ("message", "ids", "front"),
    [
        ("t.A", "prefix", b"\0\0\0\0\x07\0"),
        ("t.B", "prefix", b"\0\0\0\0\x07\x02\x02"),
        ("t.B.C", "prefix", b"\0\0\0\0\x07\x04\x02\0"),
        ("t.B.C", "none", b""),
    ],
)
def test_in_front_of_a_message_are_its_schema_and_its_type(message: str, ids: str, front: bytes) -> None:
    file = file_of({"A": [("x", "int32")], "B": [("m", ("string", "int32")), ("x", "int32")], "B.C": [("x", "int32")]})
    encoded = encode(file, (("x", INT),), {"x": 3}, message=message, ids=ids)
    written = encoded.columns["value"][0]
    one = type_of(file, message)
    assert (written[: len(front)], one.made.FromString(written[len(front) :]).x) == (front, 3)


def test_maps_are_written_in_the_order_of_their_keys() -> None:
    file = file_of({"R": [("m", ("int32", "int32"))]})
    columns = (("m", map_of(INT, INT)),)
    rows = [{"m": [{"key": key, "value": 1} for key in keys]} for keys in ((3, 1, 2), (1, 2, 3))]
    first, second = encode(file, columns, *rows).columns["value"].to_list()
    assert first == second


@pytest.mark.parametrize(
    ("field", "column", "value", "kind", "said"),
    [
        (("a", "int32"), INT, None, FailureKind.NULL_VALUE, "`a` is NULL, but the field cannot be absent"),
        (("a", "int32", "repeated"), DataType("array", element=INT), None, FailureKind.NULL_VALUE, "`a` is NULL"),
        (("a", "int32", "repeated"), DataType("array", element=INT), [1, None], FailureKind.NULL_VALUE, "has a NULL"),
        (("a", ("string", "int32")), map_of(STRING, INT), None, FailureKind.NULL_VALUE, "`a` is NULL, but a map"),
        (
            ("a", ("string", "int32")), map_of(STRING, INT), [{"key": "k", "value": None}],
            FailureKind.NULL_VALUE, "`a` has a NULL",
        ),
        (
            ("a", "t.X"), DataType("struct", fields=(("x", INT),)), {"x": None},
            FailureKind.NULL_VALUE, "`a.x` is NULL",
        ),
        (("a", "uint32"), BIGINT, -1, FailureKind.OUT_OF_RANGE, "-1"),
        (("a", "uint32"), BIGINT, 2**32, FailureKind.OUT_OF_RANGE, "`a`: Value out of range: 4294967296"),
        (("a", "uint64"), decimal_of(38), Decimal(2**64), FailureKind.OUT_OF_RANGE, "18446744073709551616"),
        (("a", "enum:t.Kind"), STRING, "GONE", FailureKind.OUT_OF_RANGE, "`a` is not a value of t.Kind"),
        (("a", "enum:t.Kind"), STRING, "--5", FailureKind.OUT_OF_RANGE, "`a` is not a value of t.Kind"),
        (("a", "enum:t.Kind"), STRING, "\u0665", FailureKind.OUT_OF_RANGE, "`a` is not a value of t.Kind"),
        (("a", "enum:t.Kind"), STRING, "99999999999", FailureKind.OUT_OF_RANGE, "`a` is not a value of t.Kind"),
        (("a", "google.protobuf.Duration"), BIGINT, 2**63 - 1, FailureKind.OUT_OF_RANGE, "`a` exceeds"),
    ],
)  # fmt: skip
def test_a_value_that_its_field_does_not_hold_makes_its_row_bad(
    field: tuple[Any, ...], column: DataType, value: Any, kind: FailureKind, said: str
) -> None:
    messages = {"R": [field, ("id", "int32")], "X": [("x", "int32")]}
    file = file_of(messages, enums={"Kind": {"NEW": 0}}, imports=WELL_KNOWN)
    columns = (("id", INT), ("a", column))
    encoded = encode(file, columns, {"id": 1, "a": value})
    assert [(one.row, one.kind) for one in encoded.failures] == [(0, kind)]
    assert said in encoded.failures[0].message
    assert encoded.columns["value"].to_list() == [None]


def test_only_one_of_a_oneof_may_be_set() -> None:
    file = file_of({"R": [("a", "int32", "oneof:one"), ("b", "string", "oneof:one"), ("c", "int32", "optional")]})
    columns = (("a", INT), ("b", STRING), ("c", INT))
    encoded = encode(file, columns, {"a": 0}, {"b": ""}, {"a": 1, "b": "x"}, {"c": 1})
    assert [(one.row, one.message) for one in encoded.failures] == [
        (2, "`a` and `b` belong to the oneof one, of which only one may be set")
    ]


def test_fields_may_be_called_as_methods_of_the_library() -> None:
    file = file_of({"R": [("SerializeToString", "int32"), ("FromString", "int32")]})
    columns = (("SerializeToString", INT), ("FromString", INT))
    assert encode(file, columns, {"SerializeToString": 1, "FromString": 2}).columns["value"][0][6:] == b"\x08\1\x10\2"


@pytest.mark.parametrize(
    ("field", "column", "said"),
    [
        (("b", "int32"), INT, "at `a`: t.R has no field for this column"),
        (("a", "int32"), BIGINT, "at `a`: the schema has int32, but the column is bigint"),
        (("a", "int64"), DOUBLE, "at `a`: the schema has int64, but the column is double"),
        (("a", "float"), DOUBLE, "at `a`: the schema has float, but the column is double"),
        (("a", "uint64"), decimal_of(10, 2), "at `a`: the schema has uint64, but the column is decimal(10,2)"),
        (("a", "string"), BINARY, "at `a`: the schema has string, but the column is binary"),
        (("a", "int32", "repeated"), INT, "at `a`: the field is repeated, but the column is int"),
        (("a", "int32", "repeated"), DataType("array", element=STRING), "at `a[]`: the schema has int32"),
        (("a", ("string", "bool")), INT, "at `a`: the schema has a map, but the column is int"),
        (("a", ("string", "bool")), map_of(INT, BOOLEAN), "at `a{}`: the schema has string, but the column is int"),
        (("a", "t.X"), INT, "at `a`: the schema has the message t.X, but the column is int"),
        (("a", "t.X"), DataType("struct", fields=(("y", INT),)), "at `a.y`: t.X has no field for this column"),
        (("a", "google.protobuf.Timestamp"), TIMESTAMP_NTZ, "has google.protobuf.Timestamp, but the column is"),
        (("a", "google.protobuf.Duration"), TIMESTAMP, "has google.protobuf.Duration, but the column is"),
        (("a", "google.protobuf.StringValue"), INT, "has google.protobuf.StringValue, but the column is int"),
    ],
)
def test_columns_that_do_not_fit_are_refused_with_the_place(
    field: tuple[Any, ...], column: DataType, said: str
) -> None:
    file = file_of({"R": [field], "X": [("x", "int32")]}, imports=WELL_KNOWN)
    with pytest.raises(FormatRefusal) as caught:
        FORMAT.check_schema(text_of(file), {"a": column})
    assert said in caught.value.message


def test_a_required_field_needs_a_column() -> None:
    file = file_of({"R": [("a", "int32"), ("b", "int32", "required")]}, syntax="proto2")
    with pytest.raises(FormatRefusal, match="at `b`: there is no column for this required field"):
        FORMAT.check_schema(text_of(file), {"a": INT})
    FORMAT.check_schema(text_of(file), {"b": INT})


def test_columns_alone_make_no_schema() -> None:
    with pytest.raises(FormatRefusal, match="a message needs field numbers, which columns do not have") as caught:
        FORMAT.derive_schema({"a": INT}, "topic")
    assert "{file: order.desc}" in caught.value.remedy
