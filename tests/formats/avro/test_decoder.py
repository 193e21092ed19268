"""Messages to rows: ids, schemas that change, and what makes a record bad."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
import tracemalloc
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from fastavro.read import SchemaResolutionError

from tests.formats.avro.any_avro import PREFIX, decoder_of, encode, oddly_defaulted, plain, record_of, text_of
from tests.formats.batches import messages_of
from tidegate.datatypes import BIGINT, DOUBLE, INT, STRING, TIMESTAMP, DataType, decimal_of, map_of
from tidegate.formats.contract import Decoded, WaitingForSchema
from tidegate.formats.kinds.avro import FORMAT
from tidegate.formats.kinds.avro.decoder import AvroDecoder
from tidegate.formats.kinds.avro.schema import parse_schema
from tidegate.formats.schema_decoder import SchemaReader
from tidegate.formats.schemas import FormatOptions, IdPlace, KnownSchemas, SchemaText

ORDER = record_of(("id", "long"), ("name", ["null", "string"]))


def decoded(decoder: AvroDecoder, values: Sequence[bytes | None]) -> Decoded:
    found = decoder.decode(messages_of(values))
    assert isinstance(found, Decoded)
    return found


def failures(found: Decoded) -> list[tuple[int, str]]:
    return [(one.row, str(one)) for one in found.failures]


def in_c(decoder: AvroDecoder) -> bool:
    (written,) = decoder._written.values()
    assert isinstance(written, SchemaReader)
    return written.certain is not None


def test_every_bad_value_is_bad_alone_and_the_others_keep_their_order() -> None:
    good = [encode(ORDER, {"id": row, "name": "x"}) for row in range(4)]
    values = [good[0], None, good[1], b"", b'{"id": 1}', PREFIX[:3], good[2][:-1], good[2] + b"\0", good[3]]
    found = decoded(decoder_of(ORDER), values)
    assert found.frame.rows() == [(0, "x"), (1, "x"), (3, "x")]
    assert failures(found) == [
        (1, "NULL_VALUE: a tombstone has no value"),
        (3, "EMPTY_VALUE: the value is empty"),
        (4, "MALFORMED_AVRO: the value begins with '{\"id\"', not with a zero byte and the id of a schema"),
        (5, "MALFORMED_AVRO: the value begins with '\\x00\\x00\\x00', not with a zero byte and the id of a schema"),
        (6, "MALFORMED_AVRO: the bytes end within the record; it was written with another schema, or truncated"),
        (7, "MALFORMED_AVRO: bytes follow the end of the record: 1"),
    ]


def test_records_of_several_schemas_stay_in_order() -> None:
    other = record_of(("name", "string"), ("id", "int"))
    known = KnownSchemas({7: text_of(ORDER), 8: text_of(other, 8)})
    columns = (("id", BIGINT), ("name", STRING))
    decoder = AvroDecoder(columns, columns, FormatOptions(text_of(ORDER)), known)
    values = [
        b"\0\0\0\0\x08" + encode(other, {"id": row, "name": "y"})[5:]
        if row % 3
        else encode(ORDER, {"id": row, "name": "x"})
        for row in range(100)
    ]
    for _ in range(2):
        found = decoded(decoder, list(values))
        assert found.frame.rows() == [(row, "y" if row % 3 else "x") for row in range(100)]
        assert not found.failures
    one_kind = [encode(ORDER, {"id": row, "name": "x"}) for row in range(100)]
    for _ in range(2):  # the second is taken for one schema without a look, and so is the third, which is not
        assert decoded(decoder, list(one_kind)).frame.height == 100
    assert decoded(decoder, list(values)).frame.rows() == [(row, "y" if row % 3 else "x") for row in range(100)]
    assert decoded(decoder, [*one_kind[:50], None, b""]).frame.height == 50


class Fetching:
    """A registry that has not answered yet."""

    def __init__(self) -> None:
        self.known: dict[int | str, SchemaText] = {}
        self.asked: list[int | str] = []

    def get(self, schema_id: int | str, /) -> SchemaText | None:
        self.asked.append(schema_id)
        return self.known.get(schema_id)

    def refuse(self, schema_id: int | str, why: str, /) -> None:
        raise AssertionError(schema_id, why)


def test_a_batch_waits_for_its_schema() -> None:
    schemas = Fetching()
    decoder = AvroDecoder((("id", BIGINT),), (("id", BIGINT),), FormatOptions(), schemas)
    value = encode(ORDER, {"id": 5, "name": None})
    assert isinstance(decoder.decode(messages_of([value])), WaitingForSchema)
    schemas.known[7] = text_of(ORDER)
    assert decoded(decoder, [value]).frame.rows() == [(5,)]
    assert decoded(decoder, [value]).frame.rows() == [(5,)]
    assert schemas.asked == [7, 7]


def test_an_id_that_the_registry_does_not_have_is_a_bad_record() -> None:
    found = decoded(decoder_of(ORDER), [b"\0\0\0\1\0ab", encode(ORDER, {"id": 1, "name": None})])
    assert failures(found) == [(0, "UNKNOWN_SCHEMA: the registry has no schema with the id 256")]
    assert found.frame.rows() == [(1, None)]


def test_bare_records_have_the_schema_of_the_file() -> None:
    text = text_of(ORDER)
    columns = tuple(FORMAT.schema_columns(text).items())
    decoder = AvroDecoder(columns, columns[:1], FormatOptions(text, IdPlace.NONE), KnownSchemas())
    bodies = [encode(ORDER, {"id": row, "name": "x"})[5:] for row in range(60)]
    for _ in range(2):
        assert decoded(decoder, list(bodies)).frame.rows() == [(row,) for row in range(60)]
    found = decoded(decoder, [bodies[0], None, b"", bodies[1][:-1]])
    assert found.frame.rows() == [(0,)]
    assert [one.kind for one in found.failures] == ["NULL_VALUE", "MALFORMED_AVRO", "MALFORMED_AVRO"]


POINT = record_of(("x", "int"), ("y", "int"), name="Point")
POINT_2 = record_of(("y", "long"), ("z", ["null", "string"], None), name="Point")
COLOURS = {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN", "BLUE"]}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


@pytest.mark.parametrize(
    ("writer", "reader", "value", "certain"),
    [
        (("a", "int"), ("a", "long"), 5, True),
        (("a", "int"), ("a", "float"), 16_777_217, False),
        (("a", "long"), ("a", "float"), 2**53 + 1, False),
        (("a", "long"), ("a", "double"), 2**53 + 1, True),
        (("a", "float"), ("a", "double"), 0.1, True),
        (("a", "string"), ("a", "bytes"), "é", False),
        (("a", "bytes"), ("a", "string"), "é".encode(), False),
        (("a", "bytes"), ("a", "string"), b"\xff", False),
        (("a", "int"), ("a", ["null", "long"]), 5, True),
        (("a", ["null", "int"]), ("a", "long"), 5, True),
        (("a", ["null", "int"]), ("a", "long"), None, True),
        (("a", ["int", "null"]), ("a", ["null", "long"]), 5, True),
        (("b", "int"), ("a", "int", 7), 5, True),
        (("b", "int"), ("a", ["null", "string"], None), 5, True),
        (("b", "int"), ("a", DECIMAL, "\u0001\u0000"), 5, True),
        (("b", "int"), ("a", MILLIS, 86_400_000), 5, True),
        (("b", "int"), ("a", {"type": "array", "items": "string"}, ["x"]), 5, True),
        (("b", "int"), ("a", {"type": "map", "values": "int"}, {"x": 1}), 5, True),
        (("a", COLOURS), ("a", {**COLOURS, "symbols": ["BLUE", "RED"]}), "BLUE", False),
        (("a", COLOURS), ("a", {**COLOURS, "symbols": ["BLUE", "RED"]}), "GREEN", False),
        (("a", COLOURS), ("a", {**COLOURS, "symbols": ["BLUE"], "default": "BLUE"}), "GREEN", False),
        (("a", POINT), ("a", POINT_2), {"x": 1, "y": 2}, True),
        (("a", POINT), ("a", record_of(("y", "long"), name="Point")), {"x": 1, "y": 2}, True),
        (("a", {"type": "array", "items": "int"}), ("a", {"type": "array", "items": "double"}), [1, 2], True),
        (("a", {"type": "map", "values": "int"}), ("a", {"type": "map", "values": "long"}), {"k": 1}, True),
        (("a", ["int", "string"]), ("a", "string"), "x", False),
        (("a", ["int", "string"]), ("a", "string"), 1, False),
        (("a", {**DECIMAL, "precision": 4}), ("a", DECIMAL), Decimal("1.25"), True),
    ],
    ids=str,
)
def test_a_changed_schema_is_read_as_fastavro_reads_it(
    writer: Any, reader: Any, value: Any, certain: bool, reader_name: str
) -> None:
    written, read = record_of(writer, ("both", "int")), record_of(reader, ("both", "int"))
    message = encode(written, {writer[0]: value, "both": 1})
    decoder = decoder_of(written, read)
    found = decoded(decoder, [message])
    assert in_c(decoder) is (certain and reader_name == "C")
    try:
        one: Any = fastavro.schemaless_reader(
            io.BytesIO(message[5:]), fastavro.parse_schema(written), fastavro.parse_schema(read)
        )
    except (ValueError, SchemaResolutionError):
        assert found.frame.height == 0
        assert len(found.failures) == 1
        return
    field, _ = parse_schema(text_of(read)).fields
    expected = one["a"]
    if isinstance(expected, str) and field.type.logical:  # fastavro leaves a default as it is in the JSON
        expected = Decimal("2.56")
    elif expected == 86_400_000:
        expected = dt.datetime(1970, 1, 2, tzinfo=dt.UTC)
    if field.type.kind == "float":
        (expected,) = struct.unpack("<f", struct.pack("<f", expected))
    assert found.frame.rows() == [(plain(expected, field.type), 1)]


def test_a_field_is_found_by_its_alias() -> None:
    read = record_of(("b", "long"))
    read["fields"][0]["aliases"] = ["a"]
    found = decoded(decoder_of(record_of(("a", "int")), read), [encode(record_of(("a", "int")), {"a": 5})])
    assert found.frame.to_dicts() == [{"b": 5}]


@pytest.mark.usefixtures("reader_name")
@pytest.mark.parametrize(
    ("reader", "expected"),
    [
        ([("a", ["b"], {})], {"a": 1}),
        ([("x", ["c", "b", "a"], {})], {"x": 2}),
        ([("x", ["b"], {"default": 7}), ("b", [], {})], {"x": 7, "b": 2}),
        ([("x", ["b"], {"default": 7}), ("y", ["b"], {"default": 8})], {"x": 2, "y": 8}),
    ],
)
def test_a_written_field_goes_to_the_field_of_its_name_else_to_the_first_with_its_alias(
    reader: list[tuple[str, list[str], dict[str, int]]], expected: dict[str, int]
) -> None:
    fields = [{"name": name, "type": "int", "aliases": aliases, **more} for name, aliases, more in reader]
    for written in (record_of(("a", "int"), ("b", "int")), record_of(("b", "int"), ("a", "int"))):
        decoder = decoder_of(written, {"type": "record", "name": "R", "fields": fields})
        assert decoded(decoder, [encode(written, {"a": 1, "b": 2})]).frame.to_dicts() == [expected]
        within = record_of(("r", {**written, "name": "I"}))
        decoder = decoder_of(within, record_of(("r", {"type": "record", "name": "I", "fields": fields})))
        assert decoded(decoder, [encode(within, {"r": {"a": 1, "b": 2}})]).frame.to_dicts() == [{"r": expected}]


def test_a_timestamp_has_the_unit_that_it_was_written_with() -> None:
    nanos, micros = {**MILLIS, "logicalType": "timestamp-nanos"}, {**MILLIS, "logicalType": "timestamp-micros"}
    for unit, value in ((MILLIS, 1_500), (micros, 1_500_000), (nanos, 1_500_000_999)):
        written = record_of(("at", unit))
        message = encode(record_of(("at", "long")), {"at": value})
        moment = dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=dt.UTC)
        for decoder in (
            decoder_of(written, record_of(("at", micros))),
            decoder_of(written, declared=[("at", TIMESTAMP)]),
        ):
            assert decoded(decoder, [message]).frame.rows() == [(moment,)]


@pytest.mark.parametrize(
    ("writer", "reader", "message"),
    [
        (("a", "string"), ("a", "int"), "at `a`: the writer's type is string, the reader's int"),
        (
            ("b", "int"),
            ("a", "int"),
            "at `a`: the writer does not have the field, and the reader has no default for it",
        ),
        (("a", DECIMAL), ("a", {**DECIMAL, "scale": 3}), "at `a`: the writer's scale is 2, the reader's 3"),
        (
            ("a", POINT),
            ("a", {**POINT, "name": "Place"}),
            "at `a`: the writer's type is the record Point, the reader's Place",
        ),
        (
            ("a", MILLIS),
            ("a", {**MILLIS, "logicalType": "local-timestamp-millis"}),
            "at `a`: the writer's type is timestamp-",
        ),
    ],
    ids=str,
)
def test_a_schema_that_no_value_fits_is_named_with_its_place(writer: Any, reader: Any, message: str) -> None:
    found = decoded(decoder_of(record_of(writer), record_of(reader)), [PREFIX + b"\2", PREFIX + b"\2"])
    assert [one.kind for one in found.failures] == ["INCOMPATIBLE_SCHEMA"] * 2
    assert f"schema 7 cannot be read: {message}" in found.failures[0].message


@pytest.mark.usefixtures("reader_name")
def test_a_null_that_the_readers_type_does_not_have_is_named_with_its_field() -> None:
    """The usual change in the middle of a run: a producer begins to leave a value out."""
    writer = record_of(("id", "long"), ("t", ["null", "double"]), ("u", ["null", "double"]), ("v", ["null", "double"]))
    reader = record_of(("id", "long"), ("temp", "double"), ("u", ["null", "double"]), ("v", ["double", "string"]))
    reader["fields"][1]["aliases"] = ["t"]
    rows = [{"id": 1, "t": 1.5, "u": None, "v": 2.5}, {"id": 2, "t": None, "u": None, "v": 2.5}]
    rows += [{"id": 3, "t": 1.5, "u": None, "v": None}, {"id": 4, "t": None, "u": None, "v": None}]
    found = decoded(decoder_of(writer, reader), [encode(writer, row) for row in rows])
    assert found.frame["id"].to_list() == [1]
    assert failures(found) == [
        (1, "INCOMPATIBLE_SCHEMA: at `temp`: the value is NULL, and the reader's type is double"),
        (2, "INCOMPATIBLE_SCHEMA: at `v`: the value is NULL, and the reader's type is a union of 2"),
        (3, "INCOMPATIBLE_SCHEMA: at `temp`: the value is NULL, and the reader's type is double"),
    ]
    del reader["fields"][3]  # without a union of several types, fastavro gets the schemas as they are
    again = decoded(decoder_of(writer, reader), [encode(writer, row) for row in rows])
    assert failures(again) == [failures(found)[index] for index in (0, 2)]


@pytest.mark.usefixtures("reader_name")
def test_a_default_of_the_writers_may_be_anything_as_nothing_is_read_by_it() -> None:
    """Registries take such schemas, and Java reads what was written with them."""
    reader = text_of(record_of(("id", "long"), ("inner", record_of(("b", "long"), name="Inner"))))
    columns = tuple(FORMAT.schema_columns(reader).items())
    for writer, message in oddly_defaulted():
        for options in (FormatOptions(), FormatOptions(reader)):
            decoder = AvroDecoder(columns, columns, options, KnownSchemas({7: text_of(writer)}))
            found = decoded(decoder, [message] * 2)
            assert (found.frame.rows(), failures(found)) == ([(1, {"b": 2})] * 2, []), writer


def test_columns_are_looked_for_in_the_schema_of_each_record() -> None:
    written = record_of(("id", "int"), ("p", POINT), ("price", DECIMAL), ("more", "string"))
    point = DataType("struct", fields=(("y", BIGINT), ("z", STRING)))
    declared = [("price", decimal_of(9, 2)), ("id", BIGINT), ("gone", map_of(STRING, INT)), ("p", point)]
    record = {"id": 5, "p": {"x": 1, "y": 2}, "price": Decimal("12.34"), "more": ""}
    found = decoded(decoder_of(written, declared=declared), [encode(written, record)])
    assert found.frame.rows() == [(Decimal("12.34"), 5, None, {"y": 2, "z": None})]
    wrong = decoded(decoder_of(written, declared=[("id", STRING)]), [encode(written, record)])
    assert failures(wrong) == [
        (
            0,
            (
                "INCOMPATIBLE_SCHEMA: schema 7 cannot be read: at `id`: the writer's type is int, which cannot "
                "become string"
            ),
        )
    ]


@pytest.mark.parametrize("optional", [False, True])
def test_a_decimal_of_more_digits_than_there_are_is_read_as_the_declared_one(optional: bool) -> None:
    """Kafka Connect's converters write 64 digits where a connector does not say how many there are."""
    wide: Any = {**DECIMAL, "precision": 64}
    written = record_of(("a", ["null", wide] if optional else wide))
    values = ["1.25", "-9999.99", "10000.00", "1e40", "0.00", "-1e61"]
    messages: list[bytes | None] = [encode(written, {"a": Decimal(value)}) for value in values]
    found = decoded(decoder_of(written, declared=[("a", decimal_of(6, 2))]), messages)
    assert found.frame.rows() == [(Decimal("1.25"),), (Decimal("-9999.99"),), (Decimal("0.00"),)]
    assert failures(found) == [(row, "OUT_OF_RANGE: `a`: a decimal has more than 6 digits") for row in (2, 3, 5)]
    wrong = decoded(decoder_of(written, declared=[("a", decimal_of(6, 3))]), messages[:1])
    reason = "at `a`: the writer's type is decimal(64,2), which cannot become decimal(6,3)"
    assert failures(wrong) == [(0, f"INCOMPATIBLE_SCHEMA: schema 7 cannot be read: {reason}")]


