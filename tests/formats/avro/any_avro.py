"""Schemas and records of Avro drawn at random, and what fastavro makes of bytes: the reference of the decoder."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from typing import Any
from uuid import UUID

import fastavro
from hypothesis import strategies as st

from tidegate.formats.kinds.avro import FORMAT
from tidegate.formats.kinds.avro.decoder import AvroDecoder
from tidegate.formats.kinds.avro.schema import AvroType, as_json, parse_schema
from tidegate.formats.schemas import FormatOptions, KnownSchemas, SchemaKind, SchemaText

PREFIX = b"\0\0\0\0\x07"
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def record_of(*fields: tuple[Any, ...], name: str = "R", **more: Any) -> dict[str, Any]:
    """The JSON of a record; a field is a name and a type, or those and a default."""
    made = [{"name": one[0], "type": one[1], **({"default": one[2]} if len(one) > 2 else {})} for one in fields]
    return {"type": "record", "name": name, "fields": made, **more}


def text_of(schema: Any, schema_id: int = 7) -> SchemaText:
    return SchemaText(SchemaKind.AVRO, json.dumps(schema), id=schema_id)


def decoder_of(writer: Any, reader: Any = None, declared: Sequence[tuple[str, Any]] | None = None) -> AvroDecoder:
    """Of records with the id 7, Without a reader and columns: of all columns."""
    known = KnownSchemas({7: text_of(writer)})
    if declared is not None:
        return AvroDecoder(declared, declared, FormatOptions(), known)
    read = text_of(writer if reader is None else reader)
    columns = tuple(FORMAT.schema_columns(read).items())
    return AvroDecoder(columns, columns, FormatOptions(read), known)


@cache
def _parsed(text: str) -> tuple[AvroType, Any]:
    schema = json.loads(text)
    return parse_schema(text_of(schema)), fastavro.parse_schema(schema)


def encode(schema: Any, record: Any) -> bytes:
    """A message with the id 7."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, _parsed(json.dumps(schema))[1], record)
    return PREFIX + stream.getvalue()


_NO_VALUES: list[tuple[Any, Any, Any]] = [
    *(("string", None, "x"), ("boolean", "false", True), ("int", "0", 5), (["null", "int"], "null", 5)),
    *(("long", 0.0, 5), ({"type": "double"}, 5, 1.5), ({"type": "array", "items": "int"}, {}, [5])),
    *((record_of(("x", "int"), name="X"), None, {"x": 5}), (["null", "int", "string"], 1.5, "x")),
]
"""Types, defaults that are none of their values (or that fastavro takes for none), and values."""


def oddly_defaulted() -> list[tuple[dict[str, Any], bytes]]:
    """Schemas with such a default, and a record each: `id` is 1, and `inner` has 2 as `b`."""
    made = []
    for kind, default, value in _NO_VALUES:
        inner = ("inner", record_of(("b", "long", "none"), name="Inner"))
        bare = record_of(("id", "long"), ("a", kind), ("inner", record_of(("b", "long"), name="Inner")))
        message = encode(bare, {"id": 1, "a": value, "inner": {"b": 2}})
        made.append((record_of(("id", "long"), ("a", kind, default), inner), message))
    return made


_PLAIN: list[Any] = ["boolean", "int", "long", "float", "double", "string", "bytes"]
_LOGICAL: list[Any] = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
    {"type": "string", "logicalType": "uuid"},
]


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """A record whose fields are of any type but a union of several."""
    count = iter(range(10_000))

    def any_type(depth: int) -> Any:
        choice = draw(st.integers(0, 7 if depth else 4))
        if choice <= 1:
            return draw(st.sampled_from(_PLAIN))
        if choice == 2:
            return draw(st.sampled_from(_LOGICAL))
        if choice == 3:
            inner = any_type(0)
            inner = "string" if isinstance(inner, list) else inner
            return draw(st.sampled_from([["null", inner], [inner, "null"]]))
        if choice == 4:
            name = f"T{next(count)}"
            fixed = {"type": "fixed", "name": name, "size": draw(st.integers(1, 70))}
            return draw(st.sampled_from([{"type": "enum", "name": name, "symbols": ["A", "B", "C"]}, fixed]))
        if choice == 5:
            return {"type": "array", "items": any_type(depth - 1)}
        if choice == 6:
            return {"type": "map", "values": any_type(depth - 1)}
        made = any_record(depth - 1, draw(st.integers(1, 3)))
        return draw(st.sampled_from([made, ["null", made]]))

    def any_record(depth: int, size: int) -> dict[str, Any]:
        name = f"T{next(count)}"
        return record_of(*[(f"f{place}", any_type(depth)) for place in range(size)], name=name)

    return any_record(2, draw(st.integers(1, 6)))


