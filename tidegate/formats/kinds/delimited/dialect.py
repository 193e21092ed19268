"""Delimited lines to fields and back: the dialect, and the sections `delimited` of sources and sinks that describe it.

Their keys are those of Spark's CSV reader where it has one. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, Self

import msgspec
from pydantic import Field, model_validator

from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import Flag, ValueCheck, describe_value, refusal
from tidegate.formats.plain import render_number

_BLANKS: Final = " \t"
_SHOWN_MAX: Final = 40


class Dialect(msgspec.Struct, frozen=True):
    """How fields are written. `quote` may be empty: then nothing is quoted."""

    separator: str
    quote: str
    escape: str
    null: str
    trim: bool = False

    @property
    def overlaps(self) -> tuple[str, ...]:
        """The ends of a text in front of which its separator would be found too early: `a|` is cut in `a|||b`."""
        parts = [self.separator[:size] for size in range(1, len(self.separator))]
        return tuple(part for part in parts if (part + self.separator).startswith(self.separator))

    @property
    def quoted(self) -> frozenset[str]:
        """Texts that are always quoted: that of NULL, and the empty one, which many readers take for NULL."""
        return frozenset([self.null, ""] if self.quote else [self.null])

    @property
    def blanks(self) -> str:
        """The characters that are removed around fields."""
        return "".join(one for one in _BLANKS if one not in self.separator) if self.trim else ""


class LineProblem(ValueError):
    """A line that cannot be split into fields."""


class LineSplitter:
    """Splits lines of one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self._separator = dialect.separator
        self._quote = dialect.quote
        self._escape = dialect.escape
        self._null = dialect.null
        self._blanks = dialect.blanks
        special = re.escape(dialect.quote + dialect.escape)
        self._special = re.compile(f"[{special}]") if dialect.quote else None
        quote, separator = re.escape(dialect.quote), re.escape(dialect.separator)
        self._plainly_quoted = (
            re.compile(rf"{quote}([^{special}]*){quote}(?={separator}|\Z)") if dialect.quote else None
        )
        """Matches most quoted fields at once."""

    def read(self, line: str) -> list[str | None]:
        """Returns the fields of a line, None for NULL. Raises LineProblem."""
        if line.endswith("\n"):
            line = line[:-1].removesuffix("\r")
        quoted = self._special is not None and self._quote in line
        return self._split_quoted(line) if quoted else self._split_plain(line)

    def _split_plain(self, line: str) -> list[str | None]:
        if "\n" in line or "\r" in line:
            raise LineProblem("it has several lines, but only quoted fields can contain line breaks")
        null, blanks = self._null, self._blanks
        if blanks:
            texts = [text.strip(blanks) for text in line.split(self._separator)]
            return [None if text == null else text for text in texts]
        return [None if text == null else text for text in line.split(self._separator)]

    def _split_quoted(self, line: str) -> list[str | None]:
        assert self._plainly_quoted is not None
        fields: list[str | None] = []
        match, at, end, separator = self._plainly_quoted.match, 0, len(line), self._separator
        while True:
            found = match(line, at)
            start = at if found else self._skip_blanks(line, at)
            if found:
                fields.append(found[1])
                at = found.end()
            elif line.startswith(self._quote, start):
                text, at = self._read_quoted(line, start, len(fields))
                fields.append(text)
                if at < end and not line.startswith(separator, at):
                    rest = line[at : at + _SHOWN_MAX]
                    raise LineProblem(f"column {len(fields)}: {rest!r} follows the closing quote")
            else:
                stop = line.find(separator, at)
                stop = end if stop < 0 else stop
                fields += self._split_plain(line[at:stop])
                at = stop
            if at >= end:
                return fields
            at += len(separator)

    def _skip_blanks(self, line: str, at: int) -> int:
        while self._blanks and at < len(line) and line[at] in self._blanks:
            at += 1
        return at

    def _read_quoted(self, line: str, start: int, column: int) -> tuple[str, int]:
        """Returns the text of a quoted field, and the position after it."""
        assert self._special is not None
        parts: list[str] = []
        at = start + 1
        while True:
            found = self._special.search(line, at)
            if found is None:
                raise LineProblem(f"column {column + 1}: the quote is not closed in {line[start:][:_SHOWN_MAX]!r}")
            parts.append(line[at : found.start()])
            at = found.end()
            if found[0] == self._escape and line[at : at + 1] in (self._quote, self._escape):
                parts.append(line[at])
                at += 1
            elif found[0] == self._quote:
                return "".join(parts), self._skip_blanks(line, at)
            else:
                parts.append(found[0])


