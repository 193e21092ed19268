"""JSON with schemas of a registry: schemas and columns, and the wire format around the values."""

from __future__ import annotations

import json
import re
from typing import Any

import polars as pl
import pytest

from tests.formats.batches import messages_of
from tests.support.records import listed
from tidegate.config.fields.columns import derive_type
from tidegate.datatypes import BIGINT, STRING, DataType
from tidegate.formats.contract import Decoded, FormatRefusal, WaitingForSchema
from tidegate.formats.failures import FailureKind
from tidegate.formats.kinds.json_schema import FORMAT
from tidegate.formats.records import RecordEncoder
from tidegate.formats.schemas import (
    NO_OPTIONS,
    FormatOptions,
    IdPlace,
    KnownSchemas,
    SchemaKind,
    SchemaText,
)

COLUMNS = (("id", BIGINT), ("name", STRING))


def text_of(properties: Any, *references: tuple[str, SchemaText], **more: Any) -> SchemaText:
    return SchemaText(SchemaKind.JSON, json.dumps({"type": "object", "properties": properties, **more}), references)


def columns_of(properties: Any, *references: tuple[str, SchemaText], **more: Any) -> dict[str, str]:
    return {name: str(kind) for name, kind in FORMAT.schema_columns(text_of(properties, *references, **more)).items()}


def test_properties_are_columns() -> None:
    address = {"type": "object", "properties": {"zip": {"type": "string"}}}
    assert columns_of({
        "id": {"type": "integer"},
        "ok": {"type": ["null", "boolean"]},
        "amount": {"oneOf": [{"type": "null", "title": "Not included"}, {"type": "number"}]},
        "day": {"type": "string", "format": "date"},
        "at": {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}]},
        "data": {"type": "string", "contentEncoding": "base64"},
        "kind": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "address": {"$ref": "#/definitions/address~1de"},
        "by_percent": {"$ref": "#/definitions/50%25"},
        "shared": {"$ref": "common.json#/$defs/x"},
        "alone": {"allOf": [{"$ref": "#/definitions/50%25"}], "title": "Alone", "default": 1},
    }, ("common.json", SchemaText(SchemaKind.JSON, '{"$defs": {"x": {"$ref": "#/y"}}, "y": {"type": "number"}}')),
        definitions={"address/de": address, "50%": {"type": "integer"}}) == {
        "id": "bigint", "ok": "boolean", "amount": "double", "day": "date", "at": "timestamp", "data": "binary",
        "kind": "string", "tags": "array<string>", "counts": "map<string, bigint>", "address": "struct<zip: string>",
        "by_percent": "bigint", "shared": "double", "alone": "bigint",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"a": {"type": ["string", "integer"]}}, r"`\$\.a`: several types"),
        ({"a": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}, r"`\$\.a`: `oneOf` of several types"),
        ({"a": {"type": "array", "items": [{"type": "string"}]}}, r"`\$\.a`: an array without one type"),
        ({"a": {"type": "array", "items": {"type": "array"}}}, r"`\$\.a\[\]`: an array without one type"),
        ({"a": {"type": "object"}}, r"`\$\.a`: an object without `properties`"),
        ({"a": {"allOf": []}}, r"`\$\.a`: `allOf` is not supported"),
        ({"a": {"type": "object", "allOf": [{"required": ["b"]}]}}, r"`\$\.a`: `allOf` is not supported"),
        ({"a": {}}, r"`\$\.a`: it has no `type`"),
        ({"a": True}, r"`\$\.a`: its type is not restricted"),
        ({"a": {"$ref": "#/nowhere"}}, r"the reference `#/nowhere` has no target"),
        ({"a": {"$ref": "other.json"}}, "the reference `other.json` does not exist"),
        ({"a": {"type": "array", "items": {"$ref": "#"}}}, "or contains itself"),
        ({"a": {"$ref": "#anchor"}}, "the reference `#anchor` has no target"),
        ({"__tidegate_a": {"type": "string"}}, r"`\$\.__tidegate_a`: names that begin with `__tidegate`"),
        ({"*": {"type": "string"}}, r"`\$\.\*`: its name is reserved for several columns"),
        ({'a"b': {"type": "string"}}, "a quote, a backslash or a control character"),
        ({"": {"type": "string"}}, "its name is empty"),
        (
            {"a": {"type": "array", "items": {"properties": {"b\n": {"type": "string"}}}}},
            r"`\$\.a\[\]\.b\\n`: its name",
        ),
        ({"a": {"additionalProperties": {"properties": {"x" * 101: {"type": "string"}}}, "type": "object"}}, "101"),
    ],
)
def test_what_is_no_column_is_refused_with_its_place(properties: Any, words: str) -> None:
    with pytest.raises(FormatRefusal, match=words):
        columns_of(properties)