def values(one: AvroType) -> st.SearchStrategy[Any]:
    """Of a type, as they are on the wire: without logical types. Some are more than the logical type holds."""
    if one.kind == "union":
        return st.one_of([values(branch) for branch in one.branches])
    if one.kind == "record":
        return st.fixed_dictionaries({field.name: values(field.type) for field in one.fields})
    if one.kind == "array" and one.items is not None:
        return st.lists(values(one.items), max_size=4)
    if one.kind == "map" and one.items is not None:
        return st.dictionaries(st.text(max_size=3), values(one.items), max_size=3)
    if one.logical == "decimal":
        return st.integers(1 - 10**one.precision, 10**one.precision - 1).map(
            lambda value: value.to_bytes((value.bit_length() + 8) >> 3, "big", signed=True)
        )
    if one.logical == "uuid":
        return st.one_of(st.uuids().map(str), st.just("no uuid"), st.uuids().map(lambda value: value.hex))
    if one.logical == "date":
        return st.one_of(st.integers(-719_162, 2_932_896), st.sampled_from([-719_163, 2_932_897, 2**31 - 1]))
    if one.logical.startswith("time-"):
        most = 86_400_000 * (1000 if one.kind == "long" else 1)
        return st.one_of(st.integers(0, most - 1), st.just(most))
    if "timestamp" in one.logical:
        unit = {"s": 10**3, "s ": 1}.get(one.logical[-1:] if "millis" in one.logical else "", 1)
        return st.one_of(st.integers(-(10**15) // unit, 10**15 // unit), st.sampled_from([2**62, -(2**62), 0]))
    return _PLAIN_VALUES[one.kind] if one.kind != "fixed" else st.binary(min_size=one.size, max_size=one.size)


_PLAIN_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-70, 70)),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=6),
    "bytes": st.binary(max_size=70),
    "enum": st.sampled_from("ABC"),
}


@st.composite
def batches(draw: st.DrawFn, size_max: int = 30) -> tuple[dict[str, Any], list[bytes]]:
    """A schema, and messages with the id 7."""
    schema = draw(schemas())
    record = parse_schema(text_of(schema))
    raw = as_json(parse_schema(text_of(schema), lambda made, _: made))
    found = draw(st.lists(values(record), min_size=1, max_size=size_max))
    return schema, [encode(raw, one) for one in found]


_PROMOTED = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"], "string": ["bytes"]}
_ADDED: list[tuple[Any, Any]] = [
    ("int", 7),
    (["null", "string"], None),
    ("string", "é"),
    ("boolean", True),
    ({"type": "array", "items": "int"}, [1, 2]),
    ({"type": "map", "values": "string"}, {"k": "v"}),
    (record_of(("x", "int"), ("y", ["null", "int"]), name="Added"), {"x": 1, "y": None}),
]


def changed(draw: st.DrawFn, one: Any) -> Any:
    """A type that a reader may have for a writer's."""
    if isinstance(one, list):
        place = 1 if one[0] == "null" else 0
        made = [changed(draw, each) if index == place else each for index, each in enumerate(one)]
        return draw(st.sampled_from([made, made[::-1], made[place]])) if not isinstance(made[place], list) else one
    if isinstance(one, str):
        made = draw(st.sampled_from([one, *_PROMOTED.get(one, ())]))
        return draw(st.sampled_from([made, made, ["null", made]]))
    if one["type"] == "array":
        return {**one, "items": changed(draw, one["items"])}
    if one["type"] == "map":
        return {**one, "values": changed(draw, one["values"])}
    if one["type"] == "enum":
        return {**one, "symbols": ["C", "A"], **draw(st.sampled_from([{}, {"default": "C"}]))}
    if one["type"] == "record":
        kept = [field for field in one["fields"] if draw(st.integers(0, 3))] or one["fields"][:1]
        fields = [{**field, "type": changed(draw, field["type"])} for field in kept]
        return {**one, "fields": draw(st.permutations(fields))}
    return one


@st.composite
def evolutions(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], list[bytes]]:
    """A writer's schema, a reader's, and messages with the id 7."""
    schema, messages = draw(batches(12))
    reader = changed(draw, schema)
    if draw(st.booleans()):
        kind, default = draw(st.sampled_from(_ADDED))
        reader["fields"].append({"name": "added", "type": kind, "default": default})
    return schema, reader, messages


class Refused(Exception):
    """By the reference, or by a rule that is stricter."""


def reference(schema: Any, message: bytes, reader: Any = None) -> list[Any]:
    """What fastavro reads, with logical types, as Polars would have it. Raises Refused."""
    record, parsed = _parsed(json.dumps(schema))
    record, read_as = (record, None) if reader is None else _parsed(json.dumps(reader))
    stream = io.BytesIO(message)
    if stream.read(5) != PREFIX:
        raise Refused("prefix")
    try:
        read: Any = fastavro.schemaless_reader(stream, parsed, read_as)
    except Exception as error:
        raise Refused(repr(error)) from error
    if stream.read(1):
        raise Refused("more bytes")
    return [plain(read[field.name], field.type) for field in record.fields]


def plain(value: Any, one: AvroType) -> Any:
    """A value of fastavro's as one of Polars'. Raises Refused for what it accepts and no column holds."""
    if value is None:
        return None
    one = one.bare
    if one.kind == "record":
        return {field.name: plain(value[field.name], field.type) for field in one.fields}
    if one.kind == "array" and one.items is not None:
        return [plain(item, one.items) for item in value]
    if one.kind == "map" and one.items is not None:
        return [{"key": key, "value": plain(item, one.items)} for key, item in value.items()]
    if isinstance(value, Decimal):
        if one.kind == "bytes" and len(value.as_tuple().digits) > one.precision:
            raise Refused("digits")
        return value
    if isinstance(value, dt.time):
        micros = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        return micros // (1000 if one.logical == "time-millis" else 1)
    if isinstance(value, UUID):
        return str(value)
    if one.logical.endswith("-nanos"):
        moment = EPOCH + dt.timedelta(microseconds=value // 1000)
        return moment.replace(tzinfo=None) if one.logical.startswith("local") else moment
    if one.kind == "float":
        return struct.unpack("<f", struct.pack("<f", value))[0]
    if one.kind == "int" and isinstance(value, int) and not -(2**31) <= value < 2**31:
        raise Refused("no int")
    return value
