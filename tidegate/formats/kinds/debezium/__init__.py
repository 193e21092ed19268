"""Debezium's change events: inserts, updates and deletes of a table's rows, and the format of events in JSON.

`envelope.py` applies to any encoding; the other modules read events and values of one encoding each. The
format of events in Avro is `../debezium_avro.py`. There is no writer: sinks write rows.
"""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from tidegate.datatypes import BOOLEAN, STRING, Schema
from tidegate.formats.contract import Columns, Decoder, Encoder, Format, FormatRefusal
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, Schemas

DELETED: Final = "_deleted"
OP: Final = "_op"
OP_FIELD: Final = "op"
"""The field of an event with its kind."""
ADDED: Final[Schema] = {DELETED: BOOLEAN, OP: STRING}
"""The columns that every source has in addition to those of the row."""


class DebeziumFormat(Format):
    """Debezium's change events in JSON."""

    name = "debezium"
    writes = ""
    needs_schema = True
    is_changelog = True
    written_as = frozenset({"timestamps", "decimals"})
    page = """\
For sources: change events as Debezium 2 and 3 write them with Connect's `JsonConverter`, with or without the wrapper
of `schema` and `payload` (`schemas.enable`), which is recognised for each record. `schema` declares the columns of
the table's row, and the source adds two: `_deleted boolean` and `_op string`. Events in Avro are read with
[debezium-avro](debezium-avro.md).

**Set `value.converter.replace.null.with.default=false` in the connector.** Without it, Connect's converter writes the
`DEFAULT` of a column instead of each NULL in it, and nothing in the record shows that. (Apicurio's Avro converter 2.6
also does this, and it cannot be disabled there.)

| `op` | row | `_deleted` |
| --- | --- | --- |
| `c` (insert), `r` (snapshot), `u` (update) | `after` | false |
| `d` (delete) | `before`: all columns with `REPLICA IDENTITY FULL` in PostgreSQL, otherwise those of the key | true |
| `t` (truncate), `m` (logical message), any other | none: the record is bad (`UNSUPPORTED_CHANGE`) | |

The tombstone that Debezium sends after a delete is left out and counted as filtered, because the delete was already a
row; with `on_null: bad` it is a bad record. A truncate is not a row, and leaving it out would keep rows that the
table no longer has. Debezium's `skipped.operations=t`, its default, leaves it out deliberately.

A copy of the table in a compacted topic:

```yaml
sources:
  customers: {topic: shop.public.customers, format: debezium, schema: {id: bigint, name: string}}
steps:
  - {name: rows, from: customers, select: {id: id, name: name, _deleted: _deleted}}
sinks:
  copy: {from: rows, topic: customers, key: id, on_null: {column: _deleted, write: tombstone}}
```

If nothing on the way to a sink reads `_deleted`, deleted rows are written like all others, and `validate` warns. A
change of the primary key is a delete and an insert of Debezium's. `where`, `select`, `route`, `explode`, ordered
lookups and running totals accept changes. `window`, `keep` and `dedup` are refused anywhere downstream of such a
source: they need retraction, which is not supported yet. Changes of a row are in order within a partition.

Totals retract rows, and so does a sink with `on_null` after a `where`, `route` or `explode`, or with `partition` or
`topic.expression`. Every update of that source then needs its `before`, with all declared columns, and so does a
delete. Without it the record is bad (`INCOMPLETE_CHANGE`). In PostgreSQL that needs `REPLICA IDENTITY FULL` of the
table, in MySQL `binlog_row_image=FULL`, its default. In other pipelines `before` of an update is not read, and an
update must not change the key of a sink: `validate` warns about a key that is computed, unless from the record's key
(`metadata`), and a step `where: true` deletes the old one. [changes](../changes.md#sinks) says more.

The rules of [json](json.md) apply to the row's values, all declared ones are checked, and fields that are not
declared are skipped. In addition:

| type | in |
| --- | --- |
| `decimal(p,s)` | a number (the converter's `decimal.format=NUMERIC`; rounded, `decimal.handling.mode=double`), its \
text (`string`), or base64 of the unscaled number's bytes (`precise`), also with the scale next to it (`{"scale": 2, \
"value": "BNI="}`) |
| `float`, `double` | also `"NaN"`, `"Infinity"` and `"-Infinity"` |
| `date` | the text, with or without `Z` at its end; or the days since 1970 |
| `timestamp`, `timestamp_ntz` | the text; that of a `timestamp_ntz` with or without `Z` at its end. With \
`written_as: {timestamps: ms}`, `us`, `ns` or `{column: unit}` also an integer since 1970, for a `timestamp` in UTC |

If records include their schema (`schemas.enable`, the converter's default), it determines the units of timestamps,
the meaning of decimals in texts, and the scale of base64. Such a source sets `written_as: {decimals: schema}`.
Without it, a text like `"1234"` may be a number or base64 of another one, so a source with a decimal column, or with
decimals in a struct, array or map, needs `written_as: {decimals: text}` or `base64`. Base64 then has no scale: it is
that of the declared type, which has to be the table's. An integer in a column of timestamps is refused unless
`written_as` has its unit. Columns of other times are read as they are written. The columns of a table in PostgreSQL
are

| PostgreSQL | column |
| --- | --- |
| `boolean`, `bit(1)` | `boolean` |
| `smallint`, `int`, `bigint`, `real`, `double precision` | `smallint`, `int`, `bigint`, `float`, `double` |
| `numeric(p,s)`, `money` | `decimal(p,s)`, `decimal(19,2)`; a `numeric` without digits as one that holds its values |
| `text`, `varchar`, `char`, `uuid`, `json`, `jsonb`, `xml`, `inet`, enums, ranges | `string` |
| `bytea` | `binary`; with `binary.handling.mode=hex` a `string`, for `unhex`: some texts are also base64 |
| `date` | `date` |
| `timestamp(p)` | `timestamp_ntz`: by default `ms` up to three digits (`p`), otherwise `us` |
| `timestamptz` | `timestamp`, always a text |
| `time`, `interval` | `bigint`, microseconds (`time(3)`: milliseconds); a `string` with `isostring`, or \
`interval.handling.mode=string` |
| `timetz` | `string` |
| arrays of one dimension | `array<...>` of these; for more dimensions Debezium writes NULLs |
| `point` | `struct<x: double, y: double>` |

In MariaDB, `boolean` is a `tinyint`, `datetime` a `timestamp_ntz` in `ms` up to three digits, otherwise `us`, and
`timestamp` a `timestamp`. `bigint unsigned` is a `decimal(20,0)` with `bigint.unsigned.handling.mode=precise`: by
default Debezium writes its largest values as negative numbers.

Records with values outside the years 1 to 9999, including `infinity`, are bad, and so are those with a `numeric` that
is not a number. But where decimals are bytes, Debezium itself writes NULL for `NaN`, and a warning into its log.

A record is bad (`INCOMPLETE_CHANGE`) if it is not an object with an `op` (read a flattened record with `json`), lacks
the row that its `op` is about, or is a delete with a row in `after`. It is also bad if a declared column holds
`__debezium_unavailable_value`: a large value of PostgreSQL that the update, or the change of the key, did not touch
and that is not in its log (`REPLICA IDENTITY FULL` puts it there). A record whose row has fields, but none that is
declared, is bad as well (`NO_DECLARED_FIELD`). Places are from the top of the record: `$.payload.after.name`. Topics
other than those of tables have no rows: those of transactions (`provide.transaction.metadata`), heartbeats and
messages.
"""

    @override
    def read_columns(self, declared: Schema, options: FormatOptions = NO_OPTIONS) -> Schema:
        for name in ADDED:
            if name in declared:
                raise FormatRefusal(f"every {self.name} source already has a column `{name}`", "remove it")
        return {**declared, **ADDED} if declared else {}

    @override
    def written_columns(self, columns: Schema, options: FormatOptions = NO_OPTIONS) -> Schema:
        raise FormatRefusal(f"{self.name} is read only", "use json, with `on_null` for deleted rows")

    @override
    def decoder(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> Decoder:
        from tidegate.formats.kinds.debezium.json_decoder import ChangeDecoder

        return ChangeDecoder(declared, output, options)

    @override
    def encoder(self, columns: Columns, options: FormatOptions) -> Encoder:
        raise NotImplementedError("sinks do not have this format")


FORMAT: Final = DebeziumFormat()
