"""Schema texts: descriptor sets, imports, messages by name, and what cannot be read as columns."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from tests.formats.protobuf.any_protobuf import file_of, text_of
from tidegate.datatypes import BIGINT, INT, STRING, DataType
from tidegate.datatypes import TIMESTAMP as MOMENT
from tidegate.formats.contract import FormatRefusal
from tidegate.formats.kinds.protobuf import FORMAT
from tidegate.formats.kinds.protobuf.compiler import BUILT_IN, built_in_file
from tidegate.formats.kinds.protobuf.schema import describe
from tidegate.formats.schemas import FormatOptions, SchemaKind, SchemaText

TIMESTAMP = "google/protobuf/timestamp.proto"
CUSTOMER = file_of({"Customer": [("name", "string")]}, name="shop/customer.proto", package="shop")
ORDER = file_of(
    {
        "Order": [("id", "int64"), ("who", "shop.Customer")],
        "Note": [("text", "string")],
        "Note.Part": [("no", "int32")],
    },
    name="order.proto",
    imports=["shop/customer.proto", TIMESTAMP],
)


def set_of(*files: object) -> bytes:
    return bytes(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())


def test_the_last_file_of_a_set_is_the_schema_and_its_first_message_the_one() -> None:
    other = file_of({"Other": [("x", "int32")]}, name="other.proto", package="o")
    schema = FORMAT.select_message(FORMAT.read_schema(set_of(other, CUSTOMER, ORDER)), "")
    assert (schema.message, [name for name, _ in schema.references]) == ("t.Order", ["shop/customer.proto"])
    who = DataType("struct", fields=(("name", STRING),))
    assert FORMAT.schema_columns(schema) == {"id": BIGINT, "who": who}
    assert FORMAT.schema_name(schema) == "t.Order"


def test_files_that_every_registry_has_are_no_references_of_a_set_that_has_them_too() -> None:
    """`protoc --include_imports` puts them there, and no subject has them."""
    own, options = descriptor_pb2.FileDescriptorProto(), file_of({}, name="confluent/meta.proto", package="confluent")
    timestamp_pb2.DESCRIPTOR.CopyToProto(own)
    file = file_of({"R": [("at", "google.protobuf.Timestamp")]}, imports=[TIMESTAMP, options.name])
    schema = FORMAT.select_message(FORMAT.read_schema(set_of(own, options, file)), "")
    assert (schema.references, FORMAT.schema_columns(schema)) == ((), {"at": MOMENT})


@pytest.mark.parametrize(
    ("message", "columns"),
    [("t.Note", {"text": STRING}), ("t.Note.Part", {"no": INT}), ("shop.Customer", {"name": STRING})],
)
def test_a_message_may_be_any_of_a_set(message: str, columns: dict[str, DataType]) -> None:
    schema = FORMAT.select_message(FORMAT.read_schema(set_of(CUSTOMER, ORDER)), message)
    assert (schema.message, FORMAT.schema_columns(schema)) == (message, columns)


def test_a_message_of_the_registry_is_in_the_schema_itself() -> None:
    schema = text_of(ORDER, imports=[CUSTOMER])
    assert FORMAT.select_message(schema, "t.Note").message == "t.Note"
    with pytest.raises(FormatRefusal, match=r"no message `shop\.Customer`") as caught:
        FORMAT.select_message(schema, "shop.Customer")
    assert caught.value.remedy == "it has t.Order, t.Note, t.Note.Part; names include their package"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'syntax = "proto3";', "nor a `.proto` file with messages"),
        (b"\xff\xff", "the file is neither a descriptor set"),
        (b"", "the file is neither a descriptor set"),
        (set_of(file_of({})), "the file is neither a descriptor set"),
    ],
)
def test_what_is_no_descriptor_set_is_refused_with_the_command_that_makes_one(data: bytes, said: str) -> None:
    with pytest.raises(FormatRefusal, match=said) as caught:
        FORMAT.read_schema(data)
    assert "protoc --include_imports --descriptor_set_out=" in caught.value.remedy


def test_what_only_people_read_is_left_out() -> None:
    commented = descriptor_pb2.FileDescriptorProto()
    commented.CopyFrom(CUSTOMER)
    commented.source_code_info.location.add(leading_comments="long " * 100)
    assert FORMAT.read_schema(set_of(commented)) == FORMAT.read_schema(set_of(CUSTOMER))


def test_references_of_references_are_found_by_what_the_files_call_them() -> None:
    top = file_of({"Top": [("order", "t.Order")]}, name="any name", imports=["a/order.proto"], package="top")
    order = text_of(ORDER, 0, imports=[CUSTOMER])
    schema = SchemaText(SchemaKind.PROTOBUF, text_of(top).text, (("a/order.proto", order),))
    assert list(FORMAT.schema_columns(schema)) == ["order"]


def test_a_reference_that_comes_twice_may_have_its_own_at_either() -> None:
    """The registry's client gives them once."""
    middle = file_of({"Middle": [("order", "t.Order")]}, name="m.proto", imports=["order.proto"], package="middle")
    imports = ["m.proto", "order.proto"]
    top = file_of({"Top": [("a", "middle.Middle"), ("b", "t.Order")]}, imports=imports, package="top")
    whole, short = text_of(ORDER, 0, imports=[CUSTOMER]), text_of(ORDER, 0)
    with_all = ("m.proto", SchemaText(SchemaKind.PROTOBUF, text_of(middle).text, (("order.proto", whole),)))
    for references in ((with_all, ("order.proto", short)), (("order.proto", short), with_all)):
        schema = SchemaText(SchemaKind.PROTOBUF, text_of(top).text, references)
        assert list(FORMAT.schema_columns(schema)) == ["a", "b"]


