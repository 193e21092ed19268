r"""Lines of text: whole, or taken apart by a regular expression that takes time proportional to the line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field
from typing_extensions import override

from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import ValueCheck, check_column, describe_value, refusal, require_text
from tidegate.datatypes import STRING, Schema
from tidegate.formats.contract import Columns, Decoder, Encoder, Format, FormatRefusal, read_settings, refuse_nested
from tidegate.formats.java_regex import RegexRefused, derive_rust_regex
from tidegate.formats.plain import render_json
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, Schemas

LINE: Final = "value"
"""The column of a whole line."""


PATTERN_CHARACTERS_MAX: Final = 4000
_EXAMPLE: Final = r"for instance `pattern: '(?<level>[A-Z]+) (?<message>.*)'`"


def _pattern(value: object) -> str:
    text = require_text(value, "a regular expression", _EXAMPLE)
    if len(text) > PATTERN_CHARACTERS_MAX:
        raise refusal(f"the pattern has {len(text)} characters", f"at most {PATTERN_CHARACTERS_MAX}")
    if "(?P<" in text:
        raise refusal("named groups do not begin with `(?P<`", "write `(?<name>...)`")
    try:
        names = derive_rust_regex(text, columns=True).names
    except RegexRefused as refused:
        remedy = (
            refused.remedy.replace("\\\\", "\\") or "write the pattern without it: patterns must run in linear time"
        )
        raise refusal(f"the pattern has {refused}", remedy) from refused
    if not names:
        raise refusal("the pattern has no named group, and each column needs one", _EXAMPLE)
    for name in names:
        check_column(name)
        if names.count(name) > 1:
            raise refusal(f"the pattern has two groups `{name}`", "rename one")
    return text


def _null(value: object) -> str:
    if not isinstance(value, str):
        raise refusal(f"expected the text of NULL, got {describe_value(value)}", 'put it in quotes: "-"')
    return value


class TextSourceSettings(Settings):
    """How a source reads lines of text."""

    TITLE: ClassVar[str] = "Lines of text"
    pattern: Annotated[
        str | None,
        ValueCheck(_pattern, {"type": "string"}),
        Field(
            description="A regular expression for a whole text, in Java's syntax, whose named groups `(?<name>...)` "
            "are the columns. By default the whole text is the column `value`."
        ),
    ] = None
    null_value: Annotated[
        str | None,
        ValueCheck(_null, {"type": "string"}),
        Field(
            description="The text of NULL in a group, for instance `-`. A group that takes no part in the match is "
            "always NULL."
        ),
    ] = None


class TextFormat(Format):
    """Lines of text in UTF-8."""

    name = "text"
    writes = "the text of the column `value`"
    source_settings: ClassVar[type[Settings]] = TextSourceSettings
    page = r"""
A record is one text in UTF-8, with or without a line end. Without a `pattern`, a source has the column `value string`
with the whole text, and needs no `schema`.

With a `pattern`, its named groups are the columns, with the types of the `schema`, or all strings without one. The
pattern is a regular expression in Java's syntax, as in [`rlike`](../expressions/text.md), and has to match the whole
text. If it does not, the record is bad (`PATTERN_MISMATCH`), and the message says how far the pattern matches and what
it expects there. Groups have the texts of [delimited](delimited.md) values; one that takes no part in the match, or
that equals `null_value`, is NULL. The names of groups are letters, digits and underscores.