@pytest.mark.usefixtures("reader_name")
def test_a_type_may_be_read_in_two_ways() -> None:
    address = record_of(("city", "string"), ("zip", ["null", "string"]), name="Address")
    written = record_of(
        ("home", address), ("work", ["null", "Address"]), ("others", {"type": "array", "items": "Address"})
    )
    city, code, both = (DataType("struct", fields=tuple((one, STRING) for one in names)) for names in (
        ("city",), ("zip", "none"), ("zip", "city")))  # fmt: skip
    columns = (("home", city), ("work", code), ("others", DataType("array", element=both)))
    decoder = AvroDecoder(columns, columns, FormatOptions(), KnownSchemas({7: text_of(written)}))
    place = {"city": "c", "zip": "z"}
    found = decoded(
        decoder, [encode(written, {"home": place, "work": work, "others": [place]}) for work in (place, None)]
    )
    assert failures(found) == []
    inside = [{"zip": "z", "city": "c"}]
    assert found.frame.rows() == [({"city": "c"}, {"zip": "z", "none": None}, inside), ({"city": "c"}, None, inside)]


@pytest.mark.usefixtures("reader_name")
def test_a_decimal_is_never_rounded() -> None:
    raw = record_of(("a", "bytes"))
    values = [999_999, 1_000_000, -999_999, -1_000_000, 0]
    messages = [encode(raw, {"a": value.to_bytes(9, "big", signed=True)}) for value in values]
    text = text_of(record_of(("a", DECIMAL)))
    columns = (("a", decimal_of(6, 2)),)
    found = decoded(AvroDecoder(columns, columns, FormatOptions(text), KnownSchemas({7: text})), list(messages))
    assert found.frame["a"].to_list() == [Decimal("9999.99"), Decimal("-9999.99"), Decimal(0)]
    assert failures(found) == [(row, "OUT_OF_RANGE: `a`: a decimal has more than 6 digits") for row in (1, 3)]