def test_an_import_that_has_nothing_but_options_is_not_needed() -> None:
    file = file_of({"R": [("id", "int32")]}, imports=["confluent/meta.proto", TIMESTAMP])
    file.public_dependency.append(1)
    assert FORMAT.schema_columns(text_of(file)) == {"id": INT}


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_a_file_that_registries_have_built_in_is_there_without_a_reference(name: str) -> None:
    file = built_in_file(name)
    kinds = [f"{'' if one in file.message_type else 'enum:'}{file.package}.{one.name}"
             for one in (*file.message_type, *file.enum_type)]  # fmt: skip
    main = file_of({"R": [(f"f{place}", kind) for place, kind in enumerate(kinds)]}, imports=[name])
    assert list(FORMAT.schema_columns(text_of(main))) == [f"f{place}" for place in range(len(kinds))]
    in_set = FORMAT.read_schema(set_of(file, main))
    assert (in_set.references, FORMAT.schema_columns(in_set)) == ((), FORMAT.schema_columns(text_of(main)))


def test_decimals_and_dates_of_confluents_converters_are_structs() -> None:
    imports = ["confluent/meta.proto", "confluent/type/decimal.proto", "google/type/date.proto"]
    main = file_of({"R": [("price", "confluent.type.Decimal"), ("day", "google.type.Date")]}, imports=imports)
    assert {name: str(kind) for name, kind in FORMAT.schema_columns(text_of(main)).items()} == {
        "price": "struct<value: binary, precision: bigint, scale: int>",
        "day": "struct<year: int, month: int, day: int>",
    }


def test_a_reference_counts_over_what_is_built_in() -> None:
    other = file_of({"Date": [("days", "int64")]}, name="google/type/date.proto", package="google.type")
    main = file_of({"R": [("day", "google.type.Date")]}, imports=[other.name])
    assert str(FORMAT.schema_columns(text_of(main, imports=[other]))["day"]) == "struct<days: bigint>"


def damaged_map() -> Any:
    """The library takes it."""
    file = file_of({"R": [("a", ("string", "string"))]})
    file.message_type[0].nested_type[0].field[1].name = "velue"
    return file


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (text_of(ORDER), "the import `shop/customer.proto` is missing"),
        (text_of(file_of({"R": [("a", "t.Gone")]})), "the protobuf library rejects the schema"),
        (text_of(damaged_map()), "the fields of the map's entry `AEntry` are not key and value"),
        (SchemaText(SchemaKind.PROTOBUF, 'syntax = "proto3";'), "the schema is text of a `.proto` file"),
        (SchemaText(SchemaKind.PROTOBUF, "AAAA"), "the schema is not a descriptor of a file"),
        (text_of(file_of({})), "the schema has no message"),
    ],
)
def test_a_schema_that_is_none_is_refused(schema: SchemaText, said: str) -> None:
    with pytest.raises(FormatRefusal, match=said):
        FORMAT.schema_columns(FORMAT.select_message(schema, ""))