def one_of(name: str, kind: str, *references: tuple[str, SchemaText]) -> tuple[str, SchemaText]:
    """A reference to an object with one property; `kind` is its type, or what it refers to."""
    node = {"$ref": kind} if kind.endswith(".json") else {"type": kind}
    return f"{name}.json", text_of({name: node}, *references)


def test_references_have_references() -> None:
    """A registry asks each schema only for those that it names itself."""
    address = one_of("address", "string")
    customer = one_of("customer", "address.json", address)
    assert columns_of({"c": {"$ref": "customer.json"}}, customer) == {"c": "struct<customer: struct<address: string>>"}
    shop = one_of("shop", "address.json")  # which has come with the first that refers to it
    assert columns_of({"c": {"$ref": "customer.json"}, "s": {"$ref": "shop.json"}}, customer, shop) == {
        "c": "struct<customer: struct<address: string>>",
        "s": "struct<shop: struct<address: string>>",
    }


def test_a_name_is_what_the_text_means_by_it() -> None:
    """Two versions of one subject: each schema has the one that it was registered with."""
    older = one_of("customer", "address.json", one_of("address", "string"))
    columns = {"c": {"$ref": "customer.json"}, "a": {"$ref": "address.json"}}
    for references in ((older, one_of("address", "integer")), (one_of("address", "integer"), older)):
        assert columns_of(columns, *references) == {
            "c": "struct<customer: struct<address: string>>",
            "a": "struct<address: bigint>",
        }


def test_a_schema_that_grows_by_its_references_is_refused() -> None:
    parts: dict[str, Any] = {"d8": {"type": "string"}}
    for depth in range(8):
        below = {"$ref": f"#/definitions/d{depth + 1}"}
        parts[f"d{depth}"] = {"type": "object", "properties": dict.fromkeys("abcd", below)}
    with pytest.raises(FormatRefusal, match="more than 10000 types"):
        columns_of({"x": {"$ref": "#/definitions/d0"}}, definitions=parts)


@pytest.mark.parametrize("text", ["{", "[]", '{"type": "string"}', "[" * 100_000])
def test_a_text_that_is_no_schema_of_an_object_is_refused(text: str) -> None:
    with pytest.raises(FormatRefusal):
        FORMAT.schema_columns(SchemaText(SchemaKind.JSON, text))


def test_the_schema_of_columns_has_them_again_and_is_always_the_same() -> None:
    kinds = [
        "boolean",
        "bigint",
        "double",
        "string",
        "binary",
        "date",
        "timestamp",
        "array<bigint>",
        "map<string,date>",
    ]
    columns: dict[str, DataType] = {f"c{place}": derive_type(kind) for place, kind in enumerate(kinds)}
    columns["nested"] = DataType("struct", fields=tuple(columns.items()))
    written = FORMAT.derive_schema(columns, "orders")
    assert FORMAT.schema_columns(written) == columns
    assert FORMAT.schema_name(written) == "orders"
    FORMAT.check_schema(written, columns)
    assert FORMAT.derive_schema({"id": BIGINT}, "t").text == (
        '{"$schema": "http://json-schema.org/draft-07/schema#", "title": "t", "type": "object", "properties": '
        '{"id": {"oneOf": [{"type": "null"}, {"type": "integer"}]}}}'
    )


def test_columns_have_to_fit_a_given_schema() -> None:
    given = text_of({"id": {"type": "integer"}, "x": {"type": "string"}}, required=["id"])
    FORMAT.check_schema(given, {"id": derive_type("int")})
    for columns, words in (
        ({"id": BIGINT, "y": STRING}, "no property `y`"),
        ({"id": STRING}, "`id` is bigint in the schema, but the column is string"),
        ({"x": STRING}, "requires `id`"),
    ):
        with pytest.raises(FormatRefusal, match=words):
            FORMAT.check_schema(given, columns)


PLACE = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["zip"],
}


@pytest.mark.parametrize(
    ("form", "kind", "at"),
    [
        (PLACE, "PLACE", "a"),
        ({"oneOf": [{"type": "null"}, {"$ref": "#/definitions/place"}]}, "PLACE", "a"),
        ({"type": "array", "items": PLACE}, "array<PLACE>", "a[]"),
        ({"type": "object", "additionalProperties": {"$ref": "#/definitions/place"}}, "map<int, PLACE>", "a.*"),
        ({"type": "object", "properties": {"x": {"type": "integer"}, "in": PLACE}}, "struct<in: PLACE>", "a.in"),
    ],
    ids=str,
)
def test_fields_of_structs_are_found_by_name_in_a_given_schema(form: Any, kind: str, at: str) -> None:
    """As columns are, and as in Avro and Protobuf: objects of JSON have no order."""
    given = text_of({"a": form}, definitions={"place": PLACE})
    for fields in ("city: string, zip: int, note: string", "zip: bigint, city: string", "zip: smallint"):
        FORMAT.check_schema(given, {"a": derive_type(kind.replace("PLACE", f"struct<{fields}>"))})
    for fields, words in (
        ("zip: string, city: string", f"`{at}.zip` is bigint in the schema, but the column is string"),
        ("zip: array<bigint>", f"`{at}.zip` is bigint in the schema, but the column is array<bigint>"),
        ("zip: bigint, town: string", f"the schema has no property `{at}.town`"),
        ("city: string", f"the schema requires `{at}.zip`, but there is no such field"),
    ):
        with pytest.raises(FormatRefusal, match=re.escape(words)):
            FORMAT.check_schema(given, {"a": derive_type(kind.replace("PLACE", f"struct<{fields}>"))})