def test_valid_bytes_that_nobody_writes_are_read() -> None:
    array = record_of(("a", {"type": "array", "items": "int"}), ("b", "int"))
    sized, blocks, long = b"\x03\x04\x02\x04\x00\x06", b"\x02\x02\x02\x04\x00\x06", b"\x04\x02\x04\x00\x86\x80\x00"
    found = decoded(decoder_of(array), [PREFIX + body for body in (sized, blocks, long)] * 20)
    assert found.frame.rows() == [([1, 2], 3)] * 60
    twice = record_of(("m", {"type": "map", "values": "int"}))
    found = decoded(decoder_of(twice), [PREFIX + b"\x06\x02a\x02\x02b\x04\x02a\x06\x00"] * 2)
    assert found.frame.rows() == [([{"key": "a", "value": 3}, {"key": "b", "value": 2}],)] * 2


@pytest.mark.parametrize(
    "kind", ["string", "bytes", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}]
)
@pytest.mark.parametrize("length", [2**31, 2**40, 2**62, -1, -(2**40), -(2**63)])
def test_absurd_lengths_take_no_memory(kind: Any, length: int) -> None:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, "long", length)
    message = PREFIX + stream.getvalue() + b"\2a\2\0" * 3
    good = encode(record_of(("a", "bytes")), {"a": b""})
    tracemalloc.start()
    found = decoded(decoder_of(record_of(("a", kind))), [good, message, good])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [one.row for one in found.failures] == [1]
    assert peak < 2**22


