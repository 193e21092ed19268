"""Typing rules of functions on text, of patterns in it, and of `format_string`. Patterns must be literals."""

from __future__ import annotations

import re

from tidegate.datatypes import BIGINT, BINARY, BOOLEAN, INT, STRING, DataType
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression, Literal, text_of
from tidegate.expressions.functions.core import Argument, Function, Resolve, Site, check_count, simple
from tidegate.expressions.patterns import KINDS, PatternRefused, derive_format
from tidegate.expressions.remarks import GROUP
from tidegate.expressions.typing_rules import with_type
from tidegate.formats.java_regex import (
    RegexRefused,
    Translation,
    derive_like_regex,
    derive_rust_regex,
    derive_rust_replacement,
)

STRINGS = DataType("array", element=STRING)
MAX_REPEAT = 10_000
_LIMITED = f"a literal, at most {MAX_REPEAT:,}"


def _text(name: str, parameters: str = "text", result: DataType = STRING) -> Resolve:
    return simple(name, parameters, result)


def _characters(site: Site, argument: Argument) -> Expression:
    """Accepts text. Rejects binary, of which Spark would take the bytes."""
    if argument.type == BINARY:
        raise ExpressionRefusal(
            argument.start,
            f"`{site.function}` of bytes is not supported",
            f"write `cast({text_of(argument.expression)} as string)` for its characters",
        )
    return site.text(argument)


def _substring(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 3)
    return Call("substring", (_characters(site, arguments[0]), *map(site.integer, arguments[1:])), STRING)


