"""The section `text` of a source: the pattern that takes lines apart."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import ValueCheck, check_column, describe_value, refusal, require_text
from tidegate.formats.java_regex import RegexRefused, derive_rust_regex

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
