"""Typing rules of functions on bytes: character sets, percent-encoding, URLs, checksums, AES and its keys."""

from __future__ import annotations

import re
import uuid
from importlib.util import find_spec
from typing import Final

from tidegate.datatypes import BIGINT, BINARY, STRING, VOID
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression, Literal, columns_of
from tidegate.expressions.functions.core import Argument, Site, resolves, simple
from tidegate.expressions.secrets import FORMS, SECRET
from tidegate.expressions.typing_rules import NUMERIC

CHARACTER_SETS = ("us-ascii", "iso-8859-1", "utf-8", "utf-16be", "utf-16le", "utf-16")
URL_PARTS = ("HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE", "AUTHORITY", "USERINFO")
NAMESPACES = {
    "dns": uuid.NAMESPACE_DNS,
    "url": uuid.NAMESPACE_URL,
    "oid": uuid.NAMESPACE_OID,
    "x500": uuid.NAMESPACE_X500,
}
_HASHED = (*NUMERIC, "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz")


simple("text", BINARY, "unbase64")
simple("text", STRING, "url_encode", "url_decode", "try_url_decode")
simple("bytes", BIGINT, "crc32")


def _character_set(site: Site, argument: Argument) -> str:
    return site.one_of(argument, CHARACTER_SETS, "a character set", str.lower)


@resolves("encode", takes=2)
def _encode(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    return site.call(BINARY, site.text(arguments[0]), _character_set(site, arguments[1]))


@resolves("decode", takes=2)
def _decode(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    if arguments[0].type.kind not in ("binary", "void"):
        raise site.refuse(arguments[0], "binary")
    return site.call(STRING, site.bytes(arguments[0]), _character_set(site, arguments[1]))


@resolves("xxhash64", takes=(1, None))
def _checksum(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    for argument in arguments:
        if argument.type.kind not in _HASHED:
            raise site.refuse(argument, "text, bytes, numbers, booleans and times")
    return site.call(BIGINT, *map(site.any, arguments))


@resolves("uuid5", takes=2)
def _named_id(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    text = site.fixed_text(arguments[0])
    try:
        namespace = NAMESPACES.get(text.lower()) or uuid.UUID(text)
    except ValueError:
        raise ExpressionRefusal(
            arguments[0].start, f"'{text}' is not a namespace", "use a UUID, or one of " + ", ".join(NAMESPACES)
        ) from None
    if arguments[1].type == VOID:
        raise site.refuse(arguments[1], "a string")
    return site.call(STRING, str(namespace), site.text(arguments[1]))


@resolves("parse_url", takes=(2, 3))
def _parse_url(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    part = site.one_of(arguments[1], URL_PARTS, "a part of a URL")
    if len(arguments) == 2:
        return site.call(STRING, site.text(arguments[0]), part)
    if part != "QUERY":
        raise ExpressionRefusal(arguments[2].start, "only QUERY has values by name", "leave the third argument out")
    key = site.fixed_text(arguments[2])
    if not re.fullmatch(r"[A-Za-z0-9_-]+", key):
        raise ExpressionRefusal(
            arguments[2].start, "a name may only have letters, digits, _ and -", "use regexp_extract"
        )
    return site.call(STRING, site.text(arguments[0]), part, key)


PADDINGS: Final = {"GCM": ("DEFAULT", "NONE"), "CBC": ("DEFAULT", "PKCS"), "ECB": ("DEFAULT", "PKCS")}
"""The paddings that Spark has for each mode."""
_PACKAGE, _EXTRA = "cryptography", "encryption"


@resolves(SECRET, takes=(1, 2))
def _secret(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    name = site.fixed_text(arguments[0])
    form = site.fixed_text(arguments[1]) if len(arguments) == 2 else FORMS[0]
    if form not in FORMS:  # the text is not shown: it may be the key
        raise ExpressionRefusal(arguments[1].start, "the form of the key is unknown", "use one of " + ", ".join(FORMS))
    return site.call(BINARY, name, form)


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


def _mode_and_padding(site: Site, arguments: tuple[Argument, ...]) -> tuple[str, str]:
    """Returns mode and padding in upper case, as Spark reads them."""
    mode = site.one_of(arguments[2], PADDINGS, "a mode of AES", str.upper) if len(arguments) > 2 else "GCM"
    if len(arguments) < 4:
        return mode, "DEFAULT"
    return mode, site.one_of(arguments[3], PADDINGS[mode], f"a padding of {mode}", str.upper)


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


@resolves("aes_encrypt", takes=(2, 6))
def _encrypt(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    _refuse_missing(site)
    mode, padding = _mode_and_padding(site, arguments)
    iv, aad = (_optional(site, arguments, index) for index in (4, 5))
    _refuse_unused(mode, arguments[min(4, len(arguments) - 1)], iv, "an initialization vector", "GCM or CBC")
    _refuse_unused(mode, arguments[-1], aad, "additional authenticated data", "GCM")
    return site.call(BINARY, site.bytes(arguments[0]), _key(site, arguments[1]), mode, padding, iv, aad)


@resolves("aes_decrypt", "try_aes_decrypt", takes=(2, 5))
def _decrypt(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    _refuse_missing(site)
    mode, padding = _mode_and_padding(site, arguments)
    aad = _optional(site, arguments, 4)
    _refuse_unused(mode, arguments[-1], aad, "additional authenticated data", "GCM")
    return site.call(BINARY, site.bytes(arguments[0]), _key(site, arguments[1]), mode, padding, aad)
