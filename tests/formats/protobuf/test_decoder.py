"""Messages to rows: every type, what may be missing, what is wrong, and schemas that have changed."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, ClassVar

import msgspec
import polars as pl
import pytest

from tests.formats.batches import messages_of
from tests.formats.protobuf.any_protobuf import PREFIX, decoder_of, file_of, text_of, write
from tidegate.datatypes import BIGINT, DOUBLE, INT, STRING, DataType
from tidegate.formats.contract import Decoded, WaitingForSchema
from tidegate.formats.failures import FailureKind
from tidegate.formats.kinds.protobuf.decoder import ProtobufDecoder
from tidegate.formats.schemas import FormatOptions, IdPlace, KnownSchemas, SchemaKind, SchemaText

WELL_KNOWN = [f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "wrappers")]
INTEGERS = ("int32", "sint32", "sfixed32", "int64", "sint64", "sfixed64", "uint32", "fixed32", "uint64", "fixed64")
ORDER = file_of({"Order": [("id", "int64"), ("name", "string"), ("note", "string", "optional")]})


def decode(decoder: ProtobufDecoder, *values: bytes | None) -> Decoded:
    found = decoder.decode_values(values)
    assert isinstance(found, Decoded)
    return found


def rows_of(file: Any, *values: bytes | None) -> list[dict[str, Any]]:
    found = decode(decoder_of(file), *values)
    assert list(found.failures) == []
    return found.frame.rows(named=True)


def failure_of(decoder: ProtobufDecoder, value: bytes | None) -> tuple[FailureKind, str]:
    """Of a value between two others that are of the same kind."""
    found = decode(decoder, value)
    assert found.frame.height == 0
    (failure,) = found.failures
    return failure.kind, failure.message


def test_every_number_has_all_of_its_range() -> None:
    bounds = {"uint64": (0, 2**64 - 1), "uint32": (0, 2**32 - 1), "int32": (-(2**31), 2**31 - 1)}
    bounds |= {"int64": (-(2**63), 2**63 - 1), "fixed32": bounds["uint32"], "fixed64": bounds["uint64"]}
    bounds |= {name: bounds[f"int{name[-2:]}"] for name in ("sint32", "sfixed32", "sint64", "sfixed64")}
    file = file_of({"R": [(f"f{name}", name) for name in INTEGERS]})
    least, most = ({f"f{name}": bounds[name][place] for name in INTEGERS} for place in (0, 1))
    assert rows_of(file, write(file, **least), write(file, **most)) == [least, most]
    assert decode(decoder_of(file)).frame.schema["fuint64"] == pl.Decimal(20, 0)


def test_messages_lists_maps_and_enums_become_structs_arrays_maps_and_texts() -> None:
    file = file_of(
        {
            "R": [
                ("home", "t.Address"),
                ("others", "t.Address", "repeated"),
                ("counts", ("string", "int64")),
                ("places", ("int32", "t.Address")),
                ("kind", "enum:t.Kind"),
                ("kinds", "enum:t.Kind", "repeated"),
                ("data", "bytes"),
            ],
            "Address": [("street", "string"), ("zip", "int32", "optional")],
        },
        enums={"Kind": {"NEW": 0, "OLD": 1, "ANCIENT": 1}},
    )
    address, known = {"street": "s", "zip": None}, {"street": "s"}
    value = write(
        file,
        home=known,
        others=[known, {"zip": 0}],
        counts={"b": 2, "a": 1},
        places={2: known, -1: known},
        kind=1,
        kinds=[0, 1, 77],
        data=b"\xff",
    )
    full, empty = rows_of(file, value, write(file))
    assert full == {
        "home": address,
        "others": [address, {"street": "", "zip": 0}],
        "counts": [{"key": "a", "value": 1}, {"key": "b", "value": 2}],
        "places": [{"key": -1, "value": address}, {"key": 2, "value": address}],
        "kind": "OLD",
        "kinds": ["NEW", "OLD", "77"],
        "data": b"\xff",
    }
    assert empty == {
        "home": None, "others": [], "counts": [], "places": [], "kind": "NEW", "kinds": [], "data": b""
    }  # fmt: skip


def test_only_a_field_with_presence_is_null_where_it_is_missing() -> None:
    file = file_of(
        {"R": [("a", "int32"), ("b", "int32", "optional"), ("c", "string", "oneof:one"), ("d", "t.R.E", "oneof:one")],
         "R.E": [("x", "bool")]}
    )  # fmt: skip
    missing = {"a": 0, "b": None, "c": None, "d": None}
    values = [write(file), write(file, b=0), write(file, c=""), write(file, d={})]
    assert rows_of(file, *values) == [
        missing, {**missing, "b": 0}, {**missing, "c": ""}, {**missing, "d": {"x": False}}
    ]  # fmt: skip


def test_proto2_has_defaults_of_its_own_and_required_fields() -> None:
    fields = [("a", "int32", "required"), ("b", "int32", "default:5"), ("c", "string"), ("d", "bool", "repeated")]
    file = file_of({"R": fields}, syntax="proto2")
    assert rows_of(file, write(file, a=0), write(file, a=1, b=0, c="", d=[True])) == [
        {"a": 0, "b": 5, "c": None, "d": []}, {"a": 1, "b": 0, "c": "", "d": [True]}
    ]  # fmt: skip
    assert failure_of(decoder_of(file), PREFIX) == (
        FailureKind.MALFORMED_PROTOBUF, "required fields are missing: a"
    )  # fmt: skip


def test_well_known_types_mean_what_they_say() -> None:
    named = {name: f"google.protobuf.{name}" for name in ("Timestamp", "Duration", "StringValue", "UInt64Value")}
    fields: list[tuple[Any, ...]] = [
        ("at", named["Timestamp"]),
        ("took", named["Duration"]),
        ("word", named["StringValue"]),
    ]
    fields += [("count", named["UInt64Value"]), ("all", named["Timestamp"], "repeated")]
    file = file_of({"R": fields}, imports=WELL_KNOWN)
    value = write(
        file,
        at={"seconds": -1, "nanos": 999_999_999},
        took={"seconds": -1, "nanos": -1_999},
        word={"value": ""},
        count={"value": 2**64 - 1},
        all=[{"seconds": 5}],
    )
    full, empty = rows_of(file, value, write(file))
    assert full == {
        "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
        "took": -1_000_001,
        "word": "",
        "count": Decimal(2**64 - 1),
        "all": [dt.datetime(1970, 1, 1, 0, 0, 5, tzinfo=dt.UTC)],
    }
    assert empty == {"at": None, "took": None, "word": None, "count": None, "all": []}


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("at", {"seconds": 253_402_300_800}),
        ("at", {"nanos": -1}),
        ("at", {"nanos": 1_000_000_000}),
        ("took", {"seconds": 1, "nanos": -1}),
        ("took", {"seconds": 315_576_000_001}),
    ],
)
@pytest.mark.parametrize("read", [True, False])
def test_a_time_beyond_its_range_makes_its_record_bad_whoever_reads_it(
    name: str, part: dict[str, int], *, read: bool
) -> None:
    fields = [("at", "google.protobuf.Timestamp"), ("took", "google.protobuf.Duration"), ("id", "int32")]
    file = file_of({"R": fields}, imports=WELL_KNOWN)
    decoder = decoder_of(file, output=None if read else (("id", INT),))
    found = decode(decoder, write(file, id=1), write(file, **{name: part}), write(file, id=2))
    assert [(one.row, one.kind) for one in found.failures] == [(1, FailureKind.OUT_OF_RANGE)]
    assert found.failures[0].message.startswith(f"`{name}`: ")
    assert found.frame["id"].to_list() == [1, 2]


@pytest.mark.parametrize("read", [True, False])
def test_a_string_of_proto2_that_is_not_utf8_makes_its_record_bad(*, read: bool) -> None:
    file = file_of({"R": [("id", "int32"), ("s", "string"), ("l", "string", "repeated")]}, syntax="proto2")
    decoder = decoder_of(file, output=None if read else (("id", INT),))
    found = decode(decoder, PREFIX + b"\x08\x01", PREFIX + b"\x12\x01\xff", PREFIX + b"\x1a\x01\xff")
    assert [str(one) for one in found.failures] == [
        "NOT_UTF8: `s`: a string is not UTF-8",
        "NOT_UTF8: `l`: a string is not UTF-8",
    ]
    assert [one.row for one in found.failures] == [1, 2]
    assert found.frame["id"].to_list() == [1]


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("entry", [b"\x0a\x01\xff\x12\x00", b"\x0a\x01a\x12\x01\xff"])
def test_a_map_of_proto2_that_is_not_utf8_makes_its_record_bad(entry: bytes, *, read: bool) -> None:
    file = file_of({"R": [("id", "int32"), ("m", ("string", "string"))]}, syntax="proto2")
    decoder = decoder_of(file, output=None if read else (("id", INT),))
    good = PREFIX + b"\x08\x01\x12\x06\x0a\x01a\x12\x01b"
    found = decode(decoder, good, PREFIX + b"\x12" + bytes([len(entry)]) + entry, good)
    (failure,) = found.failures
    assert (failure.row, failure.kind) == (1, FailureKind.NOT_UTF8)
    assert failure.message.startswith("`m`: ")
    assert found.frame["id"].to_list() == [1, 1]


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (None, FailureKind.NULL_VALUE, "a tombstone has no value"),
        (b"", FailureKind.EMPTY_VALUE, "the value is empty"),
        (b"{}", FailureKind.MALFORMED_PROTOBUF, "not with a zero byte and the id of a schema"),
        (b"\0\0\0\0\x09\0", FailureKind.UNKNOWN_SCHEMA, "no schema with the id 9"),
        (PREFIX[:5], FailureKind.MALFORMED_PROTOBUF, "the indexes of the message type"),
        (PREFIX[:5] + b"\x01\0", FailureKind.MALFORMED_PROTOBUF, "the indexes of the message type"),
        (PREFIX[:5] + b"\x02", FailureKind.MALFORMED_PROTOBUF, "the indexes of the message type"),
        (PREFIX[:5] + b"\x02\x01", FailureKind.MALFORMED_PROTOBUF, "the indexes of the message type"),
        (PREFIX[:5] + b"\xff\xff\xff\xff\xff\x01", FailureKind.MALFORMED_PROTOBUF, "the indexes of the message type"),
        (PREFIX[:5] + b"\x02\x06", FailureKind.MALFORMED_PROTOBUF, "schema 7 has no message with the indexes 3"),
        (PREFIX + b"\x08", FailureKind.MALFORMED_PROTOBUF, "Wire format was corrupt"),
        (PREFIX + b"\x12\x01\xff", FailureKind.MALFORMED_PROTOBUF, ""),
        (PREFIX + b"\x08\x01\x0c", FailureKind.MALFORMED_PROTOBUF, ""),
    ],
)
def test_a_bad_record_is_bad_alone(value: bytes | None, kind: FailureKind, said: str) -> None:
    good = write(ORDER, id=1, name="a")
    found = decode(decoder_of(ORDER), good, value, good)
    assert [(one.row, one.kind) for one in found.failures] == [(1, kind)]
    assert said in found.failures[0].message
    assert found.frame["id"].to_list() == [1, 1]


def test_the_list_of_one_index_may_be_written_out() -> None:
    assert rows_of(ORDER, PREFIX[:5] + b"\x02\x00" + b"\x08\x05")[0]["id"] == 5


def test_bare_messages_are_of_the_message_that_the_file_names_and_may_be_empty() -> None:
    options = FormatOptions(text_of(ORDER, 0), IdPlace.NONE)
    decoder = ProtobufDecoder((("id", BIGINT),), (("id", BIGINT),), options, KnownSchemas())
    found = decode(decoder, b"\x08\x05", b"", None, b"\x08")
    assert found.frame["id"].to_list() == [5, 0]
    assert [(one.row, one.kind) for one in found.failures] == [
        (2, FailureKind.NULL_VALUE), (3, FailureKind.MALFORMED_PROTOBUF)
    ]  # fmt: skip


def test_a_schema_that_is_asked_for_is_waited_for() -> None:
    class Nobody:
        def __init__(self) -> None:
            self.asked: list[int | str] = []

        def get(self, schema_id: int | str, /) -> SchemaText | None:
            self.asked.append(schema_id)
            return None

        def refuse(self, schema_id: int | str, why: str, /) -> None:
            raise AssertionError(schema_id, why)

    nobody = Nobody()
    decoder = ProtobufDecoder((("id", BIGINT),), (("id", BIGINT),), FormatOptions(), nobody)
    assert isinstance(decoder.decode(messages_of([PREFIX, PREFIX[:4] + b"\x08\0"])), WaitingForSchema)
    assert nobody.asked == [7, 8]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (SchemaText(SchemaKind.AVRO, '"int"', id=7), "it is in avro"),
        (SchemaText(SchemaKind.PROTOBUF, 'syntax = "proto3";', id=7), "text of a `.proto` file"),
        (SchemaText(SchemaKind.PROTOBUF, "AAAA", id=7), "not a descriptor"),
    ],
)
def test_a_schema_that_nobody_can_use_makes_its_records_bad(schema: SchemaText, said: str) -> None:
    decoder = ProtobufDecoder((("id", BIGINT),), (("id", BIGINT),), FormatOptions(), KnownSchemas({7: schema}))
    kind, message = failure_of(decoder, PREFIX)
    assert kind is FailureKind.INCOMPATIBLE_SCHEMA
    assert said in message


# -- schemas that differ -----------------------------------------------------------------------------------------------


def test_columns_are_looked_for_by_name_in_the_message_of_each_record() -> None:
    file = file_of({"A": [("id", "int32"), ("price", "float")], "B": [("id", "int64"), ("in", "t.B.C")], "B.C": [
        ("name", "string"), ("id", "int64"),
    ]})  # fmt: skip
    inner = DataType("struct", fields=(("name", STRING), ("gone", INT)))
    declared = (("id", BIGINT), ("price", DOUBLE), ("in", inner))
    values = [write(file, id=1, price=0.5), write(file, "t.B", **{"id": 2, "in": {"name": "n", "id": 3}})]
    values += [write(file, "t.B.C", id=3)]
    found = decode(decoder_of(file, declared=declared), *values)
    assert (list(found.failures), found.frame.rows()) == (
        [], [(1, 0.5, None), (2, None, {"name": "n", "gone": None}), (3, None, None)]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("written", "column"),
    [
        (("a", "int64"), INT),
        (("a", "string"), BIGINT),
        (("a", "int32", "repeated"), INT),
        (("a", "int32"), DataType("array", element=INT)),
        (("a", ("string", "int32")), DataType("struct", fields=(("key", STRING),))),
        (("a", "t.X"), INT),
        (("a", "int32"), DataType("struct", fields=(("x", INT),))),
    ],
)
def test_a_column_of_another_type_makes_records_bad(written: tuple[Any, ...], column: DataType) -> None:
    file = file_of({"R": [written], "X": [("x", "int32")]})
    kind, message = failure_of(decoder_of(file, declared=(("a", column),)), PREFIX)
    assert kind is FailureKind.INCOMPATIBLE_SCHEMA
    assert message.startswith("schema 7 cannot be read: at `a")


def test_a_readers_fields_are_found_by_their_numbers() -> None:
    writer = file_of({"R": [("id", "int32", 1), ("old", "string", 2), ("more", "bool", 3)]})
    reader = file_of({"R": [("new", "string", 2), ("key", "int64", 1), ("added", "int32", "optional", 9)]})
    found = decode(decoder_of(writer, reader), write(writer, id=-1, old="o", more=True))
    assert (list(found.failures), found.frame.rows(named=True)) == ([], [{"new": "o", "key": -1, "added": None}])


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (("a", "int64"), ("a", "int32")),
        (("a", "int32"), ("a", "uint64")),
        (("a", "int32"), ("a", "sint32")),
        (("a", "fixed32"), ("a", "int32")),
        (("a", "string"), ("a", "int32")),
        (("a", "int32", "repeated"), ("a", "int32")),
        (("a", ("string", "int32")), ("a", "t.X", "repeated")),
        (("a", ("string", "int32")), ("a", ("string", "bool"))),
        (("a", "t.X"), ("a", "string")),
        (("a", "t.X"), ("a", "t.Y")),
        (("a", "google.protobuf.Timestamp"), ("a", "t.Z")),
    ],
)
def test_a_readers_type_that_would_be_another_value_makes_records_bad(
    written: tuple[Any, ...], read: tuple[Any, ...]
) -> None:
    others = {"X": [("x", "int32")], "Y": [("x", "bytes")], "Z": [("seconds", "int64"), ("nanos", "int32")]}
    writer, reader = (file_of({"R": [one], **others}, imports=WELL_KNOWN) for one in (written, read))
    kind, message = failure_of(decoder_of(writer, reader), PREFIX)
    assert kind is FailureKind.INCOMPATIBLE_SCHEMA
    assert message.startswith("schema 7 cannot be read: at `a")


def test_a_record_of_another_message_is_not_read_as_the_readers() -> None:
    writer = file_of({"Order": [("id", "int64")], "Payment": [("id", "int64")]})
    found = decode(decoder_of(writer, ORDER), write(writer, id=1), write(writer, "t.Payment", id=2))
    assert found.frame["id"].to_list() == [1]
    assert found.failures[0].message == "schema 7 cannot be read: at `t.Order`: the record is a message t.Payment"


def test_whoever_sees_to_the_registry_hears_of_a_schema_that_cannot_be_read() -> None:
    class Known(KnownSchemas):
        refused: ClassVar[list[tuple[int | str, str]]] = []

        def refuse(self, schema_id: int | str, why: str, /) -> None:
            self.refused.append((schema_id, why))

    latest = file_of({"Order": [("id", "string")]})
    schema = msgspec.structs.replace(text_of(latest), subject="orders-value", version=2)
    columns = (("id", STRING),)
    decoder = ProtobufDecoder(columns, columns, FormatOptions(schema), Known({7: text_of(ORDER)}))
    assert [len(decode(decoder, write(ORDER)).failures) for _ in range(2)] == [1, 1]
    why = "at `id`: the writer's type is int64, the reader's string"
    assert Known.refused == [(7, f"schema 7 cannot be read with version 2 of `orders-value`: {why}")]


def test_a_damaged_place_says_nothing_about_other_records_with_the_same_id() -> None:
    decoder = decoder_of(ORDER)
    for damaged in (PREFIX[:5], PREFIX[:5] + b"\x03", PREFIX[:5] + b"\x02"):
        for _ in range(2):
            found = decode(decoder, damaged, write(ORDER, id=1), write(ORDER, id=2))
            assert [(one.row, one.kind) for one in found.failures] == [(0, FailureKind.MALFORMED_PROTOBUF)]
            assert found.frame["id"].to_list() == [1, 2]


# -- unknown fields ----------------------------------------------------------------------------------------------------


def test_unknown_fields_are_left_out() -> None:
    inner = {"In": [("x", "int32")]}
    writer = file_of({"R": [("id", "int32"), ("in", "t.In"), ("all", ("string", "t.In"))], **inner})
    strange = [PREFIX + b"\x78\x01", PREFIX + b"\x12\x02\x78\x01", PREFIX + b"\x1a\x07\x0a\x01a\x12\x02\x78\x01"]
    good = write(writer, **{"id": 1, "in": {"x": 1}, "all": {"a": {"x": 2}}})
    assert decode(decoder_of(writer), good, *strange).frame.height == 4


def test_fields_may_be_called_as_methods_of_the_library() -> None:
    names = ("HasField", "SerializeToString", "DESCRIPTOR", "from", "FromString", "IsInitialized", "ListFields")
    file = file_of({"R": [(name, "int32", "optional") for name in names]})
    row: dict[str, int | None] = dict.fromkeys(names, 3)
    value = write(file, **row)
    assert rows_of(file, value, PREFIX) == [row, dict.fromkeys(names)]


def test_without_columns_there_are_as_many_rows() -> None:
    found = decode(decoder_of(ORDER, output=()), write(ORDER), b"", write(ORDER))
    assert (found.frame.height, found.frame.width, len(found.failures)) == (2, 0, 1)
