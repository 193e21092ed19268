"""Change events of Debezium: inserts, updates and deletes of a table's rows, and the format of those in JSON.

`envelope.py` and `changes.py` hold for events in any encoding; `json` and `avro` read events and values of one. The
format of events in Avro is `../debezium_avro.py`. There is no writer: sinks write rows.
"""

from __future__ import annotations

from typing import Final

from tidegate.datatypes import BOOLEAN, STRING, Schema
from tidegate.formats.contract import Columns, Decoder, Encoder, Format, FormatRefusal
from tidegate.formats.schemas import FormatOptions, Schemas

DELETED: Final = "_deleted"
OP: Final = "_op"
ADDED: Final[Schema] = {DELETED: BOOLEAN, OP: STRING}
"""The columns that every source has besides those of the row."""


class DebeziumFormat(Format):
    """See the module."""

    name = "debezium"
    writes = ""
    needs_schema = True
    is_changelog = True
    written_as = frozenset({"timestamps", "decimals"})
    page = """\
For sources: change events as Debezium 2 and 3 write them with Connect's `JsonConverter`, with the wrapper of `schema`
and `payload` (`schemas.enable`) or without, which each record shows. `schema` declares the columns of the table's
row, and the source adds two: `_deleted boolean` and `_op string`. Events in Avro are read with
[debezium-avro](#format-debezium-avro).

**Set `value.converter.replace.null.with.default=false` in the connector.** Without it Connect's converter writes the
`DEFAULT` of a column in place of each NULL in it, and nothing in the record shows that. (Apicurio's Avro converter 2.6
does so, too, and cannot be asked not to.)

| `op` | row | `_deleted` |
| --- | --- | --- |
| `c` (insert), `r` (snapshot), `u` (update) | `after` | false |
| `d` (delete) | `before`: all columns with `REPLICA IDENTITY FULL` in PostgreSQL, else those of the key | true |
| `t` (truncate), `m` (logical message), any other | none: the record is bad (`UNSUPPORTED_CHANGE`) | |

The tombstone that Debezium sends after a delete is left out and counted as filtered, since the delete was a row
already; with `on_null: bad` it is a bad record. A truncate is no row, and to leave it out would keep rows that the
table no longer has: Debezium's `skipped.operations=t`, its default, leaves it out knowingly.

A copy of the table in a compacted topic:

```yaml
sources:
  customers: {topic: shop.public.customers, format: debezium, schema: {id: bigint, name: string}}
steps:
  - {name: rows, from: customers, select: {id: id, name: name, _deleted: _deleted}}
sinks:
  copy: {from: rows, topic: customers, key: id, on_null: {column: _deleted, write: tombstone}}
```

Where nothing on the way to a sink reads `_deleted`, deleted rows are written like any others, and `validate` warns.
A change of the primary key is a delete and an insert of Debezium's. `where`, `select`, `route`, `explode`, lookups in
order and running totals take changes; `window`, `keep` and `dedup` after such a source, however far, are refused: they
need retraction, which is not supported yet. Changes of a row are in order within a partition.

Totals take rows back, and so does a sink with `on_null` after a `where`, `route` or `explode`, or with `partition` or
`topic.expression`: every update of that source then needs its `before`, with all declared columns, and so does a
delete. Without it the record is bad (`INCOMPLETE_CHANGE`). In PostgreSQL that is `REPLICA IDENTITY FULL` of the table,
in MySQL `binlog_row_image=FULL`, its default. Elsewhere `before` of an update is not read, and the key of a sink must
not change with one: `validate` warns of a key that is computed, unless from the record's (`metadata`), and a step
`where: true` deletes the old one.
[changes.md](changes.md#sinks) says more.

The rules of [json](#format-json) hold for the row's values, all declared ones are checked, and fields that are not
declared are skipped. Besides:

| type | in |
| --- | --- |
| `decimal(p,s)` | a number (the converter's `decimal.format=NUMERIC`; rounded, `decimal.handling.mode=double`), its \
text (`string`), or base64 of the unscaled number's bytes (`precise`), also with the scale beside it \
(`{"scale": 2, "value": "BNI="}`) |
| `float`, `double` | also `"NaN"`, `"Infinity"` and `"-Infinity"` |
| `date` | the text, `Z` at its end or not; or the days since 1970 |
| `timestamp`, `timestamp_ntz` | the text, that of a `timestamp_ntz` with `Z` at its end or not; with \
`written_as: {timestamps: ms}`, `us`, `ns` or `{column: unit}` also a whole number since 1970, of a `timestamp` in UTC |

Where records have their schema with them (`schemas.enable`, the converter's default), it says the units of timestamps,
what texts of decimals are, and the scale of base64; such a source says `written_as: {decimals: schema}`. Elsewhere a
text like `"1234"` may be a number or base64 of another one, so a source with a decimal column, or with decimals in a
struct, array or map, needs `written_as: {decimals: text}` or `base64`. Base64 there has no scale: it is that of the
declared type, which has to be the table's. A whole number in a column of timestamps is refused unless `written_as` has
its unit. Columns of other times are read as they are written. So the columns of a table in PostgreSQL are

| PostgreSQL | column |
| --- | --- |
| `boolean`, `bit(1)` | `boolean` |
| `smallint`, `int`, `bigint`, `real`, `double precision` | `smallint`, `int`, `bigint`, `float`, `double` |
| `numeric(p,s)`, `money` | `decimal(p,s)`, `decimal(19,2)`; a `numeric` without digits as one that holds its values |
| `text`, `varchar`, `char`, `uuid`, `json`, `jsonb`, `xml`, `inet`, enums, ranges | `string` |
| `bytea` | `binary`; with `binary.handling.mode=hex` a `string`, for `unhex`: some texts are base64, too |
| `date` | `date` |
| `timestamp(p)` | `timestamp_ntz`: by default `ms` up to three digits (`p`), else `us` |
| `timestamptz` | `timestamp`, always a text |
| `time`, `interval` | `bigint`, microseconds (`time(3)`: milliseconds); a `string` with `isostring`, or \
`interval.handling.mode=string` |
| `timetz` | `string` |
| arrays of one dimension | `array<...>` of these; of more dimensions Debezium writes NULLs |
| `point` | `struct<x: double, y: double>` |

In MariaDB `boolean` is a `tinyint`, `datetime` a `timestamp_ntz` in `ms` up to three digits, else `us`, `timestamp` a
`timestamp`, and `bigint unsigned` a `decimal(20,0)` with `bigint.unsigned.handling.mode=precise`: by default Debezium
writes its largest values as negative numbers.

Records with values outside the years 1 to 9999, `infinity` among them, are bad, and so are those with a `numeric` that
is no number; but where decimals are bytes Debezium itself writes NULL for `NaN`, and a warning into its log.

A record is bad that is no object with an `op` (`INCOMPLETE_CHANGE`: a flattened record is read with `json`), lacks
the row that its `op` is about, or is a delete with a row in `after`. So is one whose row has fields, but none that is
declared (`NO_DECLARED_FIELD`), and one whose declared column holds
`__debezium_unavailable_value`: a large value of PostgreSQL that the update, or the change of the key, did not touch and
that is not in its log (`REPLICA IDENTITY FULL` puts it there). Places are from the top of the record:
`$.payload.after.name`. Topics beside those of tables have no rows: of transactions (`provide.transaction.metadata`),
heartbeats and messages.
"""

    def read_columns(self, declared: Schema) -> Schema:
        """See Format."""
        for name in ADDED:
            if name in declared:
                raise FormatRefusal(f"every {self.name} source has a column `{name}` already", "remove it")
        return {**declared, **ADDED} if declared else {}

    def written_columns(self, columns: Schema) -> Schema:  # noqa: ARG002 - none are written
        """See Format."""
        raise FormatRefusal(f"{self.name} is read only", "use json, with `on_null` for deleted rows")

    def decoder(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> Decoder:  # noqa: ARG002 - its own schemas are in its records
        """See Format."""
        from tidegate.formats.kinds.debezium.json.decoder import ChangeDecoder

        return ChangeDecoder(declared, output, options)

    def encoder(self, columns: Columns, options: FormatOptions) -> Encoder:
        """See Format."""
        raise NotImplementedError("no sink has this format")


FORMAT: Final = DebeziumFormat()
