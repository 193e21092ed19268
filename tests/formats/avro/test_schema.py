"""Schemas become columns, or are refused with the place and the reason."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import polars as pl
import pytest

from tests.formats.avro.any_avro import decoder_of, encode, record_of, text_of
from tests.formats.batches import messages_of
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
from tidegate.formats.contract import Decoded, FormatRefusal
from tidegate.formats.kinds.avro import FORMAT
from tidegate.formats.schemas import FormatOptions, IdPlace, KnownSchemas, SchemaKind, SchemaText


def logical(kind: str, word: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": word, **more}


POINT = record_of(("x", "int"), ("y", ["null", "double"]), name="Point")


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("boolean", BOOLEAN),
        ("int", INT),
        ("long", BIGINT),
        ("float", FLOAT),
        ("double", DOUBLE),
        ("string", STRING),
        ("bytes", BINARY),
        ({"type": "fixed", "name": "F", "size": 3}, BINARY),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, STRING),
        (["null", "long"], BIGINT),
        (["long", "null"], BIGINT),
        (["long"], BIGINT),
        (["int", "long"], DataType("struct", fields=(("member0", INT), ("member1", BIGINT)))),
        (["null", "float", "double"], DataType("struct", fields=(("member0", FLOAT), ("member1", DOUBLE)))),
        (["null", "int", "string"], DataType("struct", fields=(("member0", INT), ("member1", STRING)))),
        ({"type": "array", "items": ["null", "int"]}, DataType("array", element=INT)),
        ({"type": "map", "values": "int"}, map_of(STRING, INT)),
        (POINT, DataType("struct", fields=(("x", INT), ("y", DOUBLE)))),
        (logical("int", "date"), DATE),
        (logical("int", "time-millis"), INT),
        (logical("long", "time-micros"), BIGINT),
        (logical("long", "timestamp-millis"), TIMESTAMP),
        (logical("long", "timestamp-micros"), TIMESTAMP),
        (logical("long", "timestamp-nanos"), TIMESTAMP),
        (logical("long", "local-timestamp-millis"), TIMESTAMP_NTZ),
        (logical("long", "local-timestamp-micros"), TIMESTAMP_NTZ),
        (logical("bytes", "decimal", precision=10, scale=2), decimal_of(10, 2)),
        (logical("fixed", "decimal", precision=10, scale=2, name="F", size=8), decimal_of(10, 2)),
        (logical("string", "uuid"), STRING),
        (logical("fixed", "uuid", name="F", size=16), BINARY),
        (logical("fixed", "duration", name="F", size=12), BINARY),
        (logical("long", "unheard-of"), BIGINT),
        (logical("string", "date"), STRING),
    ],
    ids=str,
)
def test_types_become_columns(kind: Any, column: DataType) -> None:
    assert FORMAT.schema_columns(text_of(record_of(("a", kind)))) == {"a": column}


LIST = record_of(("value", "int"), ("next", ["null", "R"]))
DEEP: Any = "int"
for _ in range(100):
    DEEP = {"type": "array", "items": DEEP}
WIDE = record_of(("f0", "int"), name="W0")
for depth in range(1, 30):
    WIDE = record_of(("a", WIDE), ("b", f"W{depth - 1}"), name=f"W{depth}")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (LIST, "at `next`: R contains itself"),
        ("string", "a record is needed, but the type is string"),
        (record_of(("a", "Gone")), "there is no type 'Gone'"),
        (record_of(("a", "null")), "at `a`: the type has no values"),
        (record_of(("a", record_of(name="Empty"))), "at `a`: the record Empty has no fields"),
        (record_of(), "the record has no fields"),
        (record_of(("", "int")), "a field has an empty name"),
        (record_of(("a b", "int")), "at `a b`: not a valid field name in Avro"),
        (record_of(("a", "int"), ("a", "int")), "at `a`: there are two fields with this name"),
        (
            record_of(("__tidegate_a", "int")),
            "at `__tidegate_a`: names of columns that begin with `__tidegate` belong to Tidegate",
        ),
        (record_of(("a", {"type": "array", "items": "null"})), "at `a`: elements that take no bytes"),
        (record_of(("a", ["int", "int"])), "at `a`: a union of int, int is not allowed"),
        (record_of(("a", logical("bytes", "decimal", precision=39))), "at `a`: a decimal of 39 digits"),
        (record_of(("a", {"type": "fixed", "name": "F", "size": -1})), "at `a`: -1 is not a valid size"),
        (record_of(("a", DEEP)), "it is nested more than 60 levels deep"),
        (
            {**record_of(("a", "int")), "fields": [{"name": "a", "type": "int", "aliases": [[]]}]},
            "at `a`: `aliases` is no",
        ),
        (record_of(("a", "int"), aliases=[5]), "`aliases` is not a list of names"),
        (record_of(("a", {"type": "array"})), "it is not an Avro schema: 'items' is missing"),
        (
            {**record_of(("a", "int")), "name": None},
            "it is not an Avro schema: a part of it does not follow the specification",
        ),
        (WIDE, "it has more than 5000 types"),
        (record_of(("p", record_of(("q", ["null", record_of(("r", "null"), name="B")]), name="A"))), "at `p.q.r`"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_is_no_columns_is_refused_with_its_place(schema: Any, message: str) -> None:
    with pytest.raises(FormatRefusal) as caught:
        FORMAT.schema_columns(text_of(schema))
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"type": "record"}', "1", '{"type": "array"}', "[" * 100_000])
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(FormatRefusal) as refused:
        FORMAT.schema_columns(SchemaText(SchemaKind.AVRO, text))
    assert not re.search("Error:|NoneType", str(refused.value))


def test_types_of_other_schemas_are_known() -> None:
    point = SchemaText(SchemaKind.AVRO, json.dumps({**POINT, "namespace": "geo"}))
    text = json.dumps(record_of(("a", "geo.Point"), ("b", ["null", "geo.Point"])))
    columns = FORMAT.schema_columns(SchemaText(SchemaKind.AVRO, text, (("geo.Point", point), ("again", point))))
    assert [kind.kind for kind in columns.values()] == ["struct", "struct"]


def test_the_schema_of_columns_is_the_same_in_every_release() -> None:
    nested = DataType("struct", fields=(("x", INT), ("tags", DataType("array", element=STRING))))
    columns = {"id": BIGINT, "small": SMALLINT, "price": decimal_of(9, 2), "n": nested, "m": map_of(STRING, DATE)}
    derived = FORMAT.derive_schema(columns, "orders-2.out")
    assert derived.text == (
        '{"type":"record","name":"orders_2_out","namespace":"tidegate","fields":['
        '{"name":"id","type":["null","long"],"default":null},'
        '{"name":"small","type":["null","int"],"default":null},'
        '{"name":"price","type":["null",{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}],"default":null},'
        '{"name":"n","type":["null",{"type":"record","name":"orders_2_out_n","namespace":"tidegate","fields":['
        '{"name":"x","type":["null","int"],"default":null},'
        '{"name":"tags","type":["null",{"type":"array","items":["null","string"]}],"default":null}]}],"default":null},'
        '{"name":"m","type":["null",{"type":"map","values":["null",{"type":"int","logicalType":"date"}]}],"default":null}'
        "]}"
    )
    assert FORMAT.schema_columns(derived) == {**columns, "small": INT}
    assert FORMAT.schema_name(derived) == "tidegate.orders_2_out"


def struct(**fields: DataType) -> DataType:
    return DataType("struct", fields=tuple(fields.items()))


def names_in(schema: SchemaText) -> list[str]:
    """Of all records, in the order of the text."""
    return re.findall(r'"type":"record","name":"(\w+)"', schema.text)


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (
            {"order": struct(item=struct(sku=STRING)), "order_item": struct(n=INT)},
            ["o", "o_order", "o_order_item", "o_order_item_2"],
        ),
        (
            {"a": DataType("array", element=struct(x=INT)), "a_item": struct(y=INT), "a_item_2": struct(z=INT)},
            ["o", "o_a_item", "o_a_item_2", "o_a_item_2_2"],
        ),
        (  # equal ones are one type with one name, as ever; the third is another
            {"a": struct(b=struct(c=struct(x=INT))), "a_b": struct(c=struct(x=INT)), "a_b_c": struct(x=STRING)},
            ["o", "o_a", "o_a_b", "o_a_b_c", "o_a_b_c_2"],
        ),
    ],
)
def test_records_whose_names_would_be_one_are_told_apart(columns: dict[str, DataType], names: list[str]) -> None:
    """The columns were refused: tidegate.o_order_item was described in two ways."""
    derived = FORMAT.derive_schema(columns, "o")
    assert names_in(derived) == names
    assert FORMAT.schema_columns(derived) == columns
    FORMAT.check_schema(derived, columns)


def test_records_in_a_key_are_told_apart_too() -> None:
    kind = struct(order=struct(item=struct(sku=STRING)), order_item=struct(n=INT))
    names = ["o_key", "o_key_order", "o_key_order_item", "o_key_order_item_2"]
    assert names_in(FORMAT.derive_key_schema(kind, "o")) == names


def test_what_is_written_with_two_such_records_is_read_again() -> None:
    columns = {"order": struct(item=struct(sku=STRING)), "order_item": struct(n=INT)}
    options = FormatOptions(FORMAT.derive_schema(columns, "o"), IdPlace.NONE)
    declared = tuple(columns.items())
    frame = pl.DataFrame({"order": [{"item": {"sku": "a"}}, None], "order_item": [{"n": 1}, {"n": None}]})
    frame = frame.cast({"order_item": pl.Struct({"n": pl.Int32})})
    values = FORMAT.encoder(declared, options).encode(frame).columns["value"].to_list()
    found = FORMAT.decoder(declared, declared, options, KnownSchemas()).decode(messages_of(values))
    assert isinstance(found, Decoded)
    assert found.frame.rows() == frame.rows()


def test_a_column_without_a_name_of_avro_is_refused() -> None:
    with pytest.raises(FormatRefusal, match="the name of the column `a b` is not allowed in Avro"):
        FORMAT.derive_schema({"a b": INT}, "orders")


@pytest.mark.parametrize(
    ("kind", "column", "message"),
    [
        ("int", BIGINT, "at `a`: the schema has int, but the column is bigint"),
        ("string", INT, "at `a`: the schema has string, but the column is int"),
        (
            logical("bytes", "decimal", precision=5, scale=2),
            decimal_of(9, 2),
            "has decimal(5,2), but the column is decimal(9,2)",
        ),
        (logical("bytes", "decimal", precision=9, scale=3), decimal_of(9, 2), "the schema has decimal"),
        (["int", "string"], INT, "at `a`: the schema has a union, but sinks write only those of null and one type"),
        (logical("long", "timestamp-micros"), TIMESTAMP_NTZ, "the schema has timestamp-micros"),
        ({"type": "array", "items": "int"}, DataType("array", element=STRING), "at `a[]`: the schema has int"),
        (POINT, DataType("struct", fields=(("y", DOUBLE),)), "at `a.x`: there is no column for this field"),
        (POINT, DataType("struct", fields=(("x", INT), ("z", INT))), "at `a.z`: Point has no field for this column"),
    ],
    ids=str,
)
def test_columns_that_do_not_fit_a_schema_are_refused(kind: Any, column: DataType, message: str) -> None:
    with pytest.raises(FormatRefusal) as caught:
        FORMAT.check_schema(text_of(record_of(("a", kind))), {"a": column})
    assert message in str(caught.value)


def test_every_column_has_a_field_and_every_field_a_column_or_null() -> None:
    schema = text_of(record_of(("a", "int"), ("b", ["null", "int"])))
    FORMAT.check_schema(schema, {"a": INT})
    with pytest.raises(FormatRefusal, match="at `a`: there is no column for this field, which cannot be null"):
        FORMAT.check_schema(schema, {"b": INT})
    with pytest.raises(FormatRefusal, match="at `c`: R has no field for this column"):
        FORMAT.check_schema(schema, {"a": INT, "c": INT})


@pytest.mark.parametrize(
    "kind",
    [
        ["null", record_of(("x", ["int", "string"]), name="U")],
        [record_of(("x", ["int", "string"]), name="U"), "null", "string"],
        ["null", record_of(name="Empty")],
        ["null", {"type": "fixed", "name": "F", "size": 0}],
        ["null", {"type": "map", "values": ["int"]}],
    ],
    ids=str,
)
def test_a_field_without_a_column_is_null_whatever_else_it_may_be(kind: Any) -> None:
    schema = record_of(("a", "int"), ("b", kind))
    FORMAT.check_schema(text_of(schema), {"a": INT})
    frame = pl.DataFrame({"a": [7]}, schema={"a": pl.Int32})
    made = FORMAT.encoder((("a", INT),), FormatOptions(text_of(schema))).encode(frame)
    assert made.columns["value"].to_list() == [encode(schema, {"a": 7, "b": None})]


def test_values_without_bytes_are_not_written() -> None:
    with pytest.raises(FormatRefusal, match="at `b`: writing values of F, which have no bytes"):
        FORMAT.check_schema(text_of(record_of(("b", {"type": "fixed", "name": "F", "size": 0}))), {"b": BINARY})


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (SMALLINT, "at `a`: Avro has no smallint; its smallest whole number is an int"),
        (map_of(INT, INT), "at `a`: the keys of map<int, int> are not strings"),
        (DataType("struct", fields=(("x", DataType("array", element=SMALLINT)),)), "at `a.x`: Avro has no smallint"),
    ],
    ids=str,
)
def test_a_column_that_no_record_has_is_refused(kind: DataType, message: str) -> None:
    assert FORMAT.read_columns({"a": map_of(STRING, INT)}) == {"a": map_of(STRING, INT)}
    with pytest.raises(FormatRefusal) as caught:
        FORMAT.read_columns({"a": kind})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (logical("bytes", "decimal", precision=4, scale=-2), BINARY),
        (logical("bytes", "decimal", precision=4, scale=5), BINARY),
        (logical("bytes", "decimal", precision="4"), BINARY),
        (logical("fixed", "decimal", precision=5, scale=2, name="F", size=2), BINARY),
        (logical("fixed", "decimal", precision=4, scale=2, name="F", size=2), decimal_of(4, 2)),
        (logical("long", "date"), BIGINT),
    ],
)
def test_a_logical_type_that_is_none_is_ignored_as_avro_asks_for(kind: Any, column: DataType) -> None:
    assert FORMAT.schema_columns(text_of(record_of(("a", kind)))) == {"a": column}


FOUR: Any = {"type": "fixed", "name": "F", "size": 4}
MONEY = logical("bytes", "decimal", precision=4, scale=2)
ENUM: Any = {"type": "enum", "name": "E", "symbols": ["A"]}
INTS: Any = {"type": "array", "items": "int"}
COUNTS: Any = {"type": "map", "values": "int"}
INNER = record_of(("x", "int"), ("y", ["null", "string"], None), name="Inner")
DAYS, MOMENTS = logical("int", "date"), logical("long", "timestamp-millis")
UUIDS, TIMES = logical("string", "uuid"), logical("int", "time-millis")


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        *(("int", 2**31), ("int", True), ("long", 2**63), ("boolean", 1), ("float", 1e39), ("double", "NaN")),
        *(("float", 3.4028235677973366e38), ("float", 2**128 - 2**103), ("float", -(2**128) + 2**103 + 1)),
        *(("double", 10**400), ("bytes", "\u0400"), (MONEY, "\u0400"), (MONEY, "\x7f\xff\xff"), (FOUR, "ab")),
        *((ENUM, "B"), (INTS, ["x"]), (INTS, [2**31]), (COUNTS, {"a": "x"}), (INNER, {}), (INNER, {"x": "y"})),
        *((INNER, {"x": 1, "y": 5}), (DAYS, 10**9), (MOMENTS, 10**17), (UUIDS, "zz"), (TIMES, -1)),
    ],
    ids=str,
)
def test_a_default_that_is_no_value_is_refused_before_a_record_lacks_its_field(kind: Any, default: Any) -> None:
    """In a slot it would fail every such record, as an internal error."""
    for schema in (record_of(("a", kind, default)), record_of(("r", record_of(("a", kind, default), name="B")))):
        with pytest.raises(FormatRefusal, match="the schema cannot be read: "):
            FORMAT.schema_columns(text_of(schema))


def test_a_sink_does_not_register_a_default_that_is_no_value_and_writes_with_one_that_is_registered() -> None:
    schema = text_of(record_of(("a", "int"), ("b", ["null", "int"], "null")), schema_id=0)
    with pytest.raises(FormatRefusal, match='at `b`: the default "null" is not a value of its type'):
        FORMAT.check_schema(schema, {"a": INT})
    FORMAT.check_schema(msgspec.structs.replace(schema, id=7), {"a": INT})


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        *(("int", -(2**31)), ("long", 2**63 - 1), ("double", 5), ("bytes", "\u00ff"), (MONEY, "\x7f"), (FOUR, "abcd")),
        *((ENUM, "A"), (INTS, [1]), (COUNTS, {"a": 1}), (INNER, {"x": 1}), (DAYS, 0), (MOMENTS, -1), (TIMES, 0)),
        *(("float", 3.4028235e38), ("float", -3.4028235677973362e38), ("float", 2**128 - 2**103 - 2**74 - 1)),
        *((["null", "int"], None), (["int", "null"], 5), (["null", "string", "long"], 5)),
        (UUIDS, "00000000-0000-0000-0000-000000000000"),
    ],
    ids=str,
)
def test_a_default_that_is_a_value_is_one_for_records_that_lack_the_field(kind: Any, default: Any) -> None:
    writer, reader = record_of(("id", "long")), record_of(("id", "long"), ("a", kind, default))
    found = decoder_of(writer, reader).decode(messages_of([encode(writer, {"id": 1})] * 2))
    assert isinstance(found, Decoded)
    assert (found.frame.height, list(found.failures)) == (2, [])


@pytest.mark.parametrize("default", [3.4028235e38, 3.4028235677973362e38, 2**128 - 2**103 - 2**74 - 1])
def test_a_default_that_rounds_to_the_largest_float_is_that_one(default: float) -> None:
    """As a number in a record of JSON is."""
    largest = 3.4028234663852886e38
    for kind, expected in (("float", largest), (["string", "float"], {"member0": None, "member1": largest})):
        writer, reader = record_of(("id", "long")), record_of(("id", "long"), ("a", kind, default))
        found = decoder_of(writer, reader).decode(messages_of([encode(writer, {"id": 1})] * 2))
        assert isinstance(found, Decoded)
        assert found.frame["a"].to_list() == [expected] * 2