Whatever the pattern is, matching takes time proportional to the text (Rust's engine). So look-around, back-references
and possessive quantifiers are refused; `[^"]*` usually says what they are for. A text with line breaks needs `(?s)` at
the beginning of the pattern, with which `.` also matches them.

An access log of Apache or nginx, in the combined format:

```yaml
sources:
  requests:
    topic: access-log
    format: text
    text:
      pattern: '(?<host>\S+) \S+ (?<user>\S+) \[(?<time>[^\]]+)\] "(?<request>(?:[^"\\]|\\.)*)" (?<status>\d{3})
        (?<bytes>\d+|-)(?: "(?<referer>(?:[^"\\]|\\.)*)" "(?<agent>(?:[^"\\]|\\.)*)")?'
      null_value: "-"
    schema: {host: string, user: string, time: string, request: string, status: int, bytes: bigint, referer: string,
      agent: string}
steps:
  - name: timed
    from: requests
    select: {"*": all, add: {at: "to_timestamp(time, 'dd/MMM/yyyy:HH:mm:ss Z')"}}
```

Syslog of RFC 5424, and the older one of RFC 3164, whose times have neither a year nor a time zone:

```yaml
sources:
  syslog:
    topic: syslog
    format: text
    text:
      pattern: '<(?<pri>\d{1,3})>(?<version>\d{1,2}) (?<at>\S+) (?<host>\S+) (?<app>\S+) (?<process>\S+) (?<id>\S+)
        (?<data>-|(?:\[(?:[^\]\\]|\\.)*\])+)(?: (?<message>.*))?'
      null_value: "-"
    schema: {pri: int, version: int, at: timestamp, host: string, app: string, process: string, id: string,
      data: string, message: string}
  old_syslog:
    topic: old-syslog
    format: text
    text:
      pattern: '<(?<pri>\d{1,3})>(?<time>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?<host>\S+)
        (?<tag>[^:\[ ]+)(?:\[(?<process>\d+)\])?: ?(?<message>.*)'
    schema: {pri: int, time: string, host: string, tag: string, process: int, message: string}
```

The facility is `pri div 8`, the severity `pri % 8`. `examples/access_log.yaml` is a whole pipeline over an access log.

A sink writes the column `value`, a string; NULL is a tombstone. `concat_ws(' ', host, message)` or `format_string` in a
`select` makes it.
""".lstrip()

    @override
    def read_columns(self, declared: Schema, options: FormatOptions = NO_OPTIONS) -> Schema:
        pattern = read_settings(TextSourceSettings, options).pattern
        if pattern is None:
            if declared and dict(declared) != {LINE: STRING}:
                message = f"without a pattern, a text has the one column `{LINE}`, a string"
                raise FormatRefusal(message, "remove `schema`, or add `text: {pattern: ...}` with a group per column")
            return {LINE: STRING}
        names = derive_rust_regex(pattern, columns=True).names
        missing = [name for name in declared if name not in names]
        unread = [name for name in names if name not in declared]
        if missing:
            remedy = f"write a group `(?<{missing[0]}>...)`, or remove the column; the groups are {', '.join(names)}"
            raise FormatRefusal(f"the pattern has no group for the column `{missing[0]}`", remedy, "pattern")
        if declared and unread:
            message = f"the group `{unread[0]}` of the pattern is not a column of `schema`"
            raise FormatRefusal(message, "declare it, or write `(?:...)` for a group without a name")
        refuse_nested(declared, "a group of a pattern")
        return dict(declared) or dict.fromkeys(names, STRING)

    @override
    def written_columns(self, columns: Schema, options: FormatOptions = NO_OPTIONS) -> Schema:
        if columns.get(LINE) != STRING:
            what = f"which is {columns[LINE]}" if LINE in columns else "which does not exist"
            remedy = "add it in a `select`: `{value: \"concat_ws(' ', a, b)\"}`"
            raise FormatRefusal(f"a text sink writes the column `{LINE}`, a string, {what}", remedy)
        return {LINE: STRING}

    @override
    def from_plain(self, value: Any, options: FormatOptions = NO_OPTIONS) -> bytes:
        """A text, or the column `value`: groups of a pattern do not say what is between them."""
        text = value.get(LINE) if isinstance(value, Mapping) and value.keys() == {LINE} else value
        if isinstance(text, str):
            return text.encode()
        raise FormatRefusal("the value of a text record is a text", "put the whole text in quotes")

    @override
    def to_json(self, data: bytes, options: FormatOptions = NO_OPTIONS) -> bytes:
        """Returns the text as JSON."""
        return render_json(data.decode()).encode()

    @override
    def decoder(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> Decoder:
        from tidegate.formats.kinds.text.decoder import PatternDecoder, WholeTextDecoder

        settings = read_settings(TextSourceSettings, options)
        if settings.pattern is None:
            return WholeTextDecoder(output)
        return PatternDecoder(settings.pattern, settings.null_value, declared, output)

    @override
    def encoder(self, columns: Columns, options: FormatOptions) -> Encoder:
        import polars as pl

        from tidegate.formats.text import ExpressionEncoder

        return ExpressionEncoder(pl.col(LINE).cast(pl.Binary))


FORMAT: Final = TextFormat()
