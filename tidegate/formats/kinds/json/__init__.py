"""The JSON format: one object per record. `reader.py` documents the rules of reading, `writer.py` those of writing."""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from tidegate.formats.contract import Columns, Decoder, Encoder, Format
from tidegate.formats.schemas import FormatOptions, Schemas


class JsonFormat(Format):
    """JSON objects without schemas of a registry."""

    name = "json"
    writes = "an object of all columns"
    needs_schema = True
    finds_unknown_fields = True
    page = """\
A source needs a `schema`, and each record is one JSON object in UTF-8. Fields that the schema does not name are
skipped unless `unknown_fields` says otherwise. Missing fields and `null` are NULL. If a field is repeated, the last
one counts. Names of fields must match exactly. A value of another type makes the record bad; nothing is converted:
`5.0` and `5e0` are not a bigint, `5` is not a string. This applies to every field of the schema at any depth, whether
a step reads it or not, so which records are bad depends only on the schema. Each field costs a little time: leave out
what needs no check.

A record that has fields, but none of the schema's, is bad (`NO_DECLARED_FIELD`), and the message suggests what it is:
a change event of Debezium, Connect's wrapper, names in another case. `{}` is a row of NULLs, and so is a record
without declared fields if `unknown_fields` keeps the others.

| type | in | out |
| --- | --- | --- |
| `boolean` | `true`, `false` | the same |
| integers | a number without fraction and exponent, within the type's range | the same |
| `decimal(p,s)` | any number (`5`, `5.00`, `5e0`), or its text (`"5.00"`), that has at most `p` digits, `s` of them \
after the point | a number with all `s` digits: `5.00` |
| `float`, `double` | any number within the type's range, as the nearest double; a float is the one nearest to that \
double | the same; NaN and infinities become `null` |
| `string` | a string | the same |
| `binary` | base64 | base64 |
| `date` | `"2026-01-31"` | the same |
| `timestamp` | `"2026-01-31T12:00:00.5+01:00"`; without offset it is UTC | `"2026-01-31T11:00:00.500Z"` |
| `timestamp_ntz` | `"2026-01-31T12:00:00.5"`; with an offset or `Z` the record is bad | `"2026-01-31T12:00:00.500"` |
| `array`, `struct` | array, object | the same, with `null` for NULL fields |
| `map` | an object; keys that are not strings are read from their text (`"17"`, `"true"`, `"2026-01-31"`) | an object |

With `unknown_fields: fail`, a record with a field that the schema does not name, at any depth, is bad
(`UNKNOWN_FIELD`). With `unknown_fields: {keep: rest}`, the source has a column `rest`, a `map<string, string>` of the
unknown fields at the top level of the record: for strings their text, for everything else the JSON as it is in the
record, and NULL for `null`. It is created for every record, and costs about as much as the rest of the decoding.

A number that a decimal cannot hold exactly makes the record bad (`OUT_OF_RANGE`); only doubles are rounded. Entries
of a map keep the order of the record. Of equal keys the last counts, and keys are equal if their values are: `"1"`
and `"1.0"` are one key of a `map<decimal(3,1), int>`. NULL values of maps are kept. Keys that are not finite numbers
are written as `"NaN"`, `"Infinity"` and `"-Infinity"`, which no source reads as numbers. Digits of a second beyond
the sixth are cut off. A tombstone (a record without value) is a bad record, unless `on_null` of the source says
otherwise.
"""

    @override
    def decoder(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> Decoder:
        from tidegate.formats.kinds.json.reader import JsonDecoder

        return JsonDecoder(declared, output, options=options, needs_field=True)

    @override
    def encoder(self, columns: Columns, options: FormatOptions) -> Encoder:
        from tidegate.formats.kinds.json.writer import JsonEncoder

        return JsonEncoder(columns)


FORMAT: Final = JsonFormat()
