"""CPU time per record and format, in and out, compared with loops over fastavro and protobuf: nine columns, batches of
1000.

    python bench/formats.py [--rows 1000] [--runs 9]

Prints the median of the runs in microseconds per record. `decode` is from the bytes of messages to a frame, `encode`
from a frame to the bytes, both as in a slot; `in place` is decoding by C of values that are no Python objects, which is
what a slot does where the library was compiled (ADR 67); fastavro's are to dicts and from dicts, protobuf's to
messages and from dicts.
"""

from __future__ import annotations

import argparse
import base64
import ctypes
import datetime as dt
import io
import json
import random
import statistics
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any, cast

import fastavro
import msgpack
import polars as pl
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tidegate.datatypes import BIGINT, BOOLEAN, DOUBLE, INT, STRING, TIMESTAMP
from tidegate.formats.contract import Decoded, Headers, Messages, ValueMemory
from tidegate.formats.kinds.avro.columns import schema_text
from tidegate.formats.kinds.avro.decoder import AvroDecoder
from tidegate.formats.kinds.avro.schema import parse_schema
from tidegate.formats.kinds.json.reader import JsonDecoder
from tidegate.formats.kinds.protobuf.columns import WORDS
from tidegate.formats.kinds.protobuf.decoder import ProtobufDecoder
from tidegate.formats.kinds.protobuf.schema import find_message
from tidegate.formats.part_values import flatten_headers
from tidegate.formats.record_parts import HeaderRules, RecordParts
from tidegate.formats.records import RecordEncoder
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import FormatOptions, KnownSchemas, SchemaKind, SchemaText
from tidegate.native.library import loaded

COLUMNS = (
    ("id", BIGINT),
    ("customer", STRING),
    ("amount", DOUBLE),
    ("quantity", INT),
    ("paid", BOOLEAN),
    ("at", TIMESTAMP),
    ("country", STRING),
    ("note", STRING),
    ("score", DOUBLE),
)
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
TYPES = [
    "long",
    "string",
    "double",
    "int",
    "boolean",
    MILLIS,
    ["null", "string"],
    ["null", "string"],
    ["null", "double"],
]
FIELDS = [{"name": name, "type": kind} for (name, _), kind in zip(COLUMNS, TYPES, strict=True)]
SCHEMA = {"type": "record", "name": "Order", "fields": FIELDS}
PREFIX = b"\0\0\0\0\x07"
TIMESTAMP_TYPE = "google.protobuf.Timestamp"
PROTO_TYPES = ("int64", "string", "double", "int32", "bool", TIMESTAMP_TYPE, "string", "string", "double")
PROTO_OPTIONAL = ("country", "note", "score")


def make_records(rows: int) -> list[dict[str, Any]]:
    """As a program would have them."""
    rnd = random.Random(1)
    begin = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    return [
        {
            "id": row,
            "customer": f"customer-{rnd.randrange(10_000)}",
            "amount": round(rnd.random() * 100, 2),
            "quantity": rnd.randrange(100),
            "paid": rnd.random() < 0.5,
            "at": begin + dt.timedelta(milliseconds=row),
            "country": rnd.choice([None, "DE", "FR"]),
            "note": rnd.choice([None, "leave at the door"]),
            "score": rnd.random(),
        }
        for row in range(rows)
    ]


def make_proto() -> SchemaText:
    """The columns as a message of proto3."""
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    order = file.message_type.add(name="Order")
    for number, ((name, _), word) in enumerate(zip(COLUMNS, PROTO_TYPES, strict=True), 1):
        field = order.field.add(name=name, number=number, label=1)
        field.type = WORDS.index("message" if "." in word else word)
        if "." in word:
            field.type_name = f".{word}"
        if name in PROTO_OPTIONAL:
            field.proto3_optional, field.oneof_index = True, len(order.oneof_decl)
            order.oneof_decl.add(name=f"_{name}")
    return SchemaText(SchemaKind.PROTOBUF, base64.b64encode(file.SerializeToString()).decode(), id=7)


