"""The sections `delimited` of sources and sinks. Their keys are those of Spark's CSV reader where it has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Final, Self

from pydantic import Field, model_validator

from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import Flag, ValueCheck, describe_value, refusal
from tidegate.formats.kinds.delimited.lines import Dialect

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
