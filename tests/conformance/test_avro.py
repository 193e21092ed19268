"""Files of other implementations of Avro: their records as messages of a topic, and back as they are in the files."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Final

import fastavro
import pytest

from tidegate.formats.contract import Decoded, FormatRefusal
from tidegate.formats.kinds.avro import FORMAT
from tidegate.formats.schemas import FormatOptions, KnownSchemas, SchemaKind, SchemaText

HERE: Final = Path(__file__).with_name("avro")
RECORDS: Final = {
    "a_triple_pair": 1, "double_float": 1, "error-type": 1, "java-generated-uuid": 151, "lines": 3, "m": 1,
    "part-00000": 17, "request": 1, "test": 2, "test-deflate-0": 400, "test-deflate-1": 400, "test-deflate-1-A": 400,
    "test-deflate-3-A": 400, "test-deflate-6-B": 200, "test-deflate-9": 400, "test-null": 400, "test-null-B": 200,
    "weather": 5, "weather-legacy-generated": 4, "weather-legacy-with-names": 3, "weather-sorted": 5,
}  # fmt: skip
"""The files of records, and of how many."""
REFUSED: Final = {
    "bool": "the type is boolean",
    "deflate": "the type is bytes",
    "null": "the type is bytes",
    "response": "the type is string",
    "testDataFileMeta": "the type is null",
    "no-fields": "the record has no fields",
    "recursive": "LongList contains itself",
}
SNAPPY: Final = ("test-snappy", "weather-snappy")
WEATHER: Final = [
    ("011990-99999", -619524000000, 0),
    ("011990-99999", -619506000000, 22),
    ("011990-99999", -619484400000, -11),
    ("012650-99999", -655531200000, 111),
    ("012650-99999", -655509600000, 78),
]


def read(name: str) -> bytes:
    return (HERE / f"{name}.avro").read_bytes()


def schema_in(data: bytes) -> SchemaText:
    """Of the file, in its head."""
    writer: Any = fastavro.reader(io.BytesIO(data)).metadata["avro.schema"]
    return SchemaText(SchemaKind.AVRO, writer, id=7)


def rows_in(data: bytes, options: FormatOptions) -> list[dict[str, Any]]:
    """Of a file."""
    schema = schema_in(data)
    return rows_of(values_in(data), options, KnownSchemas({schema.id: schema}))


def values_in(data: bytes) -> list[bytes]:
    """The records of a file as they are in its blocks, with the id of its schema in front."""
    stream = io.BytesIO(data)
    schema = fastavro.parse_schema(json.loads(schema_in(data).text))
    found: list[bytes] = []
    block: Any
    for block in fastavro.block_reader(stream):
        body = block.bytes_
        for _ in range(block.num_records):
            start = body.tell()
            fastavro.schemaless_reader(body, schema, None)
            found.append(b"\0\0\0\0\7" + body.getbuffer()[start : body.tell()].tobytes())
    return found


def rows_of(values: list[bytes], options: FormatOptions, known: KnownSchemas) -> list[dict[str, Any]]:
    assert options.schema is not None
    columns = tuple(FORMAT.schema_columns(options.schema).items())
    decoder: Any = FORMAT.decoder(columns, columns, options, known)
    found = decoder.decode_values(values)
    assert isinstance(found, Decoded)
    if found.failures:
        raise ValueError(found.failures[0].message)
    return found.frame.to_dicts()


def plain(value: Any) -> Any:
    """As the reference has it, with texts for ids."""
    match value:
        case dict():
            return {name: plain(one) for name, one in value.items()}
        case list():
            return [plain(one) for one in value]
        case None | bool() | int() | float() | str() | bytes():
            return value
    return str(value)


def test_the_files_are_all_here() -> None:
    assert {file.stem for file in HERE.glob("*.avro")} == {*RECORDS, *REFUSED, *SNAPPY}


@pytest.mark.parametrize("name", RECORDS)
def test_records_of_a_file_are_those_of_the_reference(name: str) -> None:
    data = read(name)
    found = rows_in(data, FormatOptions(schema_in(data)))
    assert len(found) == RECORDS[name]
    assert found == [plain(one) for one in fastavro.reader(io.BytesIO(data))]


def test_records_are_what_their_authors_have_written() -> None:
    """Not by the reference alone."""

    def tuples(name: str) -> list[tuple[Any, ...]]:
        data = read(name)
        return [tuple(row.values()) for row in rows_in(data, FormatOptions(schema_in(data)))]

    assert tuples("weather") == WEATHER
    assert tuples("weather-sorted") == WEATHER[3:] + WEATHER[:3]
    assert [row[:1] + row[2:3] for row in tuples("weather-legacy-generated")] == [(a, c) for a, _, c in WEATHER[:4]]
    assert tuples("double_float") == [(2.0, 1.0)]
    assert tuples("test") == [(10,), (20,)]
    assert tuples("request") == [("Hello World!",)]
    assert tuples("a_triple_pair") == [
        ({"subject": "John", "relation": "SYMMETRIC", "object": "Jane"},
         {"subject": "John", "relation": "DIRECTED", "object": "Fido"})
    ]  # fmt: skip
    assert tuples("test-deflate-1") == tuples("test-deflate-9") == tuples("test-deflate-0") == tuples("test-null")
    assert tuples("test-deflate-6-B") == tuples("test-null-B")


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_record_of_columns_is_refused(name: str) -> None:
    with pytest.raises(FormatRefusal, match=REFUSED[name]):
        FORMAT.schema_columns(schema_in(read(name)))


def test_the_interop_schema_is_read_without_what_no_column_holds() -> None:
    schema = json.loads((HERE / "interop.avsc").read_text())
    with pytest.raises(FormatRefusal, match="Node contains itself"):
        FORMAT.schema_columns(SchemaText(SchemaKind.AVRO, json.dumps(schema)))
    schema["fields"] = [one for one in schema["fields"] if one["name"] not in ("recordField", "nullField")]
    text = SchemaText(SchemaKind.AVRO, json.dumps(schema))
    record: dict[str, Any] = {
        "intField": -1, "longField": 2**40, "stringField": "ä", "boolField": True, "floatField": 0.5,
        "doubleField": -1e300, "bytesField": b"\0\xff", "arrayField": [1.0, 2.0], "mapField": {"a": {"label": "b"}},
        "unionField": [b"c"], "enumField": "C", "fixedField": bytes(range(16)),
    }  # fmt: skip
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    union = {"member0": None, "member1": None, "member2": [b"c"]}
    expected = {**record, "unionField": union, "mapField": [{"key": "a", "value": {"label": "b"}}]}
    known = KnownSchemas({1: text})
    assert rows_of([b"\0\0\0\0\1" + stream.getvalue()], FormatOptions(text), known) == [expected]
