"""The format of Debezium's change events in Avro, with schemas of a registry; `debezium/avro` reads them."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from typing_extensions import override

from tidegate.datatypes import STRING, DataType, Schema, parts_of
from tidegate.formats.contract import Columns, Decoder, FormatRefusal
from tidegate.formats.kinds.avro import record_name
from tidegate.formats.kinds.avro.columns import derive_record, nullable, schema_text
from tidegate.formats.kinds.avro.schema import NAME, AvroField, AvroRefusal, AvroType
from tidegate.formats.kinds.debezium import ADDED, DebeziumFormat
from tidegate.formats.kinds.debezium.avro.schemas import AFTER, BEFORE, parse_event, row_columns
from tidegate.formats.kinds.debezium.envelope import OP_FIELD
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, SchemaKind, Schemas, SchemaText

_NAMES: Final = "tidegate"
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
        try:
            columns = row_columns(parse_event(schema))
        except AvroRefusal as refusal:
            raise FormatRefusal(f"the schema cannot be read: {refusal}", _READ_REMEDY) from refusal
        for name in ADDED:
            if name in columns:
                message = f"the table has a column `{name}`, which every {self.name} source adds"
                raise FormatRefusal(message, "list the other columns: `schema: {id: bigint}`")
        return self.read_columns(columns)

    @override
    def derive_schema(self, columns: Schema, name: str) -> SchemaText:
        """Derives the schema of an envelope, for events that people write in tests."""
        own = {column: kind for column, kind in columns.items() if column not in ADDED}
        try:
            row = nullable(derive_record(own, f"{_NAMES}.{record_name(name)}_row"))
        except AvroRefusal as refusal:
            raise FormatRefusal(f"the columns cannot be written {refusal}", "declare others") from refusal
        fields = (*(AvroField(side, row) for side in (BEFORE, AFTER)), AvroField(OP_FIELD, AvroType("string")))
        event = AvroType("record", f"{_NAMES}.{record_name(name)}_event", fields=fields)
        return SchemaText(SchemaKind.AVRO, schema_text(event))

    @override
    def from_plain(self, value: Any, options: FormatOptions = NO_OPTIONS) -> bytes:
        text = super().from_plain(value)
        if options.schema is None:
            return text
        from tidegate.formats.kinds.debezium.avro.plain import event_of_json

        try:
            return event_of_json(text, options.schema, options)
        except AvroRefusal as refusal:
            raise FormatRefusal(f"no event can be written with the schema: {refusal}", _READ_REMEDY) from refusal

    @override
    def decoder(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> Decoder:
        from tidegate.formats.kinds.debezium.avro.decoder import change_decoder

        return change_decoder(declared, output, options, schemas)


def _check_keys(place: str, kind: DataType) -> None:
    if kind.key is not None and kind.key != STRING:
        raise FormatRefusal(f"the keys of {kind} in `{place}` are not strings, which Avro requires", "declare strings")
    for part in parts_of(kind):
        _check_keys(place, part)


FORMAT: Final = DebeziumAvroFormat()
