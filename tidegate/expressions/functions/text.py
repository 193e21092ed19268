"""Typing rules of functions on text, of patterns in it, and of `format_string`. Patterns must be literals."""

from __future__ import annotations

import re

from tidegate.datatypes import BINARY, BOOLEAN, INT, STRING, DataType
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression
from tidegate.expressions.functions.core import Argument, Site, resolves, simple
from tidegate.expressions.patterns import KINDS, PatternRefused, derive_format
from tidegate.expressions.typing_rules import INTEGRAL
from tidegate.formats.java_regex import (
    RegexRefused,
    Translation,
    derive_like_regex,
    derive_rust_regex,
    derive_rust_replacement,
)

STRINGS = DataType("array", element=STRING)
MAX_REPEAT = 10_000
GROUP = re.compile(r"\\([0-9])")
"""The group syntax of other engines in a replacement. In Spark's `regexp_replace` it is the digit itself."""

simple("text", STRING, "upper", "lower", "initcap", "trim", "ltrim", "rtrim")
simple("text text?", STRING, "btrim", "trim leading", "trim trailing")
simple("text text", BOOLEAN, "contains", "startswith", "endswith")
simple("text integer", STRING, "right")
simple("text", BINARY, "unhex")
simple("characters", STRING, "reverse")
simple("characters integer", STRING, "left")
simple("characters integer integer?", STRING, "substring")
simple("bytes", INT, "length", "octet_length")
simple("bytes", STRING, "base64", "md5", "sha1")


