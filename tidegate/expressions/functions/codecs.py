"""Typing rules of functions on bytes: character sets, percent-encoding, URLs, checksums, AES and its keys."""

from __future__ import annotations

import re
import uuid
from importlib.util import find_spec
from typing import Final

from tidegate.datatypes import BIGINT, BINARY, STRING, VOID
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression, Literal, columns_of
from tidegate.expressions.functions.core import Argument, Function, Site, check_count, simple
from tidegate.expressions.secrets import FORMS, SECRET

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
            argument.start, f"`{name}` is not a character set", "use one of " + ", ".join(CHARACTER_SETS)
        )
    return Literal(name, STRING)


def _encode(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    return Call("encode", (site.text(arguments[0]), _character_set(site, arguments[1])), BINARY)


def _decode(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    if len(arguments) > 2:
        raise ExpressionRefusal(
            site.start,
            "`decode` takes a binary and a character set; its form as a CASE is not supported",
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
            arguments[0].start, f"'{text}' is not a namespace", "use a UUID, or one of " + ", ".join(NAMESPACES)
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
            arguments[1].start, f"`{name}` is not a part of a URL", "use one of " + ", ".join(URL_PARTS)
        )
    if len(arguments) == 2:
        return Call("parse_url", (site.text(arguments[0]), part), STRING)
    if name != "QUERY":
        raise ExpressionRefusal(arguments[2].start, "only QUERY has values by name", "leave the third argument out")
    key = site.fixed_text(arguments[2])
    if not isinstance(key, Literal) or not re.fullmatch(r"[A-Za-z0-9_-]+", str(key.value)):
        raise ExpressionRefusal(
            arguments[2].start, "a name may only have letters, digits, _ and -", "use regexp_extract"
        )
    return Call("parse_url", (site.text(arguments[0]), part, key), STRING)


PADDINGS: Final = {"GCM": ("DEFAULT", "NONE"), "CBC": ("DEFAULT", "PKCS"), "ECB": ("DEFAULT", "PKCS")}
"""The paddings that Spark has for each mode."""
_PACKAGE, _EXTRA = "cryptography", "encryption"


def _secret(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, 2)
    name = site.fixed_text(arguments[0])
    form = site.fixed_text(arguments[1]) if len(arguments) == 2 else Literal(FORMS[0], STRING)
    if not (isinstance(form, Literal) and form.value in FORMS):
        raise ExpressionRefusal(arguments[1].start, "the form of the key is unknown", "use one of " + ", ".join(FORMS))
    return Call(SECRET, (name, form), BINARY)


def _key(site: Site, argument: Argument) -> Expression:
    """Accepts a secret, or a key from the record, but not a key that is written in the file."""
    key = site.bytes(argument)
    if isinstance(key, Call) and key.function == SECRET:
        return key
    if not columns_of(key):
        raise ExpressionRefusal(
            argument.start,
            "a key in an expression is visible in the file, in `explain` and in logs",
            "write `secret('name')`, and `name: ${file:...}` in `secrets`; if the key was real, replace it",
        )
    return key


def _mode_and_padding(site: Site, arguments: tuple[Argument, ...]) -> tuple[str, tuple[Expression, Expression]]:
    """Returns mode and padding in upper case, as Spark reads them."""
    texts = ["GCM", "DEFAULT"]
    for index, argument in enumerate(arguments[2:4]):
        literal = site.fixed_text(argument)
        texts[index] = str(literal.value).upper() if isinstance(literal, Literal) else ""
    mode, padding = texts
    if mode not in PADDINGS:
        raise ExpressionRefusal(
            arguments[2].start, "the mode of AES is not supported", "use one of " + ", ".join(PADDINGS)
        )
    if padding not in PADDINGS[mode]:
        raise ExpressionRefusal(
            arguments[3].start, f"{mode} does not have this padding", "use " + " or ".join(PADDINGS[mode])
        )
    return mode, (Literal(mode, STRING), Literal(padding, STRING))


def _optional(site: Site, arguments: tuple[Argument, ...], index: int) -> Expression:
    return site.bytes(arguments[index]) if len(arguments) > index else Literal("", STRING)


def _refuse_missing(site: Site) -> None:
    if find_spec(_PACKAGE) is None:
        raise ExpressionRefusal(
            site.start,
            f"`{site.function}` needs the package {_PACKAGE}, which is not installed",
            f"pip install 'tidegate[{_EXTRA}]', here and where the slots run",
        )


def _refuse_unused(mode: str, argument: Argument, given: Expression, what: str, users: str) -> None:
    if mode not in users and not (isinstance(given, Literal) and given.value == ""):
        raise ExpressionRefusal(argument.start, f"{mode} does not take {what}", f"leave it out, or use {users}")


def _encrypt(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 6)
    _refuse_missing(site)
    mode, chosen = _mode_and_padding(site, arguments)
    iv, aad = (_optional(site, arguments, index) for index in (4, 5))
    _refuse_unused(mode, arguments[min(4, len(arguments) - 1)], iv, "an initialization vector", "GCM or CBC")
    _refuse_unused(mode, arguments[-1], aad, "additional authenticated data", "GCM")
    return Call(site.function, (site.bytes(arguments[0]), _key(site, arguments[1]), *chosen, iv, aad), BINARY)


def _decrypt(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 5)
    _refuse_missing(site)
    mode, chosen = _mode_and_padding(site, arguments)
    aad = _optional(site, arguments, 4)
    _refuse_unused(mode, arguments[-1], aad, "additional authenticated data", "GCM")
    return Call(site.function, (site.bytes(arguments[0]), _key(site, arguments[1]), *chosen, aad), BINARY)


_OPTIONS = "[, 'mode' [, 'padding'"


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
        "The text of the bytes; bytes that are not valid in the set fail their record.",
        _decode,
    ),
    Function(
        "unbase64",
        "text",
        "unbase64(s)",
        "The bytes of text in base64; other characters are skipped.",
        simple("unbase64", "text", BINARY),
    ),
    Function(
        "url_encode",
        "text",
        "url_encode(s)",
        "The text in percent-encoding, as in a form: `+` is a space.",
        simple("url_encode", "text", STRING),
    ),
    Function(
        "url_decode", "text", "url_decode(s)", "The text of such an encoding.", simple("url_decode", "text", STRING)
    ),
    Function(
        "try_url_decode",
        "text",
        "try_url_decode(s)",
        "Like url_decode, but NULL for text that is not valid.",
        simple("try_url_decode", "text", STRING),
    ),
    Function(
        "parse_url",
        "text",
        "parse_url(s, 'part' [, 'name'])",
        f"A part of a URL, or NULL: {', '.join(URL_PARTS)}. With a name, the value of that name in QUERY.",
        _parse_url,
    ),
    Function("crc32", "hashes", "crc32(s)", "CRC-32 of the bytes, as a bigint.", simple("crc32", "bytes", BIGINT)),
    Function(
        "xxhash64", "hashes", "xxhash64(a, b, ...)", "XXH64 of all values with seed 42; NULLs are skipped.", _checksum
    ),
    Function(
        "uuid5",
        "hashes",
        "uuid5('namespace', s)",
        "The UUID (version 5, RFC 9562) of a name in a namespace, which is a UUID, dns, url, oid or x500. Equal texts "
        "have equal ids, so a replay creates the same ones. Not in Spark.",
        _named_id,
    ),
    Function(
        SECRET,
        "encryption",
        "secret('name' [, 'form'])",
        "A key of `secrets` in the pipeline file, for the functions below only. Its text is the key (`text`, the "
        "default), or the key in `base64` or `hex`. Not in Spark.",
        _secret,
    ),
    Function(
        "aes_encrypt",
        "encryption",
        f"aes_encrypt(s, key{_OPTIONS} [, iv [, aad]]]])",
        "AES with a key of 16, 24 or 32 bytes: `GCM` (the default), `CBC` or `ECB`. With GCM and CBC the result "
        "begins with the initialization vector, which is random unless `iv` sets it. Needs "
        "`pip install 'tidegate[encryption]'`, as do the two functions below.",
        _encrypt,
    ),
    Function(
        "aes_decrypt",
        "encryption",
        f"aes_decrypt(b, key{_OPTIONS} [, aad]]])",
        "Decrypts. A wrong key or modified bytes fail the record (CBC and ECB do not always detect them).",
        _decrypt,
    ),
    Function(
        "try_aes_decrypt",
        "encryption",
        f"try_aes_decrypt(b, key{_OPTIONS} [, aad]]])",
        "Like aes_decrypt, but NULL if the bytes cannot be decrypted.",
        _decrypt,
    ),
)