def _left(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    return Call("left", (_characters(site, arguments[0]), site.integer(arguments[1])), STRING)


def _reverse(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, 1)
    return Call("reverse", (_characters(site, arguments[0]),), STRING)


def _pad(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 3)
    size = _bounded(site, arguments[1], f"pads to at most {MAX_REPEAT:,} characters")
    if len(arguments) == 2:  # Spark pads bytes with zeros, but converts them to text if the padding is text
        return Call(site.function, (_characters(site, arguments[0]), size, Literal(" ", STRING)), STRING)
    return Call(site.function, (site.text(arguments[0]), size, site.fixed_text(arguments[2])), STRING)


def _repeat(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    limit = f"repeats a text at most {MAX_REPEAT:,} times"
    return Call("repeat", (site.text(arguments[0]), _bounded(site, arguments[1], limit)), STRING)


def _bounded(site: Site, argument: Argument, limit: str) -> Expression:
    """Accepts a number that is known in advance, so that no record can ask for gigabytes."""
    size = site.fixed_integer(argument)
    if isinstance(size, Literal) and int(size.value or 0) > MAX_REPEAT:
        raise ExpressionRefusal(argument.start, f"`{site.function}` {limit}", "use a smaller number")
    return size


def _replace(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 3)
    new = site.fixed_text(arguments[2]) if len(arguments) == 3 else Literal("", STRING)
    return Call("replace", (site.text(arguments[0]), site.fixed_text(arguments[1]), new), STRING)


def fixed_pattern(
    site: Site, argument: Argument, *, nullable: bool = True, ends: bool = True
) -> tuple[Expression, Translation]:
    """Returns a pattern that can be run with Java's meaning for this purpose."""
    literal = site.fixed_text(argument)
    _refuse_lost(argument)
    text = str(literal.value) if isinstance(literal, Literal) else ""
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
    return literal, found


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


def _rlike(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    return Call("rlike", (site.text(arguments[0]), fixed_pattern(site, arguments[1])[0]), BOOLEAN)


def _extract(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 3)
    group = site.fixed_integer(arguments[2]) if len(arguments) == 3 else Literal(1, INT)
    number = int(group.value or 0) if isinstance(group, Literal) else 0
    pattern, found = fixed_pattern(site, arguments[1], ends=number > 0)
    if not 0 <= number <= found.groups:
        raise ExpressionRefusal(
            arguments[1].start,
            f"the pattern has no group {number}",
            "add parentheses, or use group 0",
        )
    if number in found.ending:
        raise ExpressionRefusal(
            arguments[1].start,
            f"`$` in group {number} is not supported by `regexp_extract`",
            r"write it after the group, or `\\z` for the end of the text",
        )
    return Call("regexp_extract", (site.text(arguments[0]), pattern, group), STRING)


def _regexp_replace(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 3, 3)
    pattern, found = fixed_pattern(site, arguments[1], nullable=False, ends=False)
    replacement = site.fixed_text(arguments[2])
    if not GROUP.fullmatch(arguments[2].lost):
        _refuse_lost(arguments[2])
    try:
        derive_rust_replacement(str(replacement.value) if isinstance(replacement, Literal) else "", found.groups)
    except RegexRefused as refused:
        raise ExpressionRefusal(
            arguments[2].start, f"the replacement has {refused}", refused.remedy or "see `tidegate docs expressions`"
        ) from refused
    return Call("regexp_replace", (site.text(arguments[0]), pattern, replacement), STRING)


def _split(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    pattern, _ = fixed_pattern(site, arguments[1], nullable=False, ends=False)
    return Call("split", (site.text(arguments[0]), pattern), STRINGS)


def _split_part(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 3, 3)
    delimiter, part = site.fixed_text(arguments[1]), site.fixed_integer(arguments[2])
    if isinstance(delimiter, Literal) and delimiter.value == "":
        raise ExpressionRefusal(arguments[1].start, "`split_part` needs a delimiter", "name at least one character")
    if isinstance(part, Literal) and part.value == 0:
        raise ExpressionRefusal(arguments[2].start, "parts are counted from 1, or from -1 at the end", "use 1")
    return Call("split_part", (site.text(arguments[0]), delimiter, part), STRING)


def _like(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 3)
    pattern = site.fixed_text(arguments[1])
    escape = site.fixed_text(arguments[2]) if len(arguments) == 3 else Literal("\\", STRING)
    if not isinstance(pattern, Literal) or not isinstance(escape, Literal) or len(str(escape.value)) != 1:
        raise ExpressionRefusal(arguments[-1].start, "the escape character must be one character", "write `escape '!'`")
    try:
        derive_like_regex(str(pattern.value), str(escape.value))
    except RegexRefused as refused:
        raise ExpressionRefusal(
            arguments[1].start, f"the LIKE pattern has {refused}", r"write \\ for a backslash, or use contains"
        ) from refused
    return Call(site.function, (site.text(arguments[0]), pattern, escape), BOOLEAN)


def _locate(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    text, part = (1, 0) if site.function in ("locate", "position") else (0, 1)
    return Call("instr", (site.text(arguments[text]), site.text(arguments[part])), INT)


def _joined(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, None)
    return Call("concat_ws", (site.fixed_text(arguments[0]), *map(site.text, arguments[1:])), STRING)


def _hex(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, 1)
    (argument,) = arguments
    if argument.type.kind in ("tinyint", "smallint", "int", "bigint"):
        return Call("hex", (with_type(argument.start, argument.expression, BIGINT),), STRING)
    if argument.type.kind not in ("string", "binary", "void"):
        raise site.refuse(argument, "a whole number, a string or binary")
    return Call("hex", (site.bytes(argument),), STRING)


def _sha2(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    bits = site.fixed_integer(arguments[1])
    if isinstance(bits, Literal) and bits.value not in (0, 224, 256, 384, 512):
        raise ExpressionRefusal(arguments[1].start, f"sha2 does not have {bits.value} bits", "use 224, 256, 384 or 512")
    return Call("sha2", (site.bytes(arguments[0]), bits), STRING)


_PLACES = re.compile(r"\\[AzbB]")
"""Parts of a translated pattern that depend on the text around a match."""


def _of_pattern(name: str, result: DataType) -> Resolve:
    """Types a function of a text and a pattern that cannot match the empty string and has no `$`."""

    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 2, 2)
        pattern, _ = fixed_pattern(site, arguments[1], nullable=False, ends=False)
        return Call(name, (site.text(arguments[0]), pattern), result)

    return resolve


def _extract_all(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 3)
    group = site.fixed_integer(arguments[2]) if len(arguments) == 3 else Literal(1, INT)
    number = int(group.value or 0) if isinstance(group, Literal) else 0
    pattern, found = fixed_pattern(site, arguments[1], nullable=False, ends=False)
    if not 0 <= number <= found.groups:
        raise ExpressionRefusal(
            arguments[1].start,
            f"the pattern has no group {number}",
            "add parentheses, or use group 0",
        )
    if number and _PLACES.search(found.pattern):
        raise ExpressionRefusal(
            arguments[1].start,
            rf"`^`, `\b` and the like are not supported in `{site.function}` with a group",
            "use group 0, or write the characters around it",
        )
    return Call("regexp_extract_all", (site.text(arguments[0]), pattern, group), DataType("array", element=STRING))


def _format(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, None)
    literal = site.fixed_text(arguments[0])
    try:
        pieces = derive_format(str(literal.value) if isinstance(literal, Literal) else "")
    except PatternRefused as refused:
        raise ExpressionRefusal(
            arguments[0].start,
            f"the format has {refused}, which is not supported",
            "use %d %x %X %o %e %f %s %S %b %% %n",
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
    return Call("format_string", (literal, *(site.any(argument) for argument in arguments[1:])), STRING)


FUNCTIONS = (
    Function("upper", "text", "upper(s)", "The text in upper case.", _text("upper"), ("ucase",)),
    Function("lower", "text", "lower(s)", "The text in lower case.", _text("lower"), ("lcase",)),
    Function(
        "initcap",
        "text",
        "initcap(s)",
        "The text with the first letter of each word in upper case, the others in lower case; words end at spaces.",
        _text("initcap"),
    ),
    Function(
        "length",
        "text",
        "length(s)",
        "Characters of a string, bytes of a binary.",
        simple("length", "bytes", INT),
        ("len", "char_length", "character_length"),
    ),
    Function(
        "octet_length", "text", "octet_length(s)", "Bytes of the text in UTF-8.", simple("octet_length", "bytes", INT)
    ),
    Function("trim", "text", "trim(s)", "The text without spaces (U+0020) at both ends.", _text("trim")),
    Function("ltrim", "text", "ltrim(s)", "The text without spaces at its beginning.", _text("ltrim")),
    Function("rtrim", "text", "rtrim(s)", "The text without spaces at its end.", _text("rtrim")),
    Function(
        "btrim",
        "text",
        "btrim(s [, chars]), trim([both] chars from s)",
        "The text without any of chars at both ends.",
        simple("btrim", "text text?", STRING),
    ),
    Function(
        "trim leading",
        "text",
        "trim(leading chars from s)",
        "The text without any of chars at its beginning.",
        simple("trim leading", "text text?", STRING),
    ),
    Function(
        "trim trailing",
        "text",
        "trim(trailing chars from s)",
        "The text without any of chars at its end.",
        simple("trim trailing", "text text?", STRING),
    ),
    Function(
        "substring",
        "text",
        "substring(s, start [, length])",
        "The text from position start (1 is the first character, -1 the last).",
        _substring,
        ("substr",),
    ),
    Function("left", "text", "left(s, n)", "The first n characters.", _left),
    Function("right", "text", "right(s, n)", "The last n characters.", simple("right", "text integer", STRING)),
    Function(
        "lpad",
        "text",
        "lpad(s, length [, pad])",
        f"The text padded at its beginning, or cut, to a length: {_LIMITED}.",
        _pad,
    ),
    Function(
        "rpad", "text", "rpad(s, length [, pad])", f"The text padded at its end, or cut, to a length: {_LIMITED}.", _pad
    ),
    Function("repeat", "text", "repeat(s, n)", f"The text repeated n times: {_LIMITED}.", _repeat),
    Function("reverse", "text", "reverse(s)", "The characters in reverse order.", _reverse),
    Function(
        "concat_ws",
        "text",
        "concat_ws(separator, a, b, ...)",
        "The values joined with a literal separator; NULLs are skipped.",
        _joined,
    ),
    Function(
        "contains", "text", "contains(s, part)", "Whether part occurs in s.", _text("contains", "text text", BOOLEAN)
    ),
    Function(
        "startswith",
        "text",
        "startswith(s, start)",
        "Whether s begins with start.",
        _text("startswith", "text text", BOOLEAN),
    ),
    Function(
        "endswith", "text", "endswith(s, end)", "Whether s ends with end.", _text("endswith", "text text", BOOLEAN)
    ),
    Function(
        "instr",
        "text",
        "instr(s, part)",
        "The position of part in s, counted from 1; 0 if s does not contain it.",
        _locate,
    ),
    Function(
        "locate",
        "text",
        "locate(part, s), position(part in s)",
        "Like instr with the arguments swapped.",
        _locate,
        ("position",),
    ),
    Function(
        "replace",
        "text",
        "replace(s, old [, new])",
        "The text with every old replaced by new; both are literals.",
        _replace,
    ),
    Function("split", "text", "split(s, pattern)", "The parts between matches of a literal pattern, an array.", _split),
    Function(
        "split_part",
        "text",
        "split_part(s, delimiter, n)",
        "The n-th part, from the end if n is negative; empty if there is none.",
        _split_part,
    ),
    Function(
        "like",
        "text",
        "s [not] like pattern [escape c]",
        "Whether the whole text matches a literal pattern: `%` is any text, `_` one character.",
        _like,
    ),
    Function("ilike", "text", "s [not] ilike pattern [escape c]", "Like `like`, ignoring case.", _like),
    Function(
        "rlike",
        "text",
        "s [not] rlike pattern, regexp_like(s, pattern)",
        "Whether a literal pattern (Java's syntax) matches a part of the text.",
        _rlike,
        ("regexp_like", "regexp"),
    ),
    Function(
        "regexp_extract",
        "text",
        "regexp_extract(s, pattern [, group])",
        "A group (default 1) of the first match; empty if there is none.",
        _extract,
    ),
    Function(
        "regexp_replace",
        "text",
        "regexp_replace(s, pattern, replacement)",
        "The text with every match replaced; `$1` is a group. Pattern and replacement are literals.",
        _regexp_replace,
    ),
    Function("hex", "text", "hex(a)", "Bytes of a text or binary, or a whole number (64 bits), in hexadecimal.", _hex),
    Function(
        "unhex",
        "text",
        "unhex(s)",
        "The bytes of hexadecimal text; NULL for other text.",
        _text("unhex", "text", BINARY),
    ),
    Function(
        "base64", "text", "base64(s)", "The bytes of a text or binary in base64.", simple("base64", "bytes", STRING)
    ),
    Function("md5", "hashes", "md5(s)", "MD5 of the bytes in hexadecimal.", simple("md5", "bytes", STRING)),
    Function(
        "sha1", "hashes", "sha1(s)", "SHA-1 of the bytes in hexadecimal.", simple("sha1", "bytes", STRING), ("sha",)
    ),
    Function("sha2", "hashes", "sha2(s, bits)", "SHA-224, 256 (also 0), 384 or 512 in hexadecimal.", _sha2),
    Function(
        "regexp_extract_all",
        "text",
        "regexp_extract_all(s, pattern [, group])",
        "A group (default 1) of every match, as an array.",
        _extract_all,
    ),
    Function(
        "regexp_count",
        "text",
        "regexp_count(s, pattern)",
        "The number of matches.",
        _of_pattern("regexp_count", INT),
    ),
    Function(
        "regexp_substr",
        "text",
        "regexp_substr(s, pattern)",
        "The first match; NULL if there is none.",
        _of_pattern("regexp_substr", STRING),
    ),
    Function(
        "regexp_instr",
        "text",
        "regexp_instr(s, pattern)",
        "The position of the first match, counted from 1; 0 if there is none.",
        _of_pattern("regexp_instr", INT),
    ),
    Function(
        "format_string",
        "text",
        "format_string('%05d %s', a, b, ...)",
        "The values in a format as in Java: %d %x %X %o %e %f %s %S %b %% %n, with flags, width and precision.",
        _format,
        ("printf",),
    ),
)
