"""Tables, and events about them, drawn at random, in both encodings: as Connect's converters for JSON and Avro write
one schema and one value. So the format `debezium` says what `debezium-avro` has to make of an event.
"""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import fastavro

from tidegate.formats.kinds.debezium.envelope import UNAVAILABLE
from tidegate.formats.schemas import SchemaKind, SchemaText

CONNECT: Final = "org.apache.kafka.connect.data."
TIME: Final = "io.debezium.time."
VARIABLE: Final = "io.debezium.data.VariableScaleDecimal"
ENUM: Final = "io.debezium.data.Enum"
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - without zone
_AVRO: Final = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "bytes": "bytes",
}
_LOGICAL: Final = {f"{CONNECT}Timestamp": "timestamp-millis", f"{CONNECT}Date": "date", f"{CONNECT}Time": "time-millis"}


class Kind(NamedTuple):
    """A type of Connect's."""

    type: str
    name: str = ""
    parameters: Mapping[str, str] = {}
    items: Kind | None = None
    """Of an array, and of a map whose keys are strings."""
    fields: Sequence[tuple[str, Kind]] = ()


def in_json(kind: Kind) -> dict[str, Any]:
    """As `JsonConverter` writes a schema."""
    made: dict[str, Any] = {"type": kind.type, "optional": True}
    made |= {"name": kind.name, "version": 1} if kind.name else {}
    made |= {"parameters": dict(kind.parameters)} if kind.parameters else {}
    if kind.type == "array" and kind.items is not None:
        made["items"] = in_json(kind.items)
    if kind.type == "map" and kind.items is not None:
        made |= {"keys": {"type": "string", "optional": False}, "values": in_json(kind.items)}
    if kind.fields:
        made["fields"] = [{**in_json(one), "field": name} for name, one in kind.fields]
    return made


def in_avro(kind: Kind, known: set[str] | None = None) -> Any:
    """As the converters for Avro write it: everything may be null."""
    return ["null", _in_avro(kind, set() if known is None else known)]


def _in_avro(kind: Kind, known: set[str]) -> Any:
    named = {"connect.version": 1, "connect.name": kind.name} if kind.name else {}
    named |= {"connect.parameters": dict(kind.parameters)} if kind.parameters else {}
    if kind.type == "array" and kind.items is not None:
        return {"type": "array", "items": in_avro(kind.items, known), **named}
    if kind.type == "map" and kind.items is not None:
        return {"type": "map", "values": in_avro(kind.items, known), **named}
    if kind.fields:
        if kind.name in known:
            return kind.name
        known.add(kind.name)
        space, _, name = kind.name.rpartition(".")
        fields = [{"name": field, "type": in_avro(one, known), "default": None} for field, one in kind.fields]
        return {"type": "record", "name": name, "namespace": space, "fields": fields, "connect.name": kind.name}
    if kind.name == f"{CONNECT}Decimal":
        named |= {"logicalType": "decimal", "scale": int(kind.parameters["scale"])}
        named["precision"] = int(kind.parameters.get("connect.decimal.precision", "64"))
    elif kind.name in _LOGICAL:
        named["logicalType"] = _LOGICAL[kind.name]
    elif kind.type in ("int8", "int16"):
        named["connect.type"] = kind.type
    return {"type": _AVRO[kind.type], **named} if named else _AVRO[kind.type]


def value_in_json(kind: Kind, value: Any) -> Any:
    """As `JsonConverter` writes a value."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}[str(value)]
    if isinstance(value, list):
        return [value_in_json(kind.items or kind, one) for one in value]
    if kind.type == "map":
        return {key: value_in_json(kind.items or kind, one) for key, one in value.items()}
    if kind.fields:
        return {name: value_in_json(one, value[name]) for name, one in kind.fields}
    return value


# -- columns -----------------------------------------------------------------------------------------------------------

Draw = Callable[[random.Random], Any]


class Way(NamedTuple):
    """How a column may be written, what a source may declare it as, and its values; some of them are none of those."""

    kind: Kind
    declared: Sequence[str]
    value: Draw


def unscaled(number: int) -> bytes:
    """As Java's `BigInteger.toByteArray`."""
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def _number(digits: int) -> Callable[[random.Random], int]:
    return lambda draw: draw.choice([0, 1, -1]) * draw.randrange(10 ** draw.randrange(1, digits + 1))


