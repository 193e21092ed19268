"""Records with fields, and none of a source's: bad with what they look like. `{}` is a row of NULLs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import pytest

from tests.formats.avro.any_avro import encode, record_of, text_of
from tests.formats.batches import messages_of
from tests.formats.debezium_avro.events import envelope
from tests.formats.memory_batches import InMemory, Loaded
from tests.formats.protobuf.any_protobuf import file_of
from tests.formats.protobuf.any_protobuf import text_of as protobuf_text
from tidegate.datatypes import INT, STRING, DataType
from tidegate.formats.contract import Columns, Decoded, Messages
from tidegate.formats.failures import FailureKind
from tidegate.formats.key_values import ReadKeys, key_reader
from tidegate.formats.registry import FORMATS
from tidegate.formats.row_kinds import BEFORE
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, KnownSchemas, SchemaText, UnknownFields

COLUMNS: Final = (("id", INT), ("name", STRING))
CHANGE = {"before": None, "after": {"id": 1, "name": "a"}, "op": "c", "source": {}}
STRANGERS = {
    "Debezium": (CHANGE, "`before`, `after`, `op`, `source`; it looks like a change event of Debezium: use"),
    "with its schema": (
        {"schema": {}, "payload": CHANGE},
        "a change event of Debezium with its schema: use `format: deb",
    ),
    "Connect": (
        {"schema": {}, "payload": {"id": 1}},
        "it looks like Kafka Connect's wrapper: set `value.converter.sch",
    ),
    "Connect's text": (
        {"schema": None, "payload": "x"},
        "it looks like Kafka Connect's wrapper: set `value.converter.sch",
    ),
    "another case": ({"ID": 1, "Name": "a"}, "`ID`, `Name`; `ID` is not `id`: names must match exactly"),
    "others": (
        dict.fromkeys("abcdef", 1),
        "it has none of the declared fields; its fields are `a`, `b`, `c`, `d`, `e`, ...",
    ),
    "below": ({"x": {"id": 1}}, "it has none of the declared fields; its fields are `x`"),
}


def decode(
    name: str,
    values: Sequence[bytes],
    read: Columns = COLUMNS,
    options: FormatOptions = NO_OPTIONS,
    schemas: Mapping[int, SchemaText] | None = None,
    columns: Columns = COLUMNS,
) -> Decoded:
    format_ = FORMATS[name]
    declared = tuple(format_.read_columns(dict(columns)).items())
    decoder = format_.decoder(declared, read, options, KnownSchemas(schemas))
    found = decoder.decode(messages_of(values))
    assert isinstance(found, Decoded)
    return found


@pytest.fixture(params=["values", "memory"])
def decode_json(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """By objects of Python, and in C."""
    if request.param == "values":
        return lambda values, read=COLUMNS, options=NO_OPTIONS: decode("json", values, read, options)
    monkeypatch.setattr("tidegate.formats.kinds.json.reader.loaded", Loaded)

    def in_c(values: Sequence[bytes], read: Columns = COLUMNS, options: FormatOptions = NO_OPTIONS) -> Decoded:
        found = (
            FORMATS["json"].decoder(COLUMNS, read, options, KnownSchemas()).decode(cast("Messages", InMemory(values)))
        )
        assert isinstance(found, Decoded)
        return found

    return in_c


@pytest.mark.parametrize("case", STRANGERS)
@pytest.mark.parametrize("read", [COLUMNS, COLUMNS[1:], ()], ids=["all", "one", "none"])
def test_a_stranger_is_bad_whatever_is_read(decode_json: Any, case: str, read: Columns) -> None:
    record, said = STRANGERS[case]
    good: list[dict[str, Any]] = [{"id": 1}, {}, {"id": None, "other": 1}, {"name": "a", "x": 1}]
    values = [json.dumps(one).encode() for one in (good[0], record, *good[1:], record)]
    frame, failures = decode_json(values, read)
    assert frame.height == len(good)
    assert frame.to_dicts() == [{name: one.get(name) for name, _ in read} for one in good]
    assert [(one.row, one.kind) for one in failures] == [(row, FailureKind.NO_DECLARED_FIELD) for row in (1, 5)]
    assert said in failures[0].message


def test_other_failures_keep_their_places_and_their_kinds(decode_json: Any) -> None:
    values = [b"{", b'{"x":1}', b'{"id":"a"}', b'{"id":1}', b"null", b'{"x":1}', b'{"\\u0069d":null}', b'{"x":1,"x":2}']
    frame, failures = decode_json(values)
    assert frame["id"].to_list() == [1, None]
    none = FailureKind.NO_DECLARED_FIELD
    kinds = [FailureKind.MALFORMED_JSON, none, FailureKind.WRONG_TYPE, FailureKind.WRONG_TYPE, none, none]
    assert [(one.row, one.kind) for one in failures] == list(zip((0, 1, 2, 4, 5, 7), kinds, strict=True))


def test_what_becomes_of_unknown_fields_goes_first(decode_json: Any) -> None:
    _, (failure,) = decode_json([b'{"x":1}'], COLUMNS, FormatOptions(unknown_fields=UnknownFields.FAIL))
    assert failure.kind is FailureKind.UNKNOWN_FIELD
    kept = FormatOptions(unknown_fields=UnknownFields.KEEP, rest="name")
    assert not decode("json", [b'{"x":1}'], COLUMNS[:1], kept).failures


def test_a_name_that_is_not_utf8_is_a_stranger_too(decode_json: Any) -> None:
    frame, failures = decode_json([b'{"\xff":1}'])
    assert frame.height + len(failures) == 1
    assert not frame.height


@pytest.mark.parametrize(
    ("value", "said"), [(b'\0\0\0\1\2{"id":3}', "registry (id 258), so"), (b"\0\0", "registry, so")]
)
def test_a_zero_byte_is_of_a_schema_registry(decode_json: Any, value: bytes, said: str) -> None:
    _, (failure,) = decode_json([value])
    assert failure.kind is FailureKind.MALFORMED_JSON
    assert f"begins with a zero byte: it looks like a record of a schema {said} `format` is `json-" in failure.message


def test_rows_of_changes() -> None:
    row = {"ID": 1}
    events = [
        {"op": "c", "after": row},
        {"op": "d", "before": row},
        {"op": "c", "after": {}},
        {"op": "c", "after": {"id": 1}},
    ]
    frame, failures = decode("debezium", [json.dumps(one).encode() for one in events])
    assert frame["id"].to_list() == [None, 1]
    assert [one.message.partition(" - at ")[2] for one in failures] == ["`$.after`", "`$.before`"]
    assert "`ID` is not `id`" in failures[0].message
    update = json.dumps({"op": "u", "before": row, "after": {"id": 1}}).encode()
    frame, (failure,) = decode("debezium", [update], options=FormatOptions(row_kinds=True))
    assert failure.kind is FailureKind.INCOMPLETE_CHANGE
    assert f"{BEFORE}id" in frame.columns


def test_keys_of_json() -> None:
    kind = DataType("struct", fields=COLUMNS)
    keys = [b'{"id":1}', b'{"ID":1}', None, b"{}", b"null", b"7"]
    found = key_reader("k", "json", kind, NO_OPTIONS, KnownSchemas())(keys)
    assert isinstance(found, ReadKeys)
    assert [(one.row, one.kind) for one in found.failures] == [
        (1, FailureKind.NO_DECLARED_FIELD),
        (5, FailureKind.WRONG_TYPE),
    ]
    assert found.column.len() == len(keys)


@pytest.mark.parametrize("read", [COLUMNS, ()], ids=["all", "none"])
@pytest.mark.parametrize("own", [False, True], ids=["columns", "reader"])
def test_a_writers_schema_in_avro_with_none_of_the_columns_is_refused(read: Columns, *, own: bool) -> None:
    reader = record_of(("id", ["null", "int"], None), ("name", ["null", "string"], None))
    options = FormatOptions(text_of(reader)) if own else NO_OPTIONS
    writers = {
        7: record_of(("ID", "int")),
        8: record_of(("op", "string"), ("after", "string")),
        9: record_of(("id", "int")),
    }
    known = {number: text_of(writer, number) for number, writer in writers.items()}
    values = [framed(7, writers[7], {"ID": 1})] * 2 + [framed(8, writers[8], {"op": "c", "after": "x"})]
    frame, failures = decode("avro", [*values, framed(9, writers[9], {"id": 1})], read, options, known)
    assert frame.height == 1
    assert [(one.row, one.kind) for one in failures] == [(row, FailureKind.NO_DECLARED_FIELD) for row in range(3)]
    assert "has none of the declared fields; its fields are `ID`; `ID` is not `id`" in failures[0].message
    assert (
        "`op`, `after`; it looks like the schema of change events: use `format: debezium-avro`" in failures[2].message
    )


def test_an_alias_and_a_record_without_fields_are_no_strangers() -> None:
    reader = record_of(("name", ["null", "string"], None))
    reader["fields"][0]["aliases"] = ["other"]
    writers = {7: record_of(("other", "string")), 8: record_of()}
    known = {number: text_of(writer, number) for number, writer in writers.items()}
    values = [framed(7, writers[7], {"other": "a"})]
    found = decode("avro", values, COLUMNS[1:], FormatOptions(text_of(reader)), known, COLUMNS[1:])
    assert found.frame["name"].to_list() == ["a"]
    assert decode("avro", [framed(8, writers[8], {})], schemas=known).failures == []


def framed(number: int, writer: Any, record: Any) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + encode(writer, record)[5:]


def test_a_table_in_avro_with_none_of_the_columns_is_refused() -> None:
    event = envelope({"ID": "int", "other": "string"})
    known = {7: text_of(event)}
    value = encode(event, {"before": None, "after": {"ID": 1, "other": None}, "source": {"db": ""}, "op": "c"})
    _, (failure,) = decode("debezium-avro", [value], schemas=known)
    assert failure.kind is FailureKind.NO_DECLARED_FIELD
    assert (
        "a row: it has none of the declared fields; its fields are `ID`, `other`; `ID` is not `id`" in failure.message
    )


@pytest.mark.parametrize("own", [False, True], ids=["columns", "reader"])
def test_a_message_with_none_of_the_columns_is_refused(*, own: bool) -> None:
    """By its names where columns are declared, by its numbers where the reader has a message of its own."""
    reader, other, empty = (file_of({"A": fields}) for fields in ([("id", "int32")], [("ID", "int32")], []))
    if own:
        other = file_of({"A": [("gone", "string"), ("ID", "int32")]})
        del other.message_type[0].field[0]
    renamed = file_of({"A": [("key", "int32")]})
    known = {number: protobuf_text(file, number) for number, file in ((7, other), (8, empty), (9, renamed))}
    options = FormatOptions(protobuf_text(reader, 1)) if own else NO_OPTIONS
    values = [b"\0\0\0\0" + bytes([number]) + b"\0" for number in (7, 8, 9)]
    frame, failures = decode("protobuf", values, COLUMNS[:1], options, known, COLUMNS[:1])
    assert [(one.row, one.kind) for one in failures] == [(0, FailureKind.NO_DECLARED_FIELD)] + [
        (2, FailureKind.NO_DECLARED_FIELD)
    ] * (not own)
    assert "`ID` is not `id`" in failures[0].message
    assert frame.height == 2 - (not own)
