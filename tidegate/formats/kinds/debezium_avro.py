"""The format of Debezium's change events in Avro, with schemas of a registry; `debezium/avro_decoder.py` reads them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec
from typing_extensions import override

from tidegate.datatypes import MAX_PRECISION, STRING, DataType, Schema, parts_of
from tidegate.formats.contract import Columns, Decoder, FormatRefusal
from tidegate.formats.kinds.avro import record_name, refused
from tidegate.formats.kinds.avro.columns import derive_record, nullable, record_columns, schema_text
from tidegate.formats.kinds.avro.schema import NAME, AvroField, AvroType, parse_schema, with_logical
from tidegate.formats.kinds.debezium import ADDED, OP_FIELD, DebeziumFormat
from tidegate.formats.kinds.debezium.avro_schemas import AFTER, BEFORE, meaning, parse_event, row_columns
from tidegate.formats.kinds.debezium.json_values import NAMED, UNITS
from tidegate.formats.schema_ids import prefix_of
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, SchemaKind, Schemas, SchemaText

_NAMES: Final = "tidegate"
_EVENT: Final = frozenset({OP_FIELD, BEFORE, AFTER})
_UNITS: Final = {"ms": "millis", "us": "micros", "ns": "nanos"}
_NOTHING: Final[Mapping[str, Any]] = {
    "boolean": False,
    "int": 0,
    "long": 0,
    "float": 0,
    "double": 0,
    "string": "",
    "bytes": "",
    "array": [],
    "map": {},
    "date": "1970-01-01",
    "decimal": 0,
    "local-timestamp": "1970-01-01T00:00:00",
    "timestamp": "1970-01-01T00:00:00Z",
}
_READ_REMEDY: Final = "name the schema of an envelope, or list the columns: `schema: {id: bigint}`"


class DebeziumAvroFormat(DebeziumFormat):
    """Debezium's change events in Avro."""

    name = "debezium-avro"
    schema_kind: ClassVar[SchemaKind | None] = SchemaKind.AVRO
    is_text = False
    written_as = frozenset({"timestamps"})
    page = """\
For sources: the change events of [debezium](debezium.md) as Connect's converters for Avro write them, in Confluent's
wire format with the schema of each record in the [registry](../pipeline/daemon.md#registry). Rows, `_deleted` and
`_op`, retractions, tombstones and bad records are as in JSON; ids of schemas are as in [avro](avro.md).

```yaml
sources:
  customers: {topic: shop.public.customers, format: debezium-avro, schema: {registry: shop.public.customers-value}}
```

`schema` is

- columns of the table's row: `{id: bigint, name: string}`. They are looked up by name in the records `before` and
  `after` of each record's schema; a column that it does not have is NULL. A record whose schema has the field in
  another type is bad (`INCOMPATIBLE_SCHEMA`), and the message has its place in the event: `after.name`. So is one
  whose schema has none of the columns (`NO_DECLARED_FIELD`).
- `{registry: shop.public.customers-value}` or `{file: envelope.avsc}`: the schema of an event. The fields of its row
  are the columns, only by their names and types: defaults and aliases in it are not used.

Most of Connect's types are not logical types of Avro, but plain ones with a `connect.name`, which determines the
type:

| in the schema | column | may also be declared as |
| --- | --- | --- |
| `boolean`, `string`, `bytes`, `double`, arrays, maps, records, enums | as in [avro](avro.md) | |
| `int`, `long`, `float` | `int`, `bigint`, `float` | a wider type; an `int` as `smallint`, `tinyint` |
| `int` with the `connect.type` `int8`, `int16` | `tinyint`, `smallint` | `int`, `bigint`, `float`, `double` |
| `io.debezium.time.Date`, `IsoDate`; Connect's `Date` | `date` | `int`; `string` |
| `io.debezium.time.Timestamp`, `MicroTimestamp`, `NanoTimestamp`; Connect's `Timestamp` | `timestamp_ntz` | \
`timestamp` (in UTC), `bigint` |
| `io.debezium.time.ZonedTimestamp`, `IsoTimestamp`, which are texts | `timestamp`, `timestamp_ntz` | `string` |
| other times and intervals | `int`, `bigint`, `string`: as they are written | |
| Connect's `Decimal` | `decimal(p,s)`; `decimal(38,s)` if the converter does not know `p` and writes 64 | any \
decimal that holds the values exactly |
| `io.debezium.data.VariableScaleDecimal` | `struct<scale: int, value: binary>` | such a decimal |
| `string`, `double` and integers (`decimal.handling.mode`) | their own type | such a decimal |

A text in a column of times or decimals is read as in JSON, and the record is bad if it is not one. Schemas without
Connect's names (`connect.meta.data=false` of Confluent's converter) do not say what a `long` counts: as a timestamp
it needs `written_as: {timestamps: us}`, and an `int` as a `date` is taken for days.

A record is bad (`INCOMPLETE_CHANGE`) if its schema is not an envelope, that is, a record with `op` and `before` or
`after`. Rows alone, as Debezium's `ExtractNewRecordState` leaves them, are read with [avro](avro.md). Deletes
from a time without a declared column have NULL in it, where in JSON they look like half a row.

Cases of `tidegate test` write events as `value: {op: c, after: {id: 1}}`; other parts of an envelope may be left out.
"""

    @override
    def read_columns(self, declared: Schema, options: FormatOptions = NO_OPTIONS) -> Schema:
        for name, kind in declared.items():
            if not NAME.fullmatch(name):
                remedy = "declare the name in the schema; Debezium's `field.name.adjustment.mode=avro` replaces others"
                raise FormatRefusal(f"`{name}` is not a valid field name in Avro", remedy)
            _check_keys(name, kind)
        return super().read_columns(declared)

    @override
    def schema_columns(self, schema: SchemaText) -> Schema:
        with refused("the schema cannot be read: ", _READ_REMEDY):
            columns = row_columns(parse_event(schema))
        for name in ADDED:
            if name in columns:
                message = f"the table has a column `{name}`, which every {self.name} source adds"
                raise FormatRefusal(message, "list the other columns: `schema: {id: bigint}`")
        return self.read_columns(columns)

    @override
    def derive_schema(self, columns: Schema, name: str) -> SchemaText:
        """Derives the schema of an envelope, for events that people write in tests."""
        own = {column: kind for column, kind in columns.items() if column not in ADDED}
        with refused("the columns cannot be written ", "declare others"):
            row = nullable(derive_record(own, f"{_NAMES}.{record_name(name)}_row"))
        fields = (*(AvroField(side, row) for side in (BEFORE, AFTER)), AvroField(OP_FIELD, AvroType("string")))
        event = AvroType("record", f"{_NAMES}.{record_name(name)}_event", fields=fields)
        return SchemaText(SchemaKind.AVRO, schema_text(event))

    @override
    def from_plain(self, value: Any, options: FormatOptions = NO_OPTIONS) -> bytes:
        text = super().from_plain(value)
        if options.schema is None:
            return text
        from tidegate.formats.kinds.avro.plain import PlainEncoder
        from tidegate.formats.kinds.json.writer import record_of_json

        with refused("no event can be written with the schema: ", _READ_REMEDY):
            record = parse_schema(options.schema, _written)
            event = _completed(json.loads(text), record)
            columns = tuple(record_columns(record).items())
            return record_of_json(json.dumps(event).encode(), columns, PlainEncoder(record, prefix_of(options)))

    @override
    def decoder(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> Decoder:
        from tidegate.formats.kinds.debezium.avro_decoder import change_decoder

        return change_decoder(declared, output, options, schemas)


def _completed(event: Any, record: AvroType) -> Any:
    """Adds empty values, which are not read, for the fields of an envelope that are left out, such as `source`."""
    if not isinstance(event, dict):
        return event
    return {field.name: _nothing(field.type) for field in record.fields if field.name not in _EVENT} | event


def _written(made: AvroType, one: Mapping[str, Any]) -> AvroType:
    """Replaces the meaning of Connect's name by Avro's logical type if there is one: people write dates, not days."""
    named = meaning(made, one)
    if named.logical == "decimal":
        return msgspec.structs.replace(named, precision=min(named.precision, MAX_PRECISION))
    if made.kind == "long" and named.logical in UNITS:
        return msgspec.structs.replace(made, logical=f"local-timestamp-{_UNITS[UNITS[named.logical]]}")
    if made.kind == "int" and named.logical in NAMED:
        return msgspec.structs.replace(made, logical="date")
    return with_logical(made, one)


def _nothing(one: AvroType) -> Any:
    if one.kind == "union":
        first = one.branches[0]
        if any(each.kind == "null" for each in one.branches):
            return None
        return _nothing(first) if len(one.branches) == 1 else {"member0": _nothing(first)}
    if one.kind == "record":
        return {field.name: _nothing(field.type) for field in one.fields}
    if one.kind == "enum":
        return one.symbols[0]
    if one.kind == "fixed" and not one.logical:
        return base64.b64encode(bytes(one.size)).decode()
    return _NOTHING.get(one.logical.rpartition("-")[0] or one.logical, _NOTHING.get(one.kind))


def _check_keys(place: str, kind: DataType) -> None:
    if kind.key is not None and kind.key != STRING:
        raise FormatRefusal(f"the keys of {kind} in `{place}` are not strings, which Avro requires", "declare strings")
    for part in parts_of(kind):
        _check_keys(place, part)


FORMAT: Final = DebeziumAvroFormat()
