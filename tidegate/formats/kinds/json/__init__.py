"""The JSON format: one object per record. The rules of reading are in `reader.py`, those of writing in `writer.py`."""

from __future__ import annotations

from typing import Final

from tidegate.formats.contract import Columns, Decoder, Encoder, Format


class JsonFormat(Format):
    """See the module."""

    name = "json"
    writes = "an object of all columns"
    needs_schema = True
    page = """\
A source needs a `schema`, and takes one object per record, in UTF-8. Fields that the schema does not name are skipped,
missing ones and `null` are NULL; if one is repeated, the last counts. Names of fields must match exactly. A
value of another type makes the record bad, nothing is converted: `5.0` is not a bigint, `5` is not a string. That
holds for every field of the schema, whether a step reads it or not; each costs a little time: leave out what needs no
check.

| type | in | out |
| --- | --- | --- |
| `boolean` | `true`, `false` | the same |
| whole numbers | a number without fraction and exponent, within the type's range | the same |
| `float`, `double` | any number within the type's range | the same; NaN and infinities become `null` |
| `string` | a string | the same |
| `binary` | base64 | base64 |
| `date` | `"2026-01-31"` | the same |
| `timestamp` | `"2026-01-31T12:00:00.5+01:00"`, without offset UTC | `"2026-01-31T11:00:00.500Z"` |
| `array`, `struct` | array, object | the same, with `null` for NULL fields |

More than six digits of a second are rounded. A tombstone (a record without value) is a bad record.
"""

    def decoder(self, declared: Columns, output: Columns) -> Decoder:
        """See Format."""
        from tidegate.formats.kinds.json.reader import JsonDecoder

        return JsonDecoder(declared, output)

    def encoder(self, columns: Columns, key: str | None, timestamp: str | None) -> Encoder:
        """See Format."""
        from tidegate.formats.expressions import ExpressionEncoder
        from tidegate.formats.kinds.json.writer import json_objects

        return ExpressionEncoder(json_objects(columns), key, timestamp)


FORMAT: Final = JsonFormat()
