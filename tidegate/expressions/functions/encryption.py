"""Typing rules of AES with a key that is not in the pipeline file."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from tidegate.datatypes import BINARY, STRING
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression, Literal, columns_of
from tidegate.expressions.functions.core import Argument, Function, Site, check_count
from tidegate.expressions.secrets import FORMS, SECRET

PADDINGS: Final = {"GCM": ("DEFAULT", "NONE"), "CBC": ("DEFAULT", "PKCS"), "ECB": ("DEFAULT", "PKCS")}
"""The paddings that Spark has for each mode."""
_PACKAGE, _EXTRA = "cryptography", "encryption"


def _secret(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, 2)
    name = site.fixed_text(arguments[0])
    form = site.fixed_text(arguments[1]) if len(arguments) == 2 else Literal(FORMS[0], STRING)
    if not (isinstance(form, Literal) and form.value in FORMS):
        raise ExpressionRefusal(arguments[1].start, "a key has no such form", "use one of " + ", ".join(FORMS))
    return Call(SECRET, (name, form), BINARY)


def _key(site: Site, argument: Argument) -> Expression:
    """Accepts a secret, or a key from the record, but not a key that is written in the file."""
    key = site.bytes(argument)
    if isinstance(key, Call) and key.function == SECRET:
        return key
    if not columns_of(key):
        raise ExpressionRefusal(
            argument.start,
            "a key that is written here is seen by everybody who sees the file, `explain` or a log",
            "write `secret('name')`, and `name: ${file:...}` in `secrets`; if the key was real, replace it",
        )
    return key


def _words(site: Site, arguments: tuple[Argument, ...]) -> tuple[str, tuple[Expression, Expression]]:
    """Returns mode and padding in upper case, as Spark reads them."""
    texts = ["GCM", "DEFAULT"]
    for index, argument in enumerate(arguments[2:4]):
        literal = site.fixed_text(argument)
        texts[index] = str(literal.value).upper() if isinstance(literal, Literal) else ""
    mode, padding = texts
    if mode not in PADDINGS:
        raise ExpressionRefusal(arguments[2].start, "AES has no such mode here", "use one of " + ", ".join(PADDINGS))
    if padding not in PADDINGS[mode]:
        raise ExpressionRefusal(arguments[3].start, f"{mode} has no such padding", "use " + " or ".join(PADDINGS[mode]))
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
        raise ExpressionRefusal(argument.start, f"{mode} has no {what}", f"leave it out, or use {users}")


def _encrypt(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 6)
    _refuse_missing(site)
    mode, words = _words(site, arguments)
    iv, aad = (_optional(site, arguments, index) for index in (4, 5))
    _refuse_unused(mode, arguments[min(4, len(arguments) - 1)], iv, "initialization vector", "GCM or CBC")
    _refuse_unused(mode, arguments[-1], aad, "additional authenticated data", "GCM")
    return Call(site.function, (site.bytes(arguments[0]), _key(site, arguments[1]), *words, iv, aad), BINARY)


def _decrypt(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 5)
    _refuse_missing(site)
    mode, words = _words(site, arguments)
    aad = _optional(site, arguments, 4)
    _refuse_unused(mode, arguments[-1], aad, "additional authenticated data", "GCM")
    return Call(site.function, (site.bytes(arguments[0]), _key(site, arguments[1]), *words, aad), BINARY)


_OPTIONS = "[, 'mode' [, 'padding'"

FUNCTIONS = (
    Function(
        SECRET,
        "encryption",
        "secret('name' [, 'form'])",
        "A key of `secrets` in the pipeline file, only as the key of the functions below. Its text is the key (`text`, "
        "the default), or the key in `base64` or `hex`. Spark has no such function.",
        _secret,
    ),
    Function(
        "aes_encrypt",
        "encryption",
        f"aes_encrypt(s, key{_OPTIONS} [, iv [, aad]]]])",
        "AES with a key of 16, 24 or 32 bytes: `GCM` (the default), `CBC` or `ECB`. Of GCM and CBC the initialization "
        "vector is in front; without `iv` it is drawn at random. Needs `pip install 'tidegate[encryption]'`, as do "
        "the two below.",
        _encrypt,
    ),
    Function(
        "aes_decrypt",
        "encryption",
        f"aes_decrypt(b, key{_OPTIONS} [, aad]]])",
        "The opposite. Another key, and bytes that were changed, fail the record (CBC and ECB do not always notice).",
        _decrypt,
    ),
    Function(
        "try_aes_decrypt",
        "encryption",
        f"try_aes_decrypt(b, key{_OPTIONS} [, aad]]])",
        "As aes_decrypt, but NULL for what cannot be decrypted.",
        _decrypt,
    ),
)