@pytest.mark.usefixtures("reader_name")
def test_what_is_wrong_with_a_value_that_no_column_is_made_of() -> None:
    schema = record_of(("id", "int"), ("day", {"type": "int", "logicalType": "date"}))
    text = text_of(schema)
    columns = tuple(FORMAT.schema_columns(text).items())
    raw = record_of(("id", "int"), ("day", "int"))
    messages = [encode(raw, {"id": row, "day": 2**31 - 1 if row == 1 else 5}) for row in range(3)]
    decoder = AvroDecoder(columns, columns[:1], FormatOptions(text), KnownSchemas({7: text}))
    found = decoded(decoder, list(messages))
    assert found.frame.rows() == [(0,), (2,)]
    assert failures(found) == [(1, "OUT_OF_RANGE: `day`: 2147483647 is not a date of the years 1 to 9999")]


def test_what_is_wrong_with_a_value_within_others_is_named_by_its_fields() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "id", "type": logical_uuid()}]}
    schema = record_of(("who", ["null", inner]))
    raw = record_of(("who", ["null", {**inner, "fields": [{"name": "id", "type": "string"}]}]))
    messages = [encode(raw, {"who": {"id": one}}) for one in ("12345678-1234-5678-1234-567812345678", "nobody")]
    found = decoded(decoder_of(schema), messages)
    assert failures(found) == [(1, "MALFORMED_AVRO: `who.id`: 'nobody' is not a UUID")]