def render_line(values: Iterable[Any], dialect: Dialect) -> str:
    """Returns the line of plain values, as people write them in YAML. Raises ValueError for one that no field holds."""
    return dialect.separator.join(_render_field(value, dialect) for value in values)


def _render_field(value: Any, dialect: Dialect) -> str:
    match value:
        case None:
            return dialect.null
        case bool():
            text = str(value).lower()
        case Decimal():
            text = render_number(value)
        case int() | float() | str():
            text = str(value)
        case _:
            raise ValueError(f"a field cannot hold {type(value).__name__}")
    marks = (dialect.separator, "\r", "\n", *dialect.quote)
    special = text in dialect.quoted or any(one in text for one in marks) or text.endswith(dialect.overlaps)
    if not special:
        return text
    if not dialect.quote:
        raise ValueError(f"{text[:_SHOWN_MAX]!r} needs quotes, but `quote` is empty")
    if dialect.escape != dialect.quote:
        text = text.replace(dialect.escape, dialect.escape * 2)
    return f"{dialect.quote}{text.replace(dialect.quote, dialect.escape + dialect.quote)}{dialect.quote}"


# -- settings ----------------------------------------------------------------------------------------------------------


_SEPARATOR_CHARACTERS_MAX: Final = 16
_NULL_CHARACTERS_MAX: Final = 100
_TAB: Final = 'a tab is `"\\t"`, in double quotes'
_BREAKS: Final = "\r\n\0"
_NO_QUOTES: Final = "write `quote: ''` for lines in which nothing is quoted"


def _text(value: object, what: str, remedy: str) -> str:
    if not isinstance(value, str):
        raise refusal(f"expected {what}, got {describe_value(value)}", f'put it in quotes: "..."; {remedy}')
    if any(one in value for one in _BREAKS):
        raise refusal(f"{what} cannot hold a line break or a zero byte", remedy)
    return value


def _separator(value: object) -> str:
    text = _text(value, "a separator", f"for instance `separator: ';'`; {_TAB}")
    if not 1 <= len(text) <= _SEPARATOR_CHARACTERS_MAX:
        raise refusal(f"the separator has {len(text)} characters", f"write 1 to {_SEPARATOR_CHARACTERS_MAX}")
    if "\\" in text:
        raise refusal(f"the separator {describe_value(text)} has a backslash", _TAB)
    return text


def _one_character(what: str, remedy: str, *, optional: bool) -> Callable[[object], str]:
    def check(value: object) -> str:
        text = _text(value, what, remedy)
        if len(text) > 1 or (not text and not optional) or not text.isascii():
            raise refusal(f"expected {what}, one ASCII character, got {describe_value(text)}", remedy)
        return text

    return check


def _null(value: object) -> str:
    text = _text(value, "the text of NULL", "for instance `null_value: '\\N'`, or '' for an empty field")
    if len(text) > _NULL_CHARACTERS_MAX:
        raise refusal(f"the text has {len(text)} characters", f"write at most {_NULL_CHARACTERS_MAX}")
    return text


_WORDS: Final = {"type": "string"}
_QUOTES: Final = "every value that needs quotes gets them; `quote_all: true` quotes all"
_TYPES: Final = "declare the column as a string, and convert it in a `select`: to_date(day, 'dd.MM.yyyy')"