@resolves("lpad", "rpad", takes=(2, 3))
def _pad(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    size = _bounded(site, arguments[1], f"pads to at most {MAX_REPEAT:,} characters")
    if len(arguments) == 2:  # Spark pads bytes with zeros, but converts them to text if the padding is text
        return site.call(STRING, site.characters(arguments[0]), size, " ")
    return site.call(STRING, site.text(arguments[0]), size, site.fixed_text(arguments[2]))


@resolves("repeat", takes=2)
def _repeat(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    limit = f"repeats a text at most {MAX_REPEAT:,} times"
    return site.call(STRING, site.text(arguments[0]), _bounded(site, arguments[1], limit))


def _bounded(site: Site, argument: Argument, limit: str) -> int:
    """Accepts a number that is known in advance, so that no record can ask for gigabytes."""
    size = site.fixed_integer(argument)
    if size > MAX_REPEAT:
        raise ExpressionRefusal(argument.start, f"`{site.function}` {limit}", "use a smaller number")
    return size


@resolves("replace", takes=(2, 3))
def _replace(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    new = site.fixed_text(arguments[2]) if len(arguments) == 3 else ""
    return site.call(STRING, site.text(arguments[0]), site.fixed_text(arguments[1]), new)


def fixed_pattern(
    site: Site, argument: Argument, *, nullable: bool = True, ends: bool = True
) -> tuple[str, Translation]:
    """Returns a pattern that can be run with Java's meaning for this purpose."""
    text = site.fixed_text(argument)
    _refuse_lost(argument)
    try:
        found = derive_rust_regex(text)
    except RegexRefused as refused:
        raise ExpressionRefusal(
            argument.start,
            f"the pattern has {refused}, which is not supported",
            refused.remedy or "write the pattern without it",
        ) from refused
    if found.nullable and not nullable:
        message = f"the pattern can match an empty text, which `{site.function}` does not support"
        raise ExpressionRefusal(argument.start, message, _nullable_remedy(text))
    if found.ends and not ends:
        raise ExpressionRefusal(
            argument.start,
            f"`$` in the pattern is not supported by `{site.function}`",
            r"write `\\z` for the end of the text",
        )
    return text, found


def _refuse_lost(argument: Argument) -> None:
    if argument.lost:
        message = f"`{argument.lost}` in a string literal is only `{argument.lost[1:]}`"
        if argument.lost == "\\b":
            message = r"`\b` in a string literal is a backspace"
        raise ExpressionRefusal(
            argument.start, message, f"write `\\{argument.lost}`: a string literal in SQL has two backslashes for one"
        )


def _nullable_remedy(text: str) -> str:
    if "|" in text:
        return "`|` separates alternatives: write '[|]' for the character"
    if text in ("", "^"):
        return "write the text to match"
    return "use + instead of *"


@resolves("rlike", takes=2)
def _rlike(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    return site.call(BOOLEAN, site.text(arguments[0]), fixed_pattern(site, arguments[1])[0])


@resolves("regexp_extract", takes=(2, 3))
def _extract(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    group = site.fixed_integer(arguments[2]) if len(arguments) == 3 else 1
    pattern, found = fixed_pattern(site, arguments[1], ends=group > 0)
    _check_group(arguments[1], group, found)
    if group in found.ending:
        raise ExpressionRefusal(
            arguments[1].start,
            f"`$` in group {group} is not supported by `regexp_extract`",
            r"write it after the group, or `\\z` for the end of the text",
        )
    return site.call(STRING, site.text(arguments[0]), pattern, group)


def _check_group(pattern: Argument, group: int, found: Translation) -> None:
    if not 0 <= group <= found.groups:
        problem = f"the pattern has no group {group}"
        raise ExpressionRefusal(pattern.start, problem, "add parentheses, or use group 0")


_PLACES = re.compile(r"\\[AzbB]")
"""Parts of a translated pattern that depend on the text around a match."""


@resolves("regexp_extract_all", takes=(2, 3))
def _extract_all(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    group = site.fixed_integer(arguments[2]) if len(arguments) == 3 else 1
    pattern, found = fixed_pattern(site, arguments[1], nullable=False, ends=False)
    _check_group(arguments[1], group, found)
    if group and _PLACES.search(found.pattern):
        raise ExpressionRefusal(
            arguments[1].start,
            rf"`^`, `\b` and the like are not supported in `{site.function}` with a group",
            "use group 0, or write the characters around it",
        )
    return site.call(STRINGS, site.text(arguments[0]), pattern, group)


_OF_PATTERN = {"regexp_count": INT, "regexp_substr": STRING, "regexp_instr": INT, "split": STRINGS}


@resolves(*_OF_PATTERN, takes=2)
def _of_pattern(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    pattern, _ = fixed_pattern(site, arguments[1], nullable=False, ends=False)
    return site.call(_OF_PATTERN[site.name], site.text(arguments[0]), pattern)


@resolves("regexp_replace", takes=3)
def _regexp_replace(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    pattern, found = fixed_pattern(site, arguments[1], nullable=False, ends=False)
    replacement = site.fixed_text(arguments[2])
    if not GROUP.fullmatch(arguments[2].lost):
        _refuse_lost(arguments[2])
    try:
        derive_rust_replacement(replacement, found.groups)
    except RegexRefused as refused:
        raise ExpressionRefusal(
            arguments[2].start, f"the replacement has {refused}", refused.remedy or "see `tidegate docs expressions`"
        ) from refused
    return site.call(STRING, site.text(arguments[0]), pattern, replacement)


@resolves("split_part", takes=3)
def _split_part(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    delimiter, part = site.fixed_text(arguments[1]), site.fixed_integer(arguments[2])
    if not delimiter:
        raise ExpressionRefusal(arguments[1].start, "`split_part` needs a delimiter", "name at least one character")
    if part == 0:
        raise ExpressionRefusal(arguments[2].start, "parts are counted from 1, or from -1 at the end", "use 1")
    return site.call(STRING, site.text(arguments[0]), delimiter, part)


@resolves("like", "ilike", takes=(2, 3))
def _like(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    pattern = site.fixed_text(arguments[1])
    escape = site.fixed_text(arguments[2]) if len(arguments) == 3 else "\\"
    if len(escape) != 1:
        raise ExpressionRefusal(arguments[-1].start, "the escape character must be one character", "write `escape '!'`")
    try:
        derive_like_regex(pattern, escape)
    except RegexRefused as refused:
        raise ExpressionRefusal(
            arguments[1].start, f"the LIKE pattern has {refused}", r"write \\ for a backslash, or use contains"
        ) from refused
    return site.call(BOOLEAN, site.text(arguments[0]), pattern, escape)


@resolves("instr", "locate", takes=2)
def _locate(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    text, part = arguments if site.name == "instr" else arguments[::-1]
    return Call("instr", (site.text(text), site.text(part)), INT)


@resolves("concat_ws", takes=(2, None))
def _joined(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    return site.call(STRING, site.fixed_text(arguments[0]), *map(site.text, arguments[1:]))


@resolves("hex", takes=1)
def _hex(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    [argument] = arguments
    if argument.type.kind in INTEGRAL:
        return site.call(STRING, site.bigint(argument))
    if argument.type.kind not in ("string", "binary", "void"):
        raise site.refuse(argument, "a whole number, a string or binary")
    return site.call(STRING, site.bytes(argument))


@resolves("sha2", takes=2)
def _sha2(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    bits = site.fixed_integer(arguments[1])
    if bits not in (0, 224, 256, 384, 512):
        raise ExpressionRefusal(arguments[1].start, f"sha2 does not have {bits} bits", "use 224, 256, 384 or 512")
    return site.call(STRING, site.bytes(arguments[0]), bits)


@resolves("format_string", takes=(1, None))
def _format(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    text = site.fixed_text(arguments[0])
    try:
        pieces = derive_format(text)
    except PatternRefused as refused:
        raise ExpressionRefusal(
            arguments[0].start,
            f"the format has {refused}, which is not supported",
            "use %d, %f and %s with the flags `-`, `0` and `,`, %% and %n",
        ) from refused
    for piece in pieces:
        if not piece.conversion:
            continue
        if piece.argument + 1 >= len(arguments):
            raise ExpressionRefusal(
                arguments[0].start, f"the format needs {piece.argument + 1} values", "add the missing values"
            )
        argument = arguments[piece.argument + 1]
        if argument.type.kind not in (*KINDS[piece.conversion], "void"):
            raise ExpressionRefusal(
                argument.start, f"`%{piece.conversion}` does not take {argument.type}", "cast it, to a string for %s"
            )
    return site.call(STRING, text, *map(site.any, arguments[1:]))
