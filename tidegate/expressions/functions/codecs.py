"""Typing rules of functions that encode text and bytes, and of checksums."""

from __future__ import annotations

import re
import uuid

from tidegate.datatypes import BIGINT, BINARY, STRING, VOID
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression, Literal
from tidegate.expressions.functions.core import Argument, Function, Site, check_count, simple

CHARACTER_SETS = ("us-ascii", "iso-8859-1", "utf-8", "utf-16be", "utf-16le", "utf-16", "utf-32")
URL_PARTS = ("HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE", "AUTHORITY", "USERINFO")
NAMESPACES = {
    "dns": uuid.NAMESPACE_DNS,
    "url": uuid.NAMESPACE_URL,
    "oid": uuid.NAMESPACE_OID,
    "x500": uuid.NAMESPACE_X500,
}
_HASHED = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date")
_HASHED_TYPES = (*_HASHED, "timestamp", "timestamp_ntz")


def _character_set(site: Site, argument: Argument) -> Expression:
    literal = site.fixed_text(argument)
    name = str(literal.value).lower() if isinstance(literal, Literal) else ""
    if name not in CHARACTER_SETS:
        raise ExpressionRefusal(
            argument.start, f"`{name}` is no character set", "use one of " + ", ".join(CHARACTER_SETS)
        )
    return Literal(name, STRING)


def _encode(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    return Call("encode", (site.text(arguments[0]), _character_set(site, arguments[1])), BINARY)


def _decode(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    if len(arguments) > 2:
        raise ExpressionRefusal(
            site.start,
            "`decode` of more than a binary and a character set is not supported",
            "write `case a when 1 then 'x' else 'y' end`",
        )
    check_count(site, arguments, 2, 2)
    if arguments[0].type.kind not in ("binary", "void"):
        raise site.refuse(arguments[0], "binary")
    return Call("decode", (site.bytes(arguments[0]), _character_set(site, arguments[1])), STRING)


def _checksum(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, None)
    for argument in arguments:
        if argument.type.kind not in _HASHED_TYPES:
            raise site.refuse(argument, "text, bytes, numbers, booleans and times")
    return Call("xxhash64", tuple(argument.expression for argument in arguments), BIGINT)


def _named_id(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    literal = site.fixed_text(arguments[0])
    text = str(literal.value) if isinstance(literal, Literal) else ""
    try:
        namespace = NAMESPACES.get(text.lower()) or uuid.UUID(text)
    except ValueError:
        raise ExpressionRefusal(
            arguments[0].start, f"'{text}' is no namespace", "use a UUID, or one of " + ", ".join(NAMESPACES)
        ) from None
    if arguments[1].type == VOID:
        raise site.refuse(arguments[1], "a string")
    return Call("uuid5", (Literal(str(namespace), STRING), site.text(arguments[1])), STRING)


def _parse_url(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 3)
    part = site.fixed_text(arguments[1])
    name = str(part.value) if isinstance(part, Literal) else ""
    if name not in URL_PARTS:
        raise ExpressionRefusal(
            arguments[1].start, f"`{name}` is no part of a URL", "use one of " + ", ".join(URL_PARTS)
        )
    if len(arguments) == 2:
        return Call("parse_url", (site.text(arguments[0]), part), STRING)
    if name != "QUERY":
        raise ExpressionRefusal(arguments[2].start, "only QUERY has values by name", "leave the third argument out")
    key = site.fixed_text(arguments[2])
    if not isinstance(key, Literal) or not re.fullmatch(r"[A-Za-z0-9_-]+", str(key.value)):
        raise ExpressionRefusal(
            arguments[2].start, "a name may have letters, digits, _ and - only", "use regexp_extract"
        )
    return Call("parse_url", (site.text(arguments[0]), part, key), STRING)


FUNCTIONS = (
    Function(
        "encode",
        "text",
        "encode(s, 'character set')",
        f"The bytes of the text in {', '.join(CHARACTER_SETS)}; a character that is not in the set fails its record.",
        _encode,
    ),
    Function(
        "decode",
        "text",
        "decode(b, 'character set')",
        "The text of the bytes; bytes that are no text in the set fail their record.",
        _decode,
    ),
    Function(
        "unbase64",
        "text",
        "unbase64(s)",
        "The bytes of text in base 64; other characters are left out.",
        simple("unbase64", "text", BINARY),
    ),
    Function(
        "url_encode", "text", "url_encode(s)", "As in a form, `+` for a blank.", simple("url_encode", "text", STRING)
    ),
    Function("url_decode", "text", "url_decode(s)", "The opposite.", simple("url_decode", "text", STRING)),
    Function(
        "try_url_decode",
        "text",
        "try_url_decode(s)",
        "As url_decode, but NULL for what is not encoded.",
        simple("try_url_decode", "text", STRING),
    ),
    Function(
        "parse_url",
        "text",
        "parse_url(s, 'part' [, 'name'])",
        f"A part of a URL, NULL without one: {', '.join(URL_PARTS)}; of QUERY also the value of a name.",
        _parse_url,
    ),
    Function("crc32", "hashes", "crc32(s)", "CRC-32 of the bytes, a bigint.", simple("crc32", "bytes", BIGINT)),
    Function(
        "xxhash64", "hashes", "xxhash64(a, b, ...)", "XXH64 of all values, seed 42; NULLs are left out.", _checksum
    ),
    Function(
        "uuid5",
        "hashes",
        "uuid5('namespace', s)",
        "The UUID (version 5, RFC 9562) of a name in a namespace: a UUID, or dns, url, oid or x500. The same for the "
        "same text, so a replay makes no other ids. Spark has no such function.",
        _named_id,
    ),
)