def _text(draw: random.Random) -> str:
    return draw.choice(["", "a", "é€😀", "x" * 70, "null", f"see {UNAVAILABLE}", "12.5", 'q"\\'])


def _seldom(value: Draw, others: Sequence[Any], share: float = 0.03) -> Draw:
    return lambda draw: draw.choice(others) if draw.random() < share else value(draw)


def _moment(draw: random.Random) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=draw.choice([draw.randrange(-(10**16), 10**17), draw.randrange(10**15)]))


def _zoned(draw: random.Random) -> str:
    form = draw.choice(["{}Z", "{}Z", "{}+02:00", "{}-11:30"])
    return form.format(_moment(draw).isoformat(timespec=draw.choice(["auto", "milliseconds", "microseconds"])))


_NOT_A_TIME: Final = ("infinity", "", "2024-13-01T00:00:00Z", "10000-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00")


def _decimal(scale: int, precision: int | None = None) -> Kind:
    said = {} if precision is None else {"connect.decimal.precision": str(precision)}
    return Kind("bytes", f"{CONNECT}Decimal", {"scale": str(scale), **said})


def _since(name: str, per_second: int) -> Way:
    seconds = 62_135_596_800 + 200_000_000_000

    def value(draw: random.Random) -> int:
        span = min(2**63 - 1, 250_000_000_000 * per_second)
        return draw.choice(
            [draw.randrange(10**9) * per_second, draw.randrange(max(-seconds * per_second, -(2**63)), span)]
        )

    return Way(Kind("int64", name), ("timestamp_ntz", "timestamp_ntz", "timestamp", "bigint"), value)


def _variable(draw: random.Random) -> Any:
    return {"scale": draw.choice([0, 2, 2, 5, 6, -2]), "value": unscaled(_number(14)(draw))}