class DelimitedSettings(Settings):
    """How fields of a line are written."""

    INSIDE: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("sep", "delimiter", "field_delimiter"), "write `separator`"),
        **dict.fromkeys(("quotechar", "quote_character"), "write `quote`"),
        **dict.fromkeys(("escapechar", "escape_character", "char_to_escape_quote_escaping"), "write `escape`"),
        **dict.fromkeys(("nullValue", "null", "null_text"), "write `null_value`"),
        **dict.fromkeys(
            ("empty", "emptyValue", "empty_value"),
            "empty texts are quoted if `null_value` is empty: there is nothing to set",
        ),
        **dict.fromkeys(("dateFormat", "date_format", "timestampFormat", "timestamp_format"), _TYPES),
        **dict.fromkeys(("encoding", "charset"), "lines are UTF-8"),
        **dict.fromkeys(("lineSep", "line_separator", "multiLine", "multiline"), "a record is one line"),
        **dict.fromkeys(("mode", "columnNameOfCorruptRecord"), "write `bad_records` in the source"),
        **dict.fromkeys(("quoteAll", "escapeQuotes", "escape_quotes"), _QUOTES),
        **dict.fromkeys(("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace"), "write `trim: true` in a source"),
    }
    separator: Annotated[
        str, ValueCheck(_separator, _WORDS), Field(description="The separator of fields: one or several characters.")
    ] = ","
    quote: Annotated[
        str,
        ValueCheck(_one_character("a quote", _NO_QUOTES, optional=True), _WORDS),
        Field(
            description=(
                "The character that encloses fields with the separator, a line break or a quote in them. Empty: "
                "fields are not quoted."
            )
        ),
    ] = '"'
    escape: Annotated[
        str | None,
        ValueCheck(_one_character("an escape", "leave it out: a quote is doubled", optional=False), _WORDS),
        Field(
            description="The character before a quote within quotes, and before itself. By default it is the quote, "
            "which is then doubled. Spark's default is a backslash."
        ),
    ] = None
    null_value: Annotated[
        str,
        ValueCheck(_null, _WORDS),
        Field(description="The text of NULL, without quotes; by default an empty field. In quotes it is that text."),
    ] = ""

    @model_validator(mode="after")
    def _differ(self) -> Self:
        for word, text in (("quote", self.quote), ("escape", self.escape)):
            if text and text in self.separator:
                raise refusal(f"`{word}` is part of the separator", "choose another", at=word)
        if self.escape is not None and not self.quote:
            raise refusal("an escape only occurs within quotes, but `quote` is empty", "remove it", at="escape")
        if (self.null_value + self.separator).find(self.separator) < len(self.null_value):
            raise refusal("the text of NULL holds the separator, or begins one", "choose another", at="null_value")
        if self.quote and self.quote in self.null_value:
            raise refusal("the text of NULL holds the quote", "choose another", at="null_value")
        return self

    @property
    def dialect(self) -> Dialect:
        """The dialect that these settings describe."""
        return Dialect(self.separator, self.quote, self.escape or self.quote, self.null_value)


class DelimitedSourceSettings(DelimitedSettings):
    """How a source reads fields of a line."""

    TITLE: ClassVar[str] = "Delimited lines of a source"
    header: Annotated[
        Flag,
        Field(
            description="Skip records that are a header line, the names of all columns in their order; they count as "
            "filtered. Each file that was written to the topic may begin with one."
        ),
    ] = False
    trim: Annotated[Flag, Field(description="Remove spaces and tabs around fields; not those within quotes.")] = False

    @property
    def dialect(self) -> Dialect:
        """The dialect that these settings describe."""
        return Dialect(self.separator, self.quote, self.escape or self.quote, self.null_value, self.trim)


class DelimitedSinkSettings(DelimitedSettings):
    """How a sink writes fields of a line."""

    TITLE: ClassVar[str] = "Delimited lines of a sink"
    INSIDE: ClassVar[Mapping[str, str]] = {
        "header": "a sink writes records, which have no header",
        **dict.fromkeys(("trim",), "a sink writes values unchanged: use the function `trim` in a `select`"),
    }
    quote_all: Annotated[Flag, Field(description="Quote every value, except NULL.")] = False
