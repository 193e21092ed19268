"""Schemas of envelopes as those of sources, and events as people write them in tests."""

from __future__ import annotations

import copy
import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from tests.formats.batches import messages_of
from tests.formats.debezium_avro.any_changes import TIME
from tests.formats.debezium_avro.events import (
    AT,
    FORMAT,
    MICROS,
    MILLIS,
    NUMBER,
    OWN,
    PLAIN,
    UTC,
    ZONED,
    envelope,
    event_of,
    named,
    text_of,
)
from tidegate.config.fields.columns import derive_type
from tidegate.datatypes import BIGINT, DataType
from tidegate.formats.contract import Decoded, FormatRefusal
from tidegate.formats.schemas import (
    FormatOptions,
    KnownSchemas,
)


def columns_of(schema: Any) -> dict[str, str]:
    return {name: str(kind) for name, kind in FORMAT.schema_columns(text_of(schema)).items()}


def test_the_row_of_an_envelope_is_the_columns() -> None:
    twelve = copy.deepcopy(NUMBER)
    twelve["connect.parameters"]["connect.decimal.precision"] = "12"
    fields = {
        "id": "long", "small": {"type": "int", "connect.type": "int16"}, "ok": "boolean",
        "t": named("string", "io.debezium.data.Json"),
        "day": named("int", f"{TIME}Date"), "iso": named("string", f"{TIME}IsoDate"), "us": MICROS, "z": ZONED,
        "m": NUMBER, "n": twelve, "own": OWN, "time": named("long", f"{TIME}MicroTime"),
        "many": {"type": "array", "items": ["null", MILLIS]}, "by": {"type": "map", "values": "string"},
        "utc": {"type": "long", "logicalType": "timestamp-millis"}, "fix": {"type": "fixed", "name": "F", "size": 3},
        "e": {"type": "enum", "name": "E", "symbols": ["A"]},
    }  # fmt: skip
    assert columns_of(envelope(fields)) == {
        "id": "bigint", "small": "smallint", "ok": "boolean", "t": "string", "day": "date", "iso": "date",
        "us": "timestamp_ntz", "z": "timestamp", "m": "decimal(38,2)", "n": "decimal(12,2)",
        "own": "struct<scale: int, value: binary>", "time": "bigint", "many": "array<timestamp_ntz>",
        "by": "map<string, string>", "utc": "timestamp", "fix": "binary", "e": "string",
        "_deleted": "boolean", "_op": "string",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}, "not an envelope of changes"),
        (envelope({"__tidegate_x": "int"}), "at `after.__tidegate_x`: names of columns that begin with `__tidegate`"),
        (envelope({"_op": "int"}), "the table has a column `_op`, which every debezium-avro source adds"),
        (envelope({"v": {"type": "record", "name": "N", "fields": []}}), "at `after.v`: the record shop.public.t.N"),
    ],
)  # fmt: skip
def test_what_cannot_be_the_schema_of_a_source(schema: Any, expected: str) -> None:
    with pytest.raises(FormatRefusal) as caught:
        FORMAT.schema_columns(text_of(schema))
    assert expected in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"_deleted": BIGINT}, "every debezium-avro source already has a column `_deleted`"),
        ({"a-b": BIGINT}, "`a-b` is not a valid field name in Avro"),
        ({"m": derive_type("array<map<int, string>>")}, "the keys of map<int, string> in `m` are not strings"),
    ],
)
def test_columns_that_no_event_has(columns: dict[str, DataType], expected: str) -> None:
    with pytest.raises(FormatRefusal, match=expected):
        FORMAT.read_columns(columns)
    with pytest.raises(FormatRefusal, match="debezium-avro is read only"):
        FORMAT.written_columns(columns)


def test_a_source_of_an_envelope_reads_other_versions_of_it_by_the_names_of_columns() -> None:
    newest = envelope({"id": "long", "at": MICROS, "more": "string"})
    newest["fields"][0]["type"][1]["fields"][2] |= {"default": None, "aliases": ["name"]}
    columns = FORMAT.schema_columns(text_of(newest, 9))
    older = envelope({"id": "int", "at": MILLIS})
    known = KnownSchemas({7: text_of(PLAIN), 8: text_of(older, 8), 9: text_of(newest, 9)})
    decoder = FORMAT.decoder(tuple(columns.items()), tuple(columns.items()), FormatOptions(text_of(newest, 9)), known)
    events = [
        event_of("c", None, {"id": 1, "at": 1_728_000_000_001_000, "more": "x"}, newest, 9),
        event_of("c", None, {"id": 2, "at": 1_728_000_000_001}, older, 8),
        event_of("c", None, {"id": 3, "name": "no alias"}),
    ]
    found = decoder.decode(messages_of(events))
    assert isinstance(found, Decoded)
    assert found.frame.select("id", "at", "more").rows() == [(1, AT, "x"), (2, AT, None), (3, None, None)]


def test_an_event_of_a_test_has_what_it_says_and_nothing_else() -> None:
    fields = {"id": "long", "day": named("int", f"{TIME}Date"), "at": MICROS, "z": ZONED, "n": NUMBER}
    others = {
        "db": "string",
        "ts": "long",
        "how": {"type": "enum", "name": "How", "symbols": ["A"]},
        "raw": {"type": "fixed", "name": "Raw", "size": 4},
        "ok": "boolean",
        "all": {"type": "array", "items": "int"},
        "day": {"type": "int", "logicalType": "date"},
    }
    source = {"type": "record", "name": "Source", "fields": [{"name": a, "type": b} for a, b in others.items()]}
    schema = envelope(fields, source=source, ts_us={"type": "long", "logicalType": "timestamp-micros"})
    options = FormatOptions(text_of(schema))
    row = {"id": 1, "day": "2024-10-04", "at": "2024-10-04T00:00:00.001", "z": "2024-10-04T00:00:00.001Z", "n": "12.34"}
    value = FORMAT.from_plain({"op": "c", "after": row}, options)
    columns = FORMAT.schema_columns(text_of(schema))
    decoder = FORMAT.decoder(
        tuple(columns.items()), tuple(columns.items()), options, KnownSchemas({7: text_of(schema)})
    )
    found = decoder.decode(messages_of([value]))
    assert isinstance(found, Decoded)
    assert found.frame.rows() == [(1, dt.date(2024, 10, 4), AT, UTC, Decimal("12.34"), False, "c")]
    for wrong in ({"op": "c", "after": {"id": "x"}}, [1], 5):
        with pytest.raises(FormatRefusal, match="the value does not fit the schema"):
            FORMAT.from_plain(wrong, options)


def test_events_that_people_write_may_have_unions_of_several_types() -> None:
    schema = envelope({"id": "long"}, more=["null", "long", "string"])
    row = schema["fields"][0]["type"][1]
    row["fields"].append({"name": "u", "type": ["null", "string", {"type": "map", "values": "int"}]})
    options = FormatOptions(text_of(schema))
    columns = tuple(FORMAT.schema_columns(text_of(schema)).items())
    value = FORMAT.from_plain({"op": "c", "after": {"id": 1, "u": {"member1": {"x": 2}}}}, options)
    found = FORMAT.decoder(columns, columns, options, KnownSchemas({7: text_of(schema)})).decode(messages_of([value]))
    assert isinstance(found, Decoded)
    assert found.frame["u"].to_list() == [{"member0": None, "member1": [{"key": "x", "value": 2}]}]