POINT: Final = Kind(
    "struct", "io.debezium.data.geometry.Point", {}, None, (("x", Kind("double")), ("y", Kind("double")))
)
OWN_NUMBER: Final = Kind("struct", VARIABLE, {}, None, (("scale", Kind("int32")), ("value", Kind("bytes"))))
WAYS: Final[Sequence[Way]] = (
    Way(Kind("boolean"), ("boolean",), lambda draw: draw.random() < 0.5),
    Way(Kind("int8"), ("tinyint", "smallint", "int"), lambda draw: draw.randrange(-128, 128)),
    Way(Kind("int16"), ("smallint", "int", "bigint", "double"), lambda draw: draw.randrange(-(2**15), 2**15)),
    Way(Kind("int32"), ("int", "bigint", "smallint", "decimal(12,2)"), lambda draw: draw.randrange(-(2**17), 2**17)),
    Way(Kind("int64"), ("bigint", "double", "decimal(20,0)"), lambda draw: draw.randrange(-(2**63), 2**63)),
    Way(Kind("float"), ("float",), _seldom(lambda draw: draw.randrange(1000) / 8, [float("inf"), float("nan")])),
    Way(Kind("double"), ("double",), _seldom(lambda draw: draw.gauss(0, 1e6), [float("-inf"), float("nan")])),
    Way(Kind("double"), ("decimal(12,2)",), lambda draw: draw.choice([draw.randrange(10**6) / 100, 0.125, 1e10, 12.0])),
    Way(Kind("string"), ("string",), _seldom(_text, [UNAVAILABLE])),
    Way(Kind("string", ENUM, {"allowed": "a,b"}), ("string",), lambda draw: draw.choice("ab")),
    Way(Kind("bytes"), ("binary",), _seldom(lambda draw: draw.randbytes(draw.randrange(20)), [UNAVAILABLE.encode()])),
    Way(_decimal(2, 12), ("decimal(12,2)", "decimal(14,3)", "decimal(12,1)"), lambda draw: unscaled(_number(13)(draw))),
    Way(_decimal(3), ("decimal(38,3)", "decimal(12,3)", "decimal(20,2)"), lambda draw: unscaled(_number(17)(draw))),
    Way(_decimal(0), ("decimal(38,0)", "decimal(38,5)"), lambda draw: unscaled(_number(41)(draw))),
    Way(_decimal(40), ("decimal(38,38)", "decimal(10,2)"), lambda draw: unscaled(100 * _number(20)(draw))),
    Way(OWN_NUMBER, ("decimal(20,5)", "decimal(12,2)"), _variable),
    Way(
        Kind("string"),
        ("decimal(12,2)", "decimal(20,5)", "decimal(2,2)"),
        _seldom(lambda draw: str(_number(9)(draw) / 100), ["NaN", "1e3", "0.125", "", "-.5", UNAVAILABLE]),
    ),
    Way(Kind("int32", f"{TIME}Date"), ("date",), _seldom(lambda draw: draw.randrange(30_000), [2_932_896, 2_932_897])),
    Way(Kind("int32", f"{CONNECT}Date"), ("date",), _seldom(lambda draw: -draw.randrange(800_000), [-719_162])),
    Way(
        Kind("string", f"{TIME}IsoDate"),
        ("date", "string"),
        _seldom(lambda draw: f"{_moment(draw).date()}{draw.choice(['', 'Z'])}", ["2024-02-30", "x"]),
    ),
    _since(f"{TIME}Timestamp", 1000),
    _since(f"{TIME}MicroTimestamp", 10**6),
    _since(f"{TIME}NanoTimestamp", 10**9),
    _since(f"{CONNECT}Timestamp", 1000),
    Way(Kind("string", f"{TIME}ZonedTimestamp"), ("timestamp", "timestamp", "string"), _seldom(_zoned, _NOT_A_TIME)),
    Way(
        Kind("string", f"{TIME}IsoTimestamp"),
        ("timestamp_ntz",),
        _seldom(lambda draw: f"{_moment(draw).isoformat()}{draw.choice(['', 'Z'])}", _NOT_A_TIME),
    ),
    Way(Kind("int32", f"{TIME}Time"), ("int", "bigint"), lambda draw: draw.randrange(86_400_000)),
    Way(Kind("int32", f"{CONNECT}Time"), ("int",), lambda draw: draw.randrange(86_400_000)),
    Way(Kind("int64", f"{TIME}MicroTime"), ("bigint",), lambda draw: draw.randrange(86_400_000_000)),
    Way(POINT, ("struct<x: double, y: double>", "struct<y: double>", "struct<z: int, x: double>"),
        lambda draw: {"x": draw.choice([None, 1.5]), "y": draw.random()}),
)  # fmt: skip


def draw_way(draw: random.Random, depth: int = 0) -> Way:
    """Of one column: a simple one, or one of arrays and maps."""
    way = draw.choice(WAYS)
    if depth == 2 or draw.random() < 0.7:
        return way
    inner = draw_way(draw, depth + 1)
    if draw.random() < 0.5 or not _says_all(inner.kind):
        return Way(
            Kind("array", "", {}, inner.kind),
            [f"array<{one}>" for one in inner.declared],
            lambda draw: [_nullable(inner, draw) for _ in range(draw.randrange(4))],
        )
    return Way(
        Kind("map", "", {}, inner.kind),
        [f"map<string, {one}>" for one in inner.declared],
        lambda draw: {key: _nullable(inner, draw) for key in draw.sample(["a", "b", "", "é"], draw.randrange(4))},
    )


def _says_all(kind: Kind) -> bool:
    """What needs its schema to be read is not found by `debezium` inside of maps; Debezium's maps hold texts."""
    return not kind.name and (kind.items is None or _says_all(kind.items))