def measure_proto(records: list[dict[str, Any]], frame: pl.DataFrame, runs: int) -> float:
    """Microseconds in and out."""
    text, rows = make_proto(), len(records)
    made = find_message(text).made
    plain = [
        {name: value for name, value in one.items() if value is not None and name != "at"}
        | {"at": {"seconds": int(one["at"].timestamp()), "nanos": one["at"].microsecond * 1000}}
        for one in records
    ]

    def loop_out() -> list[bytes]:
        return [PREFIX + b"\0" + made(**one).SerializeToString() for one in plain]

    messages = loop_out()
    decoder = ProtobufDecoder(COLUMNS, COLUMNS, FormatOptions(text), KnownSchemas({7: text}))
    encoder = RecordEncoder("protobuf", COLUMNS, options=FormatOptions(text))
    assert frame.equals(frame_of(decoder.decode_values(messages)))
    assert list(encoder.encode(frame).values) == messages
    damaged = [one[:-1] if row % 100 == 50 else one for row, one in enumerate(messages)]
    found = measure("protobuf decode", rows, runs, lambda: decoder.decode_values(messages))
    measure("protobuf decode, 1 % damaged", rows, runs, lambda: decoder.decode_values(damaged))
    measure("protobuf loop in", rows, runs, lambda: [made.FromString(one[6:]) for one in messages])
    found += measure("protobuf encode", rows, runs, lambda: encoder.encode(frame))
    measure("protobuf loop out", rows, runs, loop_out)
    return found


