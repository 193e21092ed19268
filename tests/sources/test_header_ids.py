"""Ids of schemas in headers, as Confluent's serializers write them, for values and keys."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tests.formats.test_key_values import avro, fast_avro
from tests.sources.test_record_parts import Unreadable, message, operator_of
from tidegate.datatypes import BIGINT
from tidegate.formats.contract import Decoded, WaitingForSchema
from tidegate.formats.schema_ids import HeaderSchemas
from tidegate.formats.schemas import FormatOptions, IdPlace, SchemaKind, SchemaText, UnknownSchema
from tidegate.operators.builtin.kafka_source import MetadataColumn
from tidegate.sources.messages import KafkaMessages
from tidegate.sources.record_parts import open_decoder

GUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
OTHER = uuid.UUID(int=1)
BY_GUID = b"\1" + GUID.bytes
BY_ID = b"\0\0\0\0\7"
ROW = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}]}
VALUE, KEY = "__value_schema_id", "__key_schema_id"


KNOWN: dict[int | str, SchemaText | None] = {7: avro(ROW), str(GUID): avro(ROW), 8: avro("long")}
NO_NAME = "NOT_UTF8: the name of a header is not UTF-8"
REFUSED: dict[int | str, str] = {}
"""By everything that is known, in the test that looks at it."""


class Known:
    """See Schemas. None: asked for."""

    def __init__(self, schemas: Mapping[int | str, SchemaText | None]) -> None:
        self._schemas = schemas

    def get(self, schema_id: int | str, /) -> SchemaText | None:
        if schema_id not in self._schemas:
            raise UnknownSchema(schema_id)
        return self._schemas[schema_id]

    def refuse(self, schema_id: int | str, why: str, /) -> None:
        REFUSED[schema_id] = why


def operator(ids: IdPlace = IdPlace.HEADER) -> Any:
    options = FormatOptions(ids=ids)
    columns = (("id", BIGINT),)
    one = operator_of(format="avro", schema=columns, options=options, key_format="avro", key_options=options)
    key = MetadataColumn("key", "k", BIGINT)
    return msgspec.structs.replace(one, metadata=(key,), output=(*columns, ("k", BIGINT)))


def body(number: int) -> bytes:
    return fast_avro(ROW, {"id": number})[0][5:]


def read(*messages: Any, known: Mapping[int | str, SchemaText | None] | None = None) -> Any:
    schemas = Known(KNOWN if known is None else known)
    return open_decoder(operator(), schemas).decode(KafkaMessages(messages))


def test_values_and_keys_have_their_ids_in_headers_or_in_front() -> None:
    long = body(5)  # a record of one field has the bytes of the field
    decoded = read(
        message(0, body(1), None, [(VALUE, BY_GUID)]),
        message(1, body(2), long, [("a", b"1"), (VALUE, BY_ID), (KEY, b"\0\0\0\0\x08")]),
        message(2, BY_ID + body(3), b"\0\0\0\0\x08" + long, [(KEY + "s", b"x")]),
        message(3, body(4), None, [(VALUE, b"nothing"), (VALUE, BY_GUID)]),
    )
    assert isinstance(decoded, Decoded)
    assert list(decoded.failures) == []
    assert decoded.frame.rows() == [(1, None), (2, 5), (3, 5), (4, None)]


def test_what_is_no_id_is_bad_alone_and_said_by_its_guid() -> None:
    decoded = read(
        message(0, body(1), None, [(VALUE, b"\1" + OTHER.bytes)]),
        message(1, body(2), None, [(VALUE, None)]),
        message(2, body(3), None, [(VALUE, BY_GUID[:9])]),
        message(3, body(4), None, [(VALUE, BY_GUID)]),
        message(4, body(5), body(6), [(VALUE, BY_ID), (KEY, b"\1" + OTHER.bytes)]),
        message(5, None, None, [(VALUE, BY_ID)]),
    )
    assert isinstance(decoded, Decoded)
    unreadable = "the header with the schema's id has neither a 0 and an id nor a 1 and a GUID"
    missing = f"the registry has no schema with the GUID {OTHER}"
    assert [(one.row, one.kind, one.message) for one in decoded.failures] == [
        (0, "UNKNOWN_SCHEMA", missing),
        (1, "UNKNOWN_SCHEMA", unreadable),
        (2, "UNKNOWN_SCHEMA", unreadable),
        (4, "UNKNOWN_SCHEMA", f"the key: {missing}"),
        (5, "NULL_VALUE", "a tombstone has no value"),
    ]
    assert decoded.frame.rows() == [(4, None)]


def test_a_record_whose_headers_cannot_be_read_is_not_taken_for_one_with_its_id_in_front() -> None:
    """It was read as if it had no header: by a wrong schema, if its first bytes are an id that the registry has."""
    records = (message(0, BY_ID + body(1)), message(1, BY_ID + body(2)), message(2, BY_ID + body(3)))
    decoder = open_decoder(msgspec.structs.replace(operator(), metadata=(), output=(("id", BIGINT),)), Known(KNOWN))
    decoded = decoder.decode(Unreadable(records))
    assert isinstance(decoded, Decoded)
    assert [(one.row, str(one)) for one in decoded.failures] == [(1, NO_NAME)]
    assert decoded.frame.rows() == [(1,), (3,)]


@pytest.mark.parametrize("key", [b"\0\0\0\0\x08" + body(2), body(2)])
def test_nor_is_its_key(key: bytes) -> None:
    records = (message(0, BY_ID + body(1), None), message(1, None, key), message(2, None, None))
    one = msgspec.structs.replace(operator(), on_null="tombstone")
    decoded = open_decoder(one, Known(KNOWN)).decode(Unreadable(records))
    assert isinstance(decoded, Decoded)
    assert [(one.row, str(one)) for one in decoded.failures] == [(1, NO_NAME)]
    assert decoded.frame["k"].to_list() == [None, None]


def test_a_tombstone_without_readable_headers_is_a_tombstone() -> None:
    decoded = open_decoder(operator(), Known(KNOWN)).decode(
        Unreadable((message(0, BY_ID + body(1), None), message(1, None, None)))
    )
    assert isinstance(decoded, Decoded)
    assert [(one.row, one.kind) for one in decoded.failures] == [(1, "NULL_VALUE")]


@pytest.mark.parametrize("name", [VALUE, KEY])
def test_a_guid_is_waited_for_and_refused_by_its_name(name: str) -> None:
    REFUSED.clear()
    record = message(0, body(1), body(2) if name == KEY else None, [(VALUE, BY_ID), (name, BY_GUID)])
    known: dict[int | str, SchemaText | None] = {7: avro(ROW), str(GUID): None}
    found = read(record, known=known)
    assert found == WaitingForSchema(f"the schema {GUID} of the registry")
    text = avro({**ROW, "fields": [{"name": "id", "type": "string"}]} if name == VALUE else "string")
    decoded = read(record, known={**known, str(GUID): text})
    (failure,) = decoded.failures
    assert (failure.kind, str(GUID) in failure.message) == ("INCOMPATIBLE_SCHEMA", True)
    assert list(REFUSED.items()) == [(str(GUID), failure.message.replace("the key: ", "of keys: "))]


def test_headers_mean_nothing_where_ids_are_in_front() -> None:
    decoder = open_decoder(operator(IdPlace.PREFIX), Known({7: avro(ROW)}))
    decoded = decoder.decode(KafkaMessages([message(0, BY_ID + body(1), None, [(VALUE, BY_GUID)])]))
    assert isinstance(decoded, Decoded)
    assert decoded.frame.rows() == [(1, None)]


def test_what_follows_the_id_in_a_header_is_in_front_of_the_bytes() -> None:
    """Protobuf's indexes of a message are there."""
    schemas = HeaderSchemas(Known({}))
    framed = schemas.in_front(b"x", BY_GUID + b"\0")
    assert (framed[:1], framed[5:]) == (b"\0", b"\0x")
    assert schemas.name_of(int.from_bytes(framed[1:5], "big")) == str(GUID)
    assert schemas.in_front(b"x", BY_ID + b"\2\2") == BY_ID + b"\2\2x"
    assert schemas.in_front(b"y", BY_GUID)[:5] == framed[:5]


def test_json_of_a_schema_in_a_header_is_read_and_may_have_its_id_in_front() -> None:
    one = operator_of(format="json-schema", schema=(("id", BIGINT),), options=FormatOptions(ids=IdPlace.HEADER))
    schemas = Known({7: SchemaText(SchemaKind.JSON, '{"type": "object"}')})
    messages = (message(0, b'{"id": 1}', None, [(VALUE, BY_ID)]), message(1, BY_ID + b'{"id": 2}', None, []))
    decoded = open_decoder(one, schemas).decode(KafkaMessages(messages))
    assert isinstance(decoded, Decoded)
    assert list(decoded.failures) == []
    assert decoded.frame.rows() == [(1,), (2,)]