def _nullable(way: Way, draw: random.Random) -> Any:
    return None if draw.random() < 0.15 else way.value(draw)


class Table(NamedTuple):
    """Of one version of a topic's schema."""

    columns: Mapping[str, Way]
    id: int

    def envelope(self) -> dict[str, Any]:
        """Its schema in Avro."""
        known: set[str] = set()
        fields = [
            {"name": name, "type": in_avro(way.kind, known), "default": None} for name, way in self.columns.items()
        ]
        value = {"type": "record", "name": "Value", "fields": fields}
        source = {"type": "record", "name": "Source", "fields": [{"name": "db", "type": "string"}]}
        return {
            "type": "record",
            "name": "Envelope",
            "namespace": "shop.public.any",
            "fields": [
                {"name": "before", "type": ["null", value], "default": None},
                {"name": "after", "type": ["null", "Value"], "default": None},
                {"name": "source", "type": source},
                {"name": "op", "type": "string"},
                {"name": "ts_ms", "type": ["null", "long"], "default": None},
            ],
            "connect.name": "shop.public.any.Envelope",
        }

    @property
    def text(self) -> SchemaText:
        return SchemaText(SchemaKind.AVRO, json.dumps(self.envelope()), id=self.id)

    def row(self, draw: random.Random) -> dict[str, Any]:
        return {name: _nullable(way, draw) for name, way in self.columns.items()}

    def event_in_json(self, event: Mapping[str, Any], columns: Sequence[str]) -> bytes:
        """With its schema. A row has NULL for those of `columns` that the table does not have."""
        fields = [{**in_json(way.kind), "field": name} for name, way in self.columns.items()]
        row = {"type": "struct", "fields": fields}
        schema = {"type": "struct", "fields": [{**row, "field": "before"}, {**row, "field": "after"}]}
        rows = {
            side: None
            if event[side] is None
            else dict.fromkeys(columns)
            | {name: value_in_json(self.columns[name].kind, value) for name, value in event[side].items()}
            for side in ("before", "after")
        }
        return json.dumps({"schema": schema, "payload": {"op": event["op"], "ts_ms": 1, **rows}}).encode()

    def event_in_avro(self, event: Mapping[str, Any]) -> bytes:
        """With the id of its schema in front."""
        return encode(self.envelope(), {"source": {"db": "d"}, "ts_ms": None, **event}, self.id)


@cache
def _parsed(text: str) -> Any:
    return fastavro.parse_schema(_without_logical(json.loads(text)))


def encode(schema: Any, record: Any, schema_id: int = 7) -> bytes:
    """What is on the wire is given, whatever it means."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, _parsed(json.dumps(schema)), record)
    return b"\0" + schema_id.to_bytes(4, "big") + stream.getvalue()


def _without_logical(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _without_logical(value) for key, value in schema.items() if key != "logicalType"}
    return [_without_logical(one) for one in schema] if isinstance(schema, list) else schema


def draw_table(draw: random.Random, schema_id: int, before: Table | None = None) -> tuple[Table, dict[str, str]]:
    """A table and what a source declares of it; or another version of one: columns but its key have come and gone."""
    if before is None:
        ways = {f"c{number}": draw_way(draw) for number in range(draw.randrange(1, 8))}
        return Table(ways, schema_id), {name: draw.choice(way.declared) for name, way in ways.items()}
    kept = {name: way for name, way in before.columns.items() if draw.random() < 0.8 or name == "c0"}
    return Table({**kept, f"new{schema_id}": draw_way(draw)}, schema_id), {}


def draw_event(draw: random.Random, table: Table) -> dict[str, Any]:
    """Most are changes."""
    op = draw.choice("ccruuuddd" + ("tmx" if draw.random() < 0.2 else ""))
    before = table.row(draw) if op in "ud" and draw.random() < 0.95 else None
    after = table.row(draw) if op in "cru" or draw.random() < 0.03 else None
    return {"op": op, "before": before, "after": after if draw.random() < 0.98 else None}