def logical_uuid() -> dict[str, str]:
    return {"type": "string", "logicalType": "uuid"}


def test_nothing_is_asked_for_and_everything_is_checked() -> None:
    text = text_of(ORDER)
    decoder = AvroDecoder((("id", BIGINT),), (), FormatOptions(text), KnownSchemas({7: text}))
    good = encode(ORDER, {"id": 1, "name": "x"})
    found = decoded(decoder, [good, good + b"\0", good])
    assert (found.frame.height, found.frame.width, [one.row for one in found.failures]) == (2, 0, [1])


@pytest.mark.usefixtures("reader_name")
def test_a_few_bad_records_among_many() -> None:
    schema = record_of(("id", "long"), ("name", "string"), ("amount", "double"))
    messages = [encode(schema, {"id": row, "name": f"n{row}", "amount": 0.5}) for row in range(1000)]
    messages[700] = messages[700] + b"\0"
    messages[990] = messages[990][:-3]
    text = text_of(schema)
    columns = (("id", BIGINT), ("name", STRING), ("amount", DOUBLE))
    decoder = AvroDecoder(columns, columns, FormatOptions(text), KnownSchemas({7: text}))
    found = decoded(decoder, list(messages))
    assert [one.row for one in found.failures] == [700, 990]
    assert found.frame["id"].to_list() == [row for row in range(1000) if row not in (700, 990)]


