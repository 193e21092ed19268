"""Keys of records as columns, and back."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import fastavro
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.datatypes import BIGINT, BINARY, STRING, DataType, decimal_of
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import WaitingForSchema
from tidegate.formats.failures import FailureKind
from tidegate.formats.key_values import ReadKeys, SchemaKeyWriter, key_reader, key_writer
from tidegate.formats.schema_keys import derive_key_schema, key_from_plain, key_to_plain, key_type
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, KnownSchemas, SchemaKind, Schemas, SchemaText

STRUCT = DataType("struct", fields=(("id", BIGINT), ("region", STRING)))
KEYS = st.lists(st.none() | st.binary(max_size=6), max_size=8)


def written(column: pl.Series, key_format: str) -> list[bytes | None]:
    frame = column.alias("k").to_frame()
    return frame.select(key_writer("k", key_format, column.dtype)).to_series().to_list()


NO_SCHEMAS = KnownSchemas()


def read(
    keys: Sequence[bytes | None],
    name: str,
    key_format: str,
    kind: DataType,
    options: FormatOptions = NO_OPTIONS,
    schemas: Schemas = NO_SCHEMAS,
) -> ReadKeys:
    found = key_reader(name, key_format, kind, options, schemas)(keys)
    assert isinstance(found, ReadKeys)
    return found


@given(KEYS)
def test_raw_keys_are_their_bytes_both_ways(keys: list[bytes | None]) -> None:
    found = read(keys, "k", "raw", BINARY)
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
    found = read(keys, "k", "string", STRING)
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
    found = read([None, data], "k", "json", kind)
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
    found = read([b"1", data, None, b"3"], "k", "json", BIGINT)
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


def avro(schema: Any, schema_id: int = 7) -> SchemaText:
    return SchemaText(SchemaKind.AVRO, json.dumps(schema), id=schema_id)


def fast_avro(schema: Any, *values: Any) -> list[bytes]:
    """By the reference, with the id 7 in front."""
    found = []
    for value in values:
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
        found.append(b"\0\0\0\0\7" + body.getvalue())
    return found


ORDER = {
    "type": "record",
    "name": "OrderKey",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "region", "type": {"type": "enum", "name": "R", "symbols": ["eu"]}},
    ],
}
AVRO_KEYS: list[tuple[Any, DataType, Any]] = [
    ("long", BIGINT, -5),
    ("string", STRING, "ann"),
    ({"type": "string", "avro.java.string": "String"}, STRING, ""),
    (["null", "string"], STRING, "b"),
    ("bytes", BINARY, b"\xff"),
    (ORDER, STRUCT, {"id": 1, "region": "eu"}),
    ({**ORDER, "namespace": ""}, STRUCT, {"id": 1, "region": "eu"}),
    ({"type": "array", "items": "long"}, DataType("array", element=BIGINT), [1, 2]),
]


@pytest.mark.parametrize(("schema", "kind", "value"), AVRO_KEYS)
@pytest.mark.parametrize("count", [1, 100])
def test_an_avro_key_is_any_value_of_its_schema(schema: Any, kind: DataType, value: Any, count: int) -> None:
    (data,) = fast_avro(schema, value)
    for options in (NO_OPTIONS, FormatOptions(avro(schema, 0))):
        found = read([None, data] * count, "k", "avro", kind, options, KnownSchemas({7: avro(schema)}))
        assert (found.column.to_list(), list(found.failures)) == ([None, value] * count, [])
        assert (found.column.name, found.column.dtype) == ("k", polars_type(kind))
    assert key_type(avro(schema)) == kind


@pytest.mark.parametrize(("schema", "kind", "value"), [one for one in AVRO_KEYS if one[0] != ["null", "string"]])
def test_avro_keys_are_written_as_the_reference_reads_them(schema: Any, kind: DataType, value: Any) -> None:
    for text in (avro(schema), derive_key_schema(kind, "9-out")):
        options = FormatOptions(SchemaText(text.kind, text.text, id=9))
        column = pl.Series([None, value, None, value], dtype=polars_type(kind))
        made, failures = SchemaKeyWriter(column.dtype, options).write(column)
        assert (made.name, made.null_count(), failures) == ("key", 2, [])
        assert made[1][:5] == b"\0\0\0\0\x09"
        parsed = fastavro.parse_schema(json.loads(text.text))
        assert fastavro.schemaless_reader(io.BytesIO(made[3][5:]), parsed, None) == value


def test_bad_avro_keys_are_bad_alone_and_the_message_names_the_key() -> None:
    good, other = fast_avro("long", 3, 4)
    keys = [good, b"", None, good[:5], b"x" + good, b"\0\0\0\0\x08\x02", good + b"\0", other]
    found = read(keys, "k", "avro", BIGINT, NO_OPTIONS, KnownSchemas({7: avro("long")}))
    malformed = FailureKind.MALFORMED_AVRO
    assert [(one.row, one.kind) for one in found.failures] == [
        (1, FailureKind.EMPTY_VALUE), (3, malformed), (4, malformed), (5, FailureKind.UNKNOWN_SCHEMA), (6, malformed)
    ]  # fmt: skip
    assert all(one.message.startswith("the key: ") for one in found.failures)
    assert found.column.gather([0, 2, 7]).to_list() == [3, None, 4]
    found = read([good], "k", "avro", STRING, NO_OPTIONS, KnownSchemas({7: avro("long")}))
    assert [one.kind for one in found.failures] == [FailureKind.INCOMPATIBLE_SCHEMA]
    broken = KnownSchemas({7: SchemaText(SchemaKind.AVRO, "{no json", id=7)})
    found = read([good], "k", "avro", BIGINT, NO_OPTIONS, broken)
    assert [one.kind for one in found.failures] == [FailureKind.INCOMPATIBLE_SCHEMA]


def test_keys_wait_for_their_schema() -> None:
    class Asked(KnownSchemas):
        def get(self, schema_id: int | str, /) -> SchemaText | None:
            return None

    (data,) = fast_avro("long", 3)
    assert isinstance(key_reader("k", "avro", BIGINT, NO_OPTIONS, Asked())([data]), WaitingForSchema)


def test_an_avro_key_that_the_schema_has_no_value_for_is_bad() -> None:
    column = pl.Series(["eu", "us", None])
    enum = {"type": "enum", "name": "R", "symbols": ["eu"]}
    made, failures = SchemaKeyWriter(column.dtype, FormatOptions(avro(enum))).write(column)
    assert (made[0], made[2]) == (b"\0\0\0\0\7\0", None)
    assert [(one.row, one.message.startswith("the key: ")) for one in failures] == [(1, True)]


def test_avro_keys_are_json_to_people() -> None:
    options = FormatOptions(avro(ORDER))
    data = key_from_plain('{"id": 1, "region": "eu"}', options)
    assert [data] == fast_avro(ORDER, {"id": 1, "region": "eu"})
    assert key_to_plain(data, options) == '{"id":1,"region":"eu"}'