@pytest.mark.parametrize("kind", ["struct<x: bigint>", "array<string>", "map<string, string>", "string"])
def test_a_column_of_another_shape_does_not_fit(kind: str) -> None:
    shapes: dict[str, Any] = {
        "struct": {"type": "object", "properties": {"y": {"type": "integer"}}},
        "array": {"type": "array", "items": {"type": "integer"}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "string": {"type": "boolean"},
    }
    for form in shapes.values():
        with pytest.raises(FormatRefusal, match=r"has no property `a\.x`|in the schema, but the column is"):
            FORMAT.check_schema(text_of({"a": form}), {"a": derive_type(kind)})


def test_values_go_round_with_the_id_in_front() -> None:
    schema = SchemaText(SchemaKind.JSON, FORMAT.derive_schema(dict(COLUMNS), "t").text, id=258)
    options = FormatOptions(schema)
    frame = pl.DataFrame({"id": [1, None], "name": ["a", "b"], "k": ["x", "y"]})
    encoded = RecordEncoder("json-schema", COLUMNS, options=options).encode(frame)
    assert listed(encoded).values == [b'\0\0\0\1\2{"id":1,"name":"a"}', b'\0\0\0\1\2{"id":null,"name":"b"}']
    decoder = FORMAT.decoder(COLUMNS, COLUMNS[1:], options, KnownSchemas({258: schema}))
    decoded = decoder.decode(messages_of(listed(encoded).values))
    assert isinstance(decoded, Decoded)
    assert decoded.frame.to_dicts() == [{"name": "a"}, {"name": "b"}]
    assert FORMAT.to_plain(encoded.values[0] or b"", options) == {"id": 1, "name": "a"}
    assert FORMAT.from_plain({"id": 1, "name": "a"}, options) == encoded.values[0]


def test_without_ids_values_are_bare() -> None:
    options = FormatOptions(None, IdPlace.NONE)
    decoded = FORMAT.decoder(COLUMNS, COLUMNS, options, KnownSchemas()).decode(messages_of([b'{"id": 1}']))
    assert isinstance(decoded, Decoded)
    assert decoded.frame.to_dicts() == [{"id": 1, "name": None}]
    frame = pl.DataFrame({"id": [1], "name": ["a"]})
    assert FORMAT.encoder(COLUMNS, options).encode(frame).columns["value"].to_list() == [b'{"id":1,"name":"a"}']


def test_each_bad_record_is_bad_alone() -> None:
    avro = SchemaText(SchemaKind.AVRO, '"int"', id=2)
    known = KnownSchemas({1: text_of({}), 2: avro})
    good = b'\0\0\0\0\1{"id": 1}'
    values = [good, None, b"", b'{"id": 2}', b"\0\0\0", b"\0\0\0\0\2\2", b"\0\0\0\0\3{}", b"\0\0\0\0\1{", good]
    decoded = FORMAT.decoder(COLUMNS, COLUMNS, NO_OPTIONS, known).decode(messages_of(values))
    assert isinstance(decoded, Decoded)
    assert decoded.frame["id"].to_list() == [1, 1]
    assert [(one.row, one.kind) for one in decoded.failures] == [
        (1, FailureKind.NULL_VALUE),
        (2, FailureKind.EMPTY_VALUE),
        (3, FailureKind.MALFORMED_JSON),
        (4, FailureKind.MALFORMED_JSON),
        (5, FailureKind.INCOMPATIBLE_SCHEMA),
        (6, FailureKind.UNKNOWN_SCHEMA),
        (7, FailureKind.MALFORMED_JSON),
    ]


def test_a_schema_that_is_not_there_yet_is_waited_for_and_all_are_asked_for() -> None:
    asked = []

    class NothingYet:
        def get(self, schema_id: int | str, /) -> SchemaText | None:
            asked.append(schema_id)
            return None

        def refuse(self, schema_id: int | str, why: str, /) -> None:
            raise AssertionError(schema_id, why)

    found = FORMAT.decoder(COLUMNS, COLUMNS, NO_OPTIONS, NothingYet()).decode(
        messages_of([b"\0\0\0\0\1{}", b"\0\0\0\0\2{}"])
    )
    assert isinstance(found, WaitingForSchema)
    assert sorted(asked) == [1, 2]
