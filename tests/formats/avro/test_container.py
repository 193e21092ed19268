"""Files of Avro as the records of a source."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from tests.formats.avro.any_avro import record_of, text_of
from tidegate.config.fields.columns import derive_type
from tidegate.formats.contract import Decoded
from tidegate.formats.kinds.avro import FORMAT
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, KnownSchemas

SCHEMA = record_of(("id", "long"), ("name", ["null", "string"], None))
OPTIONS = FormatOptions(text_of(SCHEMA))


def file_of(schema: Any, records: list[Any], codec: str = "deflate") -> bytes:
    """The schema stands in the file as it is here; values are those of the types without logical types."""
    plain = json.loads(json.dumps(schema).replace("logicalType", "logical____"))
    stream = io.BytesIO()
    fastavro.writer(stream, plain, records, codec=codec)
    return stream.getvalue().replace(b"logical____", b"logicalType")


def read(data: bytes, options: FormatOptions = OPTIONS, columns: Mapping[str, str] | None = None) -> Decoded:
    """By the reader's schema of `options`, or by columns as a source declares them."""
    if columns is not None:
        options = FormatOptions(FORMAT.derive_schema({name: derive_type(one) for name, one in columns.items()}, "s"))
    assert options.schema is not None
    declared = tuple(FORMAT.schema_columns(options.schema).items())
    found = FORMAT.file_values(io.BufferedReader(io.BytesIO(data)), options)
    assert found is not None
    known = KnownSchemas({found.schema.id: found.schema})
    own = NO_OPTIONS if columns is not None else options
    decoded: Any = FORMAT.decoder(declared, declared, own, known)
    rows = decoded.decode_values(list(found.values))
    assert isinstance(rows, Decoded)
    return rows


def test_records_are_those_of_a_topic() -> None:
    other = record_of(("more", "int"), ("id", "int"), name="Other")
    found = read(file_of(other, [{"id": one, "more": 0} for one in range(3)]))
    assert (found.frame.rows(), list(found.failures)) == ([(one, None) for one in range(3)], [])


MORE = {"type": "record", "name": "More", "fields": [{"name": "a", "type": "int"}]}


@pytest.mark.parametrize(
    ("written", "value", "column", "expected"),
    [
        ({"type": "string", "logicalType": "uuid"}, "5F3A1C0E-3C3C-4D4D-8E8E-000000000001", "string",
         "5f3a1c0e-3c3c-4d4d-8e8e-000000000001"),
        ({"type": "int", "logicalType": "time-millis"}, 5, "int", 5),
        ({"type": "long", "logicalType": "time-micros"}, 86_399_999_999, "bigint", 86_399_999_999),
        ({"type": "long", "logicalType": "timestamp-millis"}, -1, "timestamp",
         dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, dt.UTC)),
        ({"type": "long", "logicalType": "timestamp-nanos"}, 1_700_000_000_123_456_789, "timestamp",
         dt.datetime(2023, 11, 14, 22, 13, 20, 123_456, dt.UTC)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\1", "decimal(10,2)",
         Decimal("0.01")),
        ({"type": "bytes", "logicalType": "decimal"}, b"\1", "binary", b"\1"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 5}, b"\1", "binary", b"\1"),
        ({"type": "int", "logicalType": "timestamp-millis"}, 5, "int", 5),
        (["null", "int", "string"], "x", "struct<member0: int, member1: string>", {"member0": None, "member1": "x"}),
        (["null", MORE, {"type": "map", "values": "int"}], ("More", {"a": 1}),
         "struct<member0: struct<a: int>, member1: map<string, int>>", {"member0": {"a": 1}, "member1": None}),
        (["float", "double"], ("double", 0.1), "double", 0.1),
        ("bytes", b"x", "string", "x"),
    ],
)  # fmt: skip
def test_values_mean_what_they_mean_in_a_topic(written: Any, value: Any, column: str, expected: Any) -> None:
    found = read(file_of(record_of(("v", written)), [{"v": value}]), columns={"v": column})
    assert (found.frame.rows(), list(found.failures)) == ([(expected,)], [])


def test_a_value_that_no_column_holds_makes_its_record_bad_alone() -> None:
    schema = record_of(("id", "int"), ("at", {"type": "long", "logicalType": "timestamp-millis"}))
    found = read(
        file_of(schema, [{"id": 1, "at": 0}, {"id": 2, "at": 2**60}, {"id": 3, "at": 0}]),
        columns={"id": "int", "at": "timestamp"},
    )
    assert found.frame["id"].to_list() == [1, 3]
    assert [(one.row, one.kind) for one in found.failures] == [(1, "OUT_OF_RANGE")]


def test_fields_are_those_of_the_readers_schema() -> None:
    reader = FormatOptions(
        text_of(
            {
                "type": "record",
                "name": "Order",
                "fields": [
                    {"name": "number", "type": "long", "aliases": ["id"]},
                    {"name": "state", "type": "string", "default": "new"},
                ],
            }
        )
    )
    found = read(file_of(record_of(("id", "int"), name="topLevelRecord"), [{"id": 7}]), reader)
    assert (found.frame.to_dicts(), list(found.failures)) == ([{"number": 7, "state": "new"}], [])


def test_a_type_in_the_file_may_have_the_readers_name() -> None:
    inner = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    found = read(file_of(record_of(("id", "long"), ("r", inner), name="S"), [{"id": 7, "r": {"id": 8}}]),
                 columns={"id": "bigint", "r": "struct<id: bigint>"})  # fmt: skip
    assert (found.frame.rows(), list(found.failures)) == ([(7, {"id": 8})], [])


def test_a_default_in_the_file_may_be_anything() -> None:
    data = file_of(record_of(("id", "long", 1000), ("s", "string")), [{"id": 7, "s": "x"}], codec="null")
    found = read(data.replace(b'"default": 1000', b'"default": null'), columns={"id": "bigint"})
    assert (found.frame.rows(), list(found.failures)) == ([(7,)], [])


def test_what_is_no_file_of_avro_is_read_as_lines() -> None:
    for data in (b'{"id": 1}\n', b""):
        assert FORMAT.file_values(io.BufferedReader(io.BytesIO(data)), OPTIONS) is None
    assert FORMAT.file_values(io.BytesIO(b"Obj\1"), NO_OPTIONS) is None


@pytest.mark.parametrize("size", [4, 60, -20, -3])
def test_a_file_that_is_cut_is_reported(size: int) -> None:
    data = file_of(SCHEMA, [{"id": one, "name": "x" * 50} for one in range(3)], codec="null")
    with pytest.raises(ValueError, match="it is not a complete Avro file"):
        read(data[:size])


def test_a_record_that_does_not_fit_is_bad() -> None:
    found = read(file_of(record_of(("id", "string")), [{"id": "a"}]))
    assert [one.kind for one in found.failures] == ["INCOMPATIBLE_SCHEMA"]


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz"])
def test_a_compressed_block_that_is_damaged_is_reported(codec: str) -> None:
    data = bytearray(file_of(SCHEMA, [{"id": one, "name": "x" * 50} for one in range(3)], codec))
    data[-24:-18] = b"\xff" * 6
    with pytest.raises(ValueError, match="it is not a complete Avro file"):
        read(bytes(data))
