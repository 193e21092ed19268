"""CPU time per record and format, in and out, beside a plain loop over fastavro: nine columns, batches of 1000.

    python bench/formats.py [--rows 1000] [--runs 9]

Prints the median of the runs in microseconds per record. `decode` is from the bytes of messages to a frame, `encode`
from a frame to the bytes, both as in a slot; fastavro's are to dicts and from dicts.
"""

from __future__ import annotations

import argparse
import datetime as dt
import io
import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import fastavro
import polars as pl

from tidegate.datatypes import BIGINT, BOOLEAN, DOUBLE, INT, STRING, TIMESTAMP
from tidegate.formats.contract import Decoded
from tidegate.formats.kinds.avro.columns import schema_text
from tidegate.formats.kinds.avro.decoder import AvroDecoder
from tidegate.formats.kinds.avro.schema import parse_schema
from tidegate.formats.kinds.json.reader import JsonDecoder
from tidegate.formats.records import RecordEncoder
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import FormatOptions, KnownSchemas, SchemaKind, SchemaText

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


def frame_of(decoded: object) -> pl.DataFrame:
    """Of messages that are all good."""
    assert isinstance(decoded, Decoded)
    assert not decoded.failures
    return decoded.frame


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
    json_out = RecordEncoder("json", COLUMNS)
    out_json = measure("json encode", rows, runs, lambda: json_out.encode(frame))
    avro_out = RecordEncoder("avro", COLUMNS, options=FormatOptions(text))
    out_avro = measure("avro encode", rows, runs, lambda: avro_out.encode(frame))
    own_out = RecordEncoder("avro", COLUMNS, options=FormatOptions(own))
    measure("avro encode, all may be null", rows, runs, lambda: own_out.encode(frame))
    out_loop = measure("fastavro loop out", rows, runs, loop_out)
    both = (in_avro + out_avro) / (in_json + out_json)
    loop = (in_loop + out_loop) / (in_avro + out_avro)
    print(f"avro in and out: {both:.2f} times json; the loop is {loop:.1f} times avro")


if __name__ == "__main__":
    main()
