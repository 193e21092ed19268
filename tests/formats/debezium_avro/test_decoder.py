"""Events in Avro: which are changes of a row, and what their schemas have to have."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest

from tests.formats.avro.test_decoder import Fetching
from tests.formats.batches import messages_of
from tests.formats.debezium_avro.any_changes import TIME
from tests.formats.debezium_avro.events import FORMAT, KINDS, PLAIN, decode, envelope, event_of, named, reasons, text_of
from tests.sources.test_record_parts import message, operator_of
from tidegate.datatypes import BIGINT, STRING
from tidegate.formats.contract import Decoded, WaitingForSchema
from tidegate.formats.row_kinds import BEFORE, DELETE, INSERT, ROW_KIND, UPDATE_AFTER
from tidegate.formats.schemas import (
    NO_OPTIONS,
    FormatOptions,
    IdPlace,
    KnownSchemas,
)
from tidegate.sources.messages import KafkaMessages
from tidegate.sources.record_parts import open_decoder

OLD, NEW = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}
NO_ROW = "UNSUPPORTED_CHANGE: the event"
NO_BEFORE = "INCOMPLETE_CHANGE: the event"
REMEDY = "(PostgreSQL writes it with `REPLICA IDENTITY FULL`, MySQL with `binlog_row_image=FULL`)"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (event_of("t"), f"{NO_ROW} `t` truncates the table and has no row - at `op`"),
        (event_of("m"), f"{NO_ROW} `m` is a logical message and has no row - at `op`"),
        (event_of("x" * 30, None, OLD), f"{NO_ROW} `{'x' * 20}` is unknown and has no row - at `op`"),
        (event_of(None, None, OLD), "INCOMPLETE_CHANGE: the record has no `op`, so it is not a change event - at `op`"),
        (event_of("u", OLD), "INCOMPLETE_CHANGE: the event `u` has no row in `after` - at `after`"),
        (event_of("d"), "INCOMPLETE_CHANGE: the event `d` has no row in `before` - at `before`"),
        (event_of("d", OLD, OLD), "INCOMPLETE_CHANGE: a delete has a row in `after` - at `after`"),
        (
            event_of("u", None, OLD),
            f"{NO_BEFORE} `u` has no row in `before`, which must be retracted {REMEDY} - at `before`",
        ),
        (None, "NULL_VALUE: a tombstone has no value"),
        (b"", "EMPTY_VALUE: the value is empty"),
        (b"{op:c}", "MALFORMED_AVRO: the value begins with '{op:c', not with a zero byte and the id of a schema"),
        (b"\0\0\0\0\7", ("MALFORMED_AVRO: the bytes end within the record; it was written with another schema, or "
            "truncated")),
        (event_of("c", None, OLD) + b"x", "MALFORMED_AVRO: bytes follow the end of the record: 1"),
        (b"\0\0\0\1\0", "UNKNOWN_SCHEMA: the registry has no schema with the id 256"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("around", [1, 60])
def test_what_is_no_change_of_a_row_is_bad(event: bytes | None, expected: str, around: int) -> None:
    good = [event_of("c", None, OLD), event_of("u", OLD, NEW), event_of("d", NEW)] * around
    found = decode([*good, event, *good], options=KINDS)
    assert reasons(found) == [expected]
    assert found.failures[0].row == len(good)
    assert found.frame[ROW_KIND].to_list() == [INSERT, UPDATE_AFTER, DELETE] * 2 * around
    assert found.frame[f"{BEFORE}name"].to_list() == [None, "a", None] * 2 * around


def test_an_update_needs_no_row_before_it_where_nothing_is_taken_back() -> None:
    found = decode([event_of("u", None, NEW), event_of("r", None, OLD), event_of("d", OLD)])
    assert found.frame.rows() == [(1, "b", False, "u"), (1, "a", False, "r"), (1, "a", True, "d")]


NO_ENVELOPE = "it is not an envelope of changes: its record `shop.public.t.Envelope` has no"
ALONE = "read rows without an envelope with `format: avro`"
IDS = {
    side: {"type": "record", "name": side, "fields": [{"name": "id", "type": kind}]}
    for side, kind in (("before", "int"), ("after", "long"))
}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (envelope({"id": "long"}, op=None), f"{NO_ENVELOPE} `op`; its fields are before, after, source; {ALONE}"),
        (
            envelope({"id": "long"}, before=None, after=None),
            f"{NO_ENVELOPE} `before` and no `after`; its fields are source, op; {ALONE}",
        ),
        (envelope({"id": "long"}, op="int"), "at `op`: the writer's type is int, but `op` is a string"),
        (
            envelope({"id": "long"}, before=None, after=["null", "string"]),
            "at `after`: the writer's type is string, but a row is a record of columns",
        ),
        (envelope({"id": "string"}), "at `after.id`: the writer's type is string, which cannot become bigint"),
        (
            envelope({"name": {"type": "array", "items": "string"}}),
            "at `after.name`: the writer's type is array, which cannot become string",
        ),
        (envelope({}, **IDS), "at `before.id`: its type differs from that in `after`, but both are columns of one row"),
        ("no", "there is no type 'no'"),
    ],
)
def test_a_schema_that_is_no_envelope_or_not_of_these_columns(schema: Any, expected: str) -> None:
    kind = "INCOMPLETE_CHANGE" if expected.startswith(NO_ENVELOPE) else "INCOMPATIBLE_SCHEMA"
    found = decode([b"\0\0\0\0\7\0", event_of("c", None, OLD, schema_id=8)], schema=schema, others={8: PLAIN})
    assert found.frame.rows() == [(1, "a", False, "c")]
    assert [one.row for one in found.failures] == [0]
    assert reasons(found) == [f"{kind}: schema 7 cannot be read: {expected}"]


def test_a_column_that_the_table_does_not_have_yet_is_null_and_can_be_taken_back() -> None:
    young = envelope({"id": "long"})
    events = [
        event_of("c", None, {"id": 1}, young, 8),
        event_of("u", {"id": 1}, {"id": 2}, young, 8),
        event_of("d", {"id": 2}, None, young, 8),
        event_of("c", None, OLD),
        event_of("d", OLD),
        event_of("c", None, {"id": 9}, young, 8),
    ]
    found = decode(events, options=KINDS, others={8: young})
    assert reasons(found) == []
    assert found.frame.select("id", "name", "_op", f"{BEFORE}id", f"{BEFORE}name").rows() == [
        (1, None, "c", None, None),
        (2, None, "u", 1, None),
        (2, None, "d", None, None),
        (1, "a", "c", None, None),
        (1, "a", "d", None, None),
        (9, None, "c", None, None),
    ]
    nothing = decode(events[:3], {"name": "string"}, "_deleted", options=NO_OPTIONS, others={8: young})
    assert [one.kind for one in nothing.failures] == ["NO_DECLARED_FIELD"] * 3


def test_rows_with_other_fields_before_a_change_than_after_it() -> None:
    """Debezium writes no such schemas; who does, leaves out what is not known."""
    key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
    value = {"type": "record", "name": "V", "fields": [*key["fields"], {"name": "name", "type": "string"}]}
    schema = envelope({}, before=["null", key], after=["null", value])
    events = [
        event_of("c", None, OLD, schema),
        event_of("u", {"id": 1}, NEW, schema),
        event_of("d", {"id": 1}, None, schema),
    ]
    assert decode(events, schema=schema).frame["name"].to_list() == ["a", "b", None]
    lacks = f"INCOMPLETE_CHANGE: the row in `before` must be retracted, but has no `name` {REMEDY} - at `before.name`"
    assert reasons(decode(events, schema=schema, options=KINDS)) == [lacks, lacks]
    assert reasons(decode(events, {"id": "bigint"}, schema=schema, options=KINDS)) == []
    only = envelope({"id": "long"}, before=None, after={"type": "record", "name": "V", "fields": value["fields"]})
    found = decode([event_of("r", None, OLD, only), event_of("d", None, OLD, only)], schema=only)
    assert found.frame.rows() == [(1, "a", False, "r")]
    assert reasons(found) == ["INCOMPLETE_CHANGE: the event `d` has no row in `before` - at `before`"]


def test_a_row_before_an_update_is_looked_at_where_it_is_taken_back_and_nowhere_else() -> None:
    schema = envelope({"id": "long", "day": named("int", f"{TIME}Date")})
    event = event_of("u", {"id": 1, "day": 2**31 - 1}, {"id": 1, "day": 1}, schema)
    table = {"id": "bigint", "day": "date"}
    assert decode([event], table, schema=schema).frame["day"].to_list() == [dt.date(1970, 1, 2)]
    expected = "OUT_OF_RANGE: 2147483647 days since 1970 are not a date from 1 to 9999 - at `before.day`"
    assert reasons(decode([event], table, schema=schema, options=KINDS)) == [expected]
    assert reasons(decode([event_of("d", {"id": 1, "day": 2**31 - 1}, None, schema)], table, schema=schema)) == [
        expected
    ]


def test_a_batch_waits_for_the_schemas_of_its_events() -> None:
    schemas = Fetching()
    columns = tuple(FORMAT.read_columns({"id": BIGINT, "name": STRING}).items())
    decoder = FORMAT.decoder(columns, columns, NO_OPTIONS, schemas)
    events = [event_of("c", None, OLD), event_of("c", None, NEW, schema_id=8)]
    assert decoder.decode(messages_of(events)) == WaitingForSchema("the schema 7 of the registry")
    assert schemas.asked == [7, 8]
    schemas.known |= {7: text_of(PLAIN), 8: text_of(PLAIN, 8)}
    found = decoder.decode(messages_of(events))
    assert isinstance(found, Decoded)
    assert found.frame["name"].to_list() == ["a", "b"]


def test_ids_may_be_in_headers() -> None:
    columns = tuple(FORMAT.read_columns({"id": BIGINT, "name": STRING}).items())
    operator = operator_of(format="debezium-avro", schema=columns, options=FormatOptions(ids=IdPlace.HEADER))
    decoder = open_decoder(msgspec.structs.replace(operator, output=columns), KnownSchemas({7: text_of(PLAIN)}))
    events = [event_of("c", None, OLD), event_of("d", NEW), event_of("t")]
    headers = [("__value_schema_id", events[0][:5])]
    found = decoder.decode(
        KafkaMessages(
            [message(0, events[0][5:], None, headers), message(1, events[1]), message(2, events[2][5:], None, headers)]
        )
    )
    assert isinstance(found, Decoded)
    assert found.frame.rows() == [(1, "a", False, "c"), (1, "b", True, "d")]
    assert [str(one.kind) for one in found.failures] == ["UNSUPPORTED_CHANGE"]


def test_bare_records_have_the_schema_of_the_file() -> None:
    text = text_of(PLAIN, 0)
    columns = tuple(FORMAT.schema_columns(text).items())
    decoder = FORMAT.decoder(columns, columns, FormatOptions(text, IdPlace.NONE), KnownSchemas())
    found = decoder.decode(messages_of([event_of("c", None, OLD)[5:], b"x", event_of("t")[5:]]))
    assert isinstance(found, Decoded)
    assert found.frame.rows() == [(1, "a", False, "c")]
    assert [one.row for one in found.failures] == [1, 2]
