"""What sinks write with `schema_id: header`, and sources with the same words read again."""

from __future__ import annotations

from typing import Any

import msgspec
import polars as pl
import pytest

from tests.formats.protobuf.any_protobuf import file_of, text_of
from tests.formats.routed import headers_column
from tests.formats.test_key_values import avro
from tests.sources.test_header_ids import Known
from tests.sources.test_record_parts import message, operator_of
from tests.support.records import listed
from tests.testing.pipelines import messages, run_one
from tests.testing.test_record_parts import AVRO
from tidegate.datatypes import BIGINT, STRING
from tidegate.formats.contract import Decoded
from tidegate.formats.record_parts import CARRIED_HEADERS, HeaderRules, RecordParts
from tidegate.formats.records import OutputRecords, RecordEncoder
from tidegate.formats.schemas import FormatOptions, IdPlace, SchemaKind, SchemaText
from tidegate.operators.builtin.kafka_source import MetadataColumn
from tidegate.sources.messages import KafkaMessages
from tidegate.sources.record_parts import open_decoder

VALUE, KEY = "__value_schema_id", "__key_schema_id"
COLUMNS = (("id", BIGINT), ("name", STRING))
RECORD = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}],
}
OBJECT = '{"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}'
FILE = file_of({"Other": [("x", "int64")], "Row": [("id", "int64", "optional"), ("name", "string", "optional")]})
SCHEMAS = {
    "avro": avro(RECORD),
    "json-schema": SchemaText(SchemaKind.JSON, OBJECT),
    "protobuf": text_of(FILE, message="t.Row"),
}
MARKS = {"avro": b"\0\0\0\0\7", "json-schema": b"\0\0\0\0\7", "protobuf": b"\0\0\0\0\7\x02\x02"}
ROWS = [(1, "a"), (2, None), (3, "c")]


def options_of(schema: SchemaText, number: int) -> FormatOptions:
    return FormatOptions(msgspec.structs.replace(schema, id=number), IdPlace.HEADER)


def written(name: str, parts: RecordParts, frame: pl.DataFrame) -> OutputRecords:
    return RecordEncoder(name, COLUMNS, parts, options_of(SCHEMAS[name], 7)).encode(frame)


def frame_of(**more: Any) -> pl.DataFrame:
    return pl.DataFrame({"id": [1, 2, 3], "name": ["a", None, "c"], **more}, schema_overrides={"name": pl.String})


def headers_of(records: OutputRecords) -> list[dict[str, bytes | None]]:
    headers = listed(records).headers
    assert headers is not None
    return [dict(one or ()) for one in headers]


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_id_is_in_the_header_and_the_value_is_bare(name: str) -> None:
    bare = RecordEncoder(name, COLUMNS, options=FormatOptions(SCHEMAS[name], IdPlace.NONE)).encode(frame_of())
    found = written(name, RecordParts(), frame_of())
    assert listed(found).values == listed(bare).values
    assert headers_of(found) == [{VALUE: MARKS[name]}] * 3
    assert found.size_bytes == bare.size_bytes + 3 * (len(VALUE) + len(MARKS[name]))


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_a_sink_writes_a_source_reads(name: str) -> None:
    """Keys, too: their ids are in a header of their own."""
    parts = RecordParts(key="id", key_format="avro", key_options=options_of(avro("long"), 8))
    found = listed(written(name, parts, frame_of()))
    assert found.keys is not None
    assert found.headers is not None
    options = FormatOptions(SCHEMAS[name] if name == "protobuf" else None, IdPlace.HEADER)
    keys = FormatOptions(ids=IdPlace.HEADER)
    source = operator_of(format=name, schema=COLUMNS, options=options, key_format="avro", key_options=keys)
    key = MetadataColumn("key", "k", BIGINT)
    source = msgspec.structs.replace(source, metadata=(key,), output=(*COLUMNS, ("k", BIGINT)))
    records = [
        message(row, value, record_key, list(headers or ()))
        for row, (value, record_key, headers) in enumerate(zip(found.values, found.keys, found.headers, strict=True))
    ]
    decoded = open_decoder(source, Known({7: SCHEMAS[name], 8: avro("long")})).decode(KafkaMessages(records))
    assert isinstance(decoded, Decoded)
    assert list(decoded.failures) == []
    assert decoded.frame.select("id", "name", "k").rows() == [(*row, row[0]) for row in ROWS]


def test_what_a_tombstone_and_a_record_without_key_do_not_have_no_header_names() -> None:
    parts = RecordParts(key="k", key_format="avro", key_options=options_of(avro("string"), 8), deleted="gone")
    found = written("avro", parts, frame_of(k=["x", None, "z"], gone=[True, False, False]))
    assert listed(found).values[0] is None
    assert headers_of(found) == [
        {KEY: b"\0\0\0\0\x08"},
        {VALUE: MARKS["avro"]},
        {VALUE: MARKS["avro"], KEY: b"\0\0\0\0\x08"},
    ]


def test_other_headers_stay_in_front_of_it() -> None:
    carried = headers_column([[("a", b"1"), ("a", None)], None, []]).alias(CARRIED_HEADERS)
    found = written("avro", RecordParts(headers=HeaderRules(passed=None)), frame_of().with_columns(carried))
    headers = listed(found).headers
    assert headers is not None
    mark = (VALUE, MARKS["avro"])
    assert [list(one or ()) for one in headers] == [[("a", b"1"), ("a", None), mark], [mark], [mark]]


def test_a_row_that_cannot_be_written_fails_as_ever() -> None:
    found = written("avro", RecordParts(), frame_of().with_columns(pl.Series("id", [1, None, 3])))
    assert [one.row for one in found.failures] == [1]
    assert len(headers_of(found)) == 2


@pytest.mark.parametrize("word", ["header", "prefix"])
def test_a_pipeline_with_ids_in_headers_is_tested_as_any_other(word: str) -> None:
    text = AVRO.replace("topic: copy, format: avro,", f"topic: copy, format: avro, schema_id: {word}, HEADERS")
    text = text.replace("HEADERS", "headers: {pass: all},").replace(
        "words: {topic: words,", "words: {topic: words, schema_id: header,"
    )
    given = "given: {words: [{key: '\"ann\"', value: {n: 5}, headers: [[b, x]]}]}"
    expected = "expect: {copy: [{key: '\"ann\"', value: {n: 5, k: ann}}]}"
    result = run_one(f"{given}, {expected}", text)
    assert result.passed, messages(result)