def measure(name: str, rows: int, runs: int, call: Callable[[], object]) -> float:
    """Microseconds of CPU per record, printed and given."""
    rounds = max(1, 20_000 // rows)
    call()
    found = []
    for _ in range(runs):
        begin = time.process_time()
        for _ in range(rounds):
            call()
        found.append((time.process_time() - begin) / rounds / rows * 1e6)
    median = statistics.median(found)
    print(f"{name:32} {median:7.3f}   ({min(found):.3f} to {max(found):.3f})")
    return median


class InPlace:
    """Messages whose values lie in memory, as librdkafka's do."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self.values = values
        self._blocks = [ctypes.create_string_buffer(one, len(one)) for one in values]
        self._addresses = array("Q", map(ctypes.addressof, self._blocks))
        self._lengths = array("i", map(len, values))
        self.memory = ValueMemory(self._addresses.buffer_info()[0], self._lengths.buffer_info()[0], len(values))


def measure_msgpack(frame: pl.DataFrame, read_json: JsonDecoder, texts: list[bytes], runs: int) -> None:
    """In place where the library is there, and out, compared with JSON in the same run."""
    rows = len(texts)
    encoder, json_out = RecordEncoder("msgpack", COLUMNS), RecordEncoder("json", COLUMNS)
    values = [value or b"" for value in encoder.encode(frame).values]
    assert [msgpack.unpackb(value)["id"] for value in values] == frame["id"].to_list()
    decoder = FORMATS["msgpack"].decoder(COLUMNS, COLUMNS, FormatOptions(), KnownSchemas())
    there, text = (cast("Messages", InPlace(found)) for found in (values, texts))
    assert frame.equals(frame_of(decoder.decode(there)))
    own = measure("msgpack in place", rows, runs, lambda: decoder.decode(there))
    own += measure("msgpack encode", rows, runs, lambda: encoder.encode(frame))
    other = measure("json in place, again", rows, runs, lambda: read_json.decode(text))
    other += measure("json encode, again", rows, runs, lambda: json_out.encode(frame))
    print(f"msgpack in and out: {own / other:.2f} times json")


class Events(InPlace):
    """Messages with headers, as columns."""

    def __init__(self, values: Sequence[bytes], headers: Sequence[Headers]) -> None:
        super().__init__(values)
        self.flat_headers = flatten_headers(headers)

    def __len__(self) -> int:
        return len(self.values)


def measure_events(frame: pl.DataFrame, mode: str, runs: int) -> None:
    """Events with all columns as data and three attributes, compared with JSON with as many columns and headers."""
    rows = frame.height
    extra = (("ce_id", STRING), ("ce_time", TIMESTAMP), ("ce_subject", STRING))
    columns = (*COLUMNS, *extra)
    whole = frame.with_columns(
        ce_id=pl.col("id").cast(pl.String), ce_time=pl.col("at"), ce_subject=pl.lit("/orders/customer")
    )
    options = FormatOptions(settings={"mode": mode, "attributes": {"type": "com.acme.order", "source": "/orders"}})
    encoder = RecordEncoder("cloudevents", columns, options=options)
    count = 8 if mode == "binary" else 1
    added = HeaderRules(added=tuple((f"ce_name_{place}", "ce_id") for place in range(count)))
    json_out = RecordEncoder("json", columns, RecordParts(headers=added))
    written = encoder.encode(whole)
    declared = FORMATS["cloudevents"].read_columns(dict(COLUMNS))
    decoder = FORMATS["cloudevents"].decoder(tuple(declared.items()), columns, FormatOptions(), KnownSchemas())
    values = [value or b"" for value in written.values]
    messages = cast("Messages", Events(values, [one or () for one in written.header_pairs(0, whole.height) or ()]))
    texts = cast("Messages", InPlace([value or b"" for value in json_out.encode(whole).values]))
    read_json = JsonDecoder(columns)
    assert whole.equals(frame_of(decoder.decode(messages)))
    assert whole.equals(frame_of(read_json.decode(texts)))
    own = measure(f"cloudevents {mode} in", rows, runs, lambda: decoder.decode(messages))
    own += measure(f"cloudevents {mode} out", rows, runs, lambda: encoder.encode(whole))
    other = measure("json in, as many columns", rows, runs, lambda: read_json.decode(texts))
    other += measure(f"json out, with {count} headers", rows, runs, lambda: json_out.encode(whole))
    print(f"cloudevents {mode} in and out: {own / other:.2f} times json")


def frame_of(decoded: object) -> pl.DataFrame:
    """Of messages that are all good."""
    assert isinstance(decoded, Decoded)
    assert not decoded.failures
    return decoded.frame


def measure_texts(frame: pl.DataFrame, runs: int) -> tuple[float, float]:
    """Lines in and out, and lines taken apart by a pattern; microseconds of delimited lines, decoded as objects and in
    place.
    """
    rows, options = frame.height, FormatOptions(settings={"separator": "|"})
    encoder = RecordEncoder("delimited", COLUMNS, options=options)
    decoder = FORMATS["delimited"].decoder(COLUMNS, COLUMNS, options, KnownSchemas())
    lines = [value or b"" for value in encoder.encode(frame).values]
    assert frame.equals(frame_of(decoder.decode(cast("Messages", Objects(lines)))))
    found = measure("delimited decode", rows, runs, lambda: decoder.decode(cast("Messages", Objects(lines))))
    in_place = found
    if loaded() is not None:
        there = cast("Messages", InPlace(lines))
        assert frame.equals(frame_of(decoder.decode(there)))
        in_place = measure("delimited in place", rows, runs, lambda: decoder.decode(there))
    out = measure("delimited encode", rows, runs, lambda: encoder.encode(frame))
    quoting = RecordEncoder("delimited", COLUMNS, options=FormatOptions(settings={"quote_all": True}))
    measure("delimited encode, all quoted", rows, runs, lambda: quoting.encode(frame))
    pattern = r"\|".join(f"(?<{name}>[^|]*)" for name, _ in COLUMNS)
    options = FormatOptions(settings={"pattern": pattern, "null_value": ""})
    text = FORMATS["text"].decoder(COLUMNS, COLUMNS, options, KnownSchemas())
    assert frame.equals(frame_of(text.decode(cast("Messages", Objects(lines)))))
    measure("text decode, by a pattern", rows, runs, lambda: text.decode(cast("Messages", Objects(lines))))
    return found + out, in_place + out


class Objects:
    """Messages whose values are objects."""

    memory = None

    def __init__(self, values: Sequence[bytes]) -> None:
        self.values = values


def measure_in_place(read_json: JsonDecoder, avro: AvroDecoder, batches: Sequence[list[bytes]], runs: int) -> float:
    """What C decodes, of texts, messages in Avro, and some that are damaged; the others become objects."""
    rows = len(batches[0])
    there, written, few = (cast("Messages", InPlace(values)) for values in batches)
    expected = frame_of(avro.decode(written))
    assert expected.equals(frame_of(avro.decode(written)))
    assert expected.equals(frame_of(read_json.decode(there)))
    in_json = measure("json in place", rows, runs, lambda: read_json.decode(there))
    in_avro = measure("avro in place", rows, runs, lambda: avro.decode(written))
    measure("avro in place, 1 % damaged", rows, runs, lambda: avro.decode(few))
    print(f"avro in place: {in_avro / in_json:.2f} times json in place")
    return in_json


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=9)
    arguments = parser.parse_args()
    rows, runs = arguments.rows, arguments.runs
    records = make_records(rows)
    parsed = fastavro.parse_schema(SCHEMA)

    def loop_out() -> list[bytes]:
        made = []
        for record in records:
            stream = io.BytesIO()
            fastavro.schemaless_writer(stream, parsed, record)
            made.append(PREFIX + stream.getvalue())
        return made

    messages = loop_out()
    texts = [json.dumps({**one, "at": one["at"].isoformat()}, separators=(",", ":")).encode() for one in records]
    text = SchemaText(SchemaKind.AVRO, json.dumps(SCHEMA), id=7)
    derived = FORMATS["avro"].derive_schema(dict(COLUMNS), "orders")
    own = SchemaText(SchemaKind.AVRO, schema_text(parse_schema(derived)), id=7)
    avro = AvroDecoder(COLUMNS, COLUMNS, FormatOptions(text), KnownSchemas({7: text}))
    by_columns = AvroDecoder(COLUMNS, COLUMNS, FormatOptions(), KnownSchemas({7: text}))
    read_json = JsonDecoder(COLUMNS)
    frame = frame_of(avro.decode_values(messages))
    assert frame.equals(frame_of(read_json.decode_values(texts)))

    def loop_in() -> list[Any]:
        return [fastavro.schemaless_reader(io.BytesIO(one[5:]), parsed, None) for one in messages]

    damaged = [one[:-1] if row % 100 == 50 else one for row, one in enumerate(messages)]
    one_damaged = [one[:-1] if row == rows // 2 else one for row, one in enumerate(messages)]
    in_json = measure("json decode", rows, runs, lambda: read_json.decode_values(texts))
    in_avro = measure("avro decode", rows, runs, lambda: avro.decode_values(messages))
    measure("avro decode, columns declared", rows, runs, lambda: by_columns.decode_values(messages))
    measure("avro decode, 1 % damaged", rows, runs, lambda: avro.decode_values(damaged))
    measure("avro decode, 1 damaged", rows, runs, lambda: avro.decode_values(one_damaged))
    in_loop = measure("fastavro loop in", rows, runs, loop_in)
    there = in_json
    if loaded() is not None:
        there = measure_in_place(read_json, avro, (texts, messages, damaged), runs)
        measure_msgpack(frame, read_json, texts, runs)
        for mode in ("binary", "structured"):
            measure_events(frame, mode, runs)
    json_out = RecordEncoder("json", COLUMNS)
    out_json = measure("json encode", rows, runs, lambda: json_out.encode(frame))
    avro_out = RecordEncoder("avro", COLUMNS, options=FormatOptions(text))
    out_avro = measure("avro encode", rows, runs, lambda: avro_out.encode(frame))
    own_out = RecordEncoder("avro", COLUMNS, options=FormatOptions(own))
    measure("avro encode, all may be null", rows, runs, lambda: own_out.encode(frame))
    out_loop = measure("fastavro loop out", rows, runs, loop_out)
    both = (in_avro + out_avro) / (in_json + out_json)
    proto = measure_proto(records, frame, runs) / (in_json + out_json)
    delimited, lines = measure_texts(frame, runs)
    loop = (in_loop + out_loop) / (in_avro + out_avro)
    print(f"avro in and out: {both:.2f} times json; the loop is {loop:.1f} times avro")
    print(f"protobuf in and out: {proto:.2f} times json")
    print(f"delimited in and out: {delimited / (in_json + out_json):.2f} times json")
    print(f"delimited in place and out: {lines / (there + out_json):.2f} times json")


if __name__ == "__main__":
    main()
