"""Delimited lines, such as CSV: one line per record. `dialect.py` splits them, `text_values.py` has their values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final

from typing_extensions import override

from tidegate.config.fields.base import Settings
from tidegate.datatypes import Schema
from tidegate.formats.contract import Columns, Decoder, Encoder, Format, FormatRefusal, read_settings, refuse_nested
from tidegate.formats.kinds.delimited.dialect import DelimitedSinkSettings, DelimitedSourceSettings, render_line
from tidegate.formats.plain import render_json
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, Schemas

_BOM: Final = "\ufeff"


class DelimitedFormat(Format):
    """Lines of fields in the order of the columns."""

    name = "delimited"
    writes = "a line of all columns, as in CSV"
    needs_schema = True
    source_settings: ClassVar[type[Settings]] = DelimitedSourceSettings
    sink_settings: ClassVar[type[Settings]] = DelimitedSinkSettings
    page = """\
A record is one line in UTF-8, such as a line of a CSV file, with or without a line end. Its fields are the columns of
the `schema`, in that order, and each line fails alone.

```yaml
sources:
  orders:
    topic: orders
    format: delimited
    delimited: {separator: "|", null_value: "\\\\N", header: true}
    schema: {id: bigint, customer: string, amount: "decimal(10,2)", at: timestamp}
```

A field that begins with the quote ends with the next quote; within it, a quote is doubled, or follows the `escape`, and
separators and line breaks are text. A quote elsewhere is an ordinary character. A line is bad (`MALFORMED_DELIMITED`)
if it has fewer or more fields than the schema, if a quote is not closed or something follows it, or if there is a line
break outside of quotes. An unquoted field that equals `null_value` is NULL; within quotes it is that text, so `""` is
an empty text.

| type | in | out |
| --- | --- | --- |
| `boolean` | `true`, `false`, in any case | `true`, `false` |
| integers | digits, with or without a sign, within the type's range | the same, without a plus |
| `decimal(p,s)` | any number that has at most `p` digits, `s` of them after the point | a number with all `s` digits |
| `float`, `double` | any number within the type's range, `NaN`, `Infinity`, `-Infinity`, `Inf`, `-Inf`; as in json | \
the same; `NaN`, `Infinity` and `-Infinity` |
| `string` | the text | the text |
| `binary` | base64 | base64 |
| `date` | `2026-01-31` | the same |
| `timestamp` | `2026-01-31T12:00:00.5+01:00` or with a space instead of the `T`; without offset it is UTC | \
`2026-01-31T11:00:00.500Z` |
| `timestamp_ntz` | the same without an offset | `2026-01-31T12:00:00.500` |
| `array`, `map`, `struct` | not in a field: read a string, and convert it with `from_json` | write `to_json(column)` |

Dates in other forms are read as strings and converted: `select: {"*": all, add: {day: "to_date(text, 'dd.MM.yyyy')"}}`.
With `header: true`, records that are the names of all columns, joined by the separator, all or none of them quoted,
are left out and count as filtered. A sink writes no header, because it writes records and not files.

`separator` is `sep` of Spark's CSV reader, `null_value` its `nullValue`, `trim` its `ignoreLeadingWhiteSpace` and
`ignoreTrailingWhiteSpace`; `quote`, `escape` and `quote_all` have their names there. These differ:

| | here | Spark |
| --- | --- | --- |
| `escape` by default | the quote, which is doubled (RFC 4180) | a backslash |
| the text of `null_value` in quotes | a text | NULL |
| an empty field, if `null_value` is set | an empty text, or a bad record if the column is not a string | NULL |
| something after a closing quote | the record is bad; with `trim` blanks may follow | blanks are dropped, other text \
makes the quotes part of the field |
| a line break outside of quotes | the record is bad; a line end is removed | part of the text |
| fewer or more fields | the record is bad | NULLs, or fields are dropped, unless `mode` is `FAILFAST` |
| a decimal with too many digits after the point | the record is bad (`OUT_OF_RANGE`) | rounded |
| a number beyond the largest double | the record is bad (`OUT_OF_RANGE`) | infinity |
| `1,234` as a decimal, `1d` and `0x1p3` as a double, `2026-1-3` as a date, `2026-01` and `12:00` as a timestamp | the \
record is \
bad (`WRONG_TYPE`) | a value |
| blanks at the ends of a text that a sink writes | written | removed |

A sink quotes a text that is empty, equals `null_value`, or holds the separator, the quote or a line break; with
`quote_all` every value but NULL. Sources with the same settings read what a sink has written as the same values.
Without quotes (`quote: ""`), a row with such a text is bad.
"""

    @override
    def read_columns(self, declared: Schema, options: FormatOptions = NO_OPTIONS) -> Schema:
        refuse_nested(declared, "a field of a line")
        return declared

    @override
    def written_columns(self, columns: Schema, options: FormatOptions = NO_OPTIONS) -> Schema:
        refuse_nested(columns, "a field of a line")
        return columns

    @override
    def skipped_values(self, declared: Columns, options: FormatOptions) -> Collection[bytes]:
        settings = read_settings(DelimitedSourceSettings, options)
        if not settings.header:
            return ()
        names, quote = [name for name, _ in declared], settings.quote
        lines = [settings.separator.join(names), settings.separator.join(f"{quote}{name}{quote}" for name in names)]
        if quote:
            lines.append(render_line(names, settings.dialect))
        return frozenset(f"{mark}{line}{end}".encode() for mark in ("", _BOM) for line in lines for end in _ENDS)

    @override
    def from_plain(self, value: Any, options: FormatOptions = NO_OPTIONS) -> bytes:
        """A text is the line itself; a mapping has columns with their values, the others are NULL."""
        if isinstance(value, str):
            return value.encode()
        if not isinstance(value, Mapping):
            raise FormatRefusal("a delimited value is a line of text, or its columns", "write {column: value, ...}")
        names = options.columns or tuple(value)
        unknown = [name for name in value if name not in names]
        if unknown:
            raise FormatRefusal(f"the source has no column `{unknown[0]}`", f"it has {', '.join(names)}")
        dialect = read_settings(DelimitedSourceSettings, options).dialect
        try:
            return render_line([value.get(name) for name in names], dialect).encode()
        except ValueError as error:
            raise FormatRefusal(str(error), "put the whole line in quotes") from error

    @override
    def to_json(self, data: bytes, options: FormatOptions = NO_OPTIONS) -> bytes:
        """Returns the line as JSON."""
        return render_json(data.decode()).encode()

    @override
    def decoder(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> Decoder:
        from tidegate.formats.kinds.delimited.decoder import DelimitedDecoder

        return DelimitedDecoder(declared, output, read_settings(DelimitedSourceSettings, options).dialect)

    @override
    def encoder(self, columns: Columns, options: FormatOptions) -> Encoder:
        from tidegate.formats.kinds.delimited.encoder import DelimitedEncoder

        settings = read_settings(DelimitedSinkSettings, options)
        return DelimitedEncoder(columns, settings.dialect, quote_all=settings.quote_all)


_ENDS: Final = ("", "\n", "\r\n")


FORMAT: Final = DelimitedFormat()