def test_files_that_import_each_other_are_refused() -> None:
    one = file_of({"A": [("x", "int32")]}, name="a.proto", imports=["b.proto"])
    two = file_of({"B": [("x", "int32")]}, name="b.proto", imports=["a.proto"], package="u")
    with pytest.raises(FormatRefusal, match="imports itself"):
        FORMAT.read_schema(set_of(one, two))
    again = SchemaText(SchemaKind.PROTOBUF, text_of(two).text, (("b.proto", text_of(two)), ("a.proto", text_of(one))))
    with pytest.raises(FormatRefusal, match="imports itself"):
        describe(again)


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ({"R": [("a", "t.R")]}, "at `a`: t.R contains itself"),
        ({"R": [("a", "t.X")], "X": [("b", "t.Y", "repeated")], "Y": [("c", "t.X")]}, r"at `a\.b\.c`: t.X contains"),
        ({"R": [("a", "google.protobuf.Struct")]}, "google.protobuf.Value contains itself|contains itself"),
        ({"R": [("a", "t.X")], "X": []}, "at `a`: t.X has no fields"),
        ({"R": []}, "t.R has no fields"),
        ({"R": [("__tidegate_a", "int32")]}, "begin with `__tidegate` belong to Tidegate"),
        (
            {f"M{place}": [(f"f{i}", f"t.M{place + 1}") for i in range(8)] for place in range(8)}
            | {"M8": [("x", "int32")]},
            "more than 10000 fields",
        ),
    ],
)
def test_what_is_no_column_is_refused_with_its_place(messages: dict[str, list[tuple[str, str]]], said: str) -> None:
    file = file_of(messages, imports=["google/protobuf/struct.proto"])
    with pytest.raises(FormatRefusal, match=said) as caught:
        FORMAT.schema_columns(text_of(file))
    assert "list the columns" in caught.value.remedy


def test_a_message_of_ones_own_that_is_called_as_googles_is_a_message() -> None:
    fields = [("seconds", "int64"), ("nanos", "int32")]
    file = file_of({"R": [("at", "google.protobuf.Timestamp")], "Timestamp": fields}, package="google.protobuf")
    assert FORMAT.schema_columns(text_of(file))["at"].kind == "struct"


def test_values_of_tests_are_the_json_of_the_columns() -> None:
    options = FormatOptions(text_of(ORDER, imports=[CUSTOMER]))
    row = {"id": 5, "who": {"name": "ann"}}
    data = FORMAT.from_plain(row, options)
    assert data.startswith(b"\0\0\0\0\x07\0")
    assert FORMAT.to_plain(data, options) == row
    with pytest.raises(FormatRefusal, match="does not fit the schema"):
        FORMAT.from_plain({"id": "x"}, options)
    with pytest.raises(ValueError, match="MALFORMED_PROTOBUF"):
        FORMAT.to_plain(data + b"\x0c", options)


def test_values_of_tests_may_leave_out_what_a_message_may() -> None:
    inner: list[tuple[Any, ...]] = [("x", "int64"), ("y", "string", "optional")]
    fields: list[tuple[Any, ...]] = [("n", "int32"), ("kind", "enum:t.Kind"), ("raw", "bytes"), ("ok", "bool")]
    fields += [("part", "t.Part"), ("parts", "t.Part", "repeated"), ("by", ("string", "t.Part"))]
    fields += [("word", "string", "optional")]
    options = FormatOptions(text_of(file_of({"R": fields, "Part": inner}, enums={"Kind": {"NEW": 0, "OLD": 1}})))
    whole = {"n": 0, "kind": "NEW", "raw": "", "ok": False, "part": None, "parts": [], "by": {}, "word": None}
    assert FORMAT.to_plain(FORMAT.from_plain({}, options), options) == whole
    given = {"n": 5, "part": {"y": "a"}, "parts": [{"x": 1}, {}], "by": {"k": {}}, "kind": "OLD"}
    found = {
        **whole,
        "n": 5,
        "kind": "OLD",
        "part": {"x": 0, "y": "a"},
        "parts": [{"x": 1, "y": None}, {"x": 0, "y": None}],
        "by": {"k": {"x": 0, "y": None}},
    }
    assert FORMAT.to_plain(FORMAT.from_plain(given, options), options) == found
    with pytest.raises(FormatRefusal, match="cannot be absent"):
        FORMAT.from_plain({"n": None}, options)