def test_values_as_people_write_them() -> None:
    schema = record_of(("id", "long"), ("at", MILLIS), ("price", DECIMAL))
    for ids in (IdPlace.PREFIX, IdPlace.NONE):
        options = FormatOptions(text_of(schema), ids)
        value = {"id": 5, "at": "2026-01-01T00:00:00.500Z", "price": 1.25}
        data = FORMAT.from_plain(json.loads(json.dumps(value)), options)
        assert FORMAT.to_plain(data, options) == value
        with pytest.raises(ValueError, match="MALFORMED_AVRO"):
            FORMAT.to_plain(data + b"\0", options)


def test_a_decimal_is_shown_with_its_digits() -> None:
    options = FormatOptions(text_of(record_of(("price", DECIMAL))))
    value = {"price": Decimal("0.10")}
    assert FORMAT.to_plain(FORMAT.from_plain(value, options), options) == value


def test_a_decimal_with_too_many_digits_is_bad_alone() -> None:
    writer = record_of(("n", {**DECIMAL, "precision": 9}))
    decoder = decoder_of(writer, record_of(("n", DECIMAL)))
    values = [encode(writer, {"n": Decimal(number)}) for number in ("1.25", "10000.00", "-9999.99")]
    found = decoded(decoder, list(values))
    assert failures(found) == [(1, "OUT_OF_RANGE: `n`: a decimal has more than 6 digits")]
    assert found.frame["n"].to_list() == [Decimal("1.25"), Decimal("-9999.99")]
