"""Keys in expressions: `secret('name')` is a name everywhere except in a slot, where the key replaces it.

Everything that people and files see (explain, digests in the journal and in state, messages, the plan's operators)
contains the name. The keys are sent separately from the operators of a plan, like passwords. They are inserted into the
expressions where these are run.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, cast

import msgspec

from tidegate.datatypes import STRING
from tidegate.expressions.expression import Call, Expression, Literal, children_of, parts_of

SECRET: Final = "secret"  # noqa: S105  # the name of a function
CIPHERS: Final = frozenset({"aes_encrypt", "aes_decrypt", "try_aes_decrypt"})
FORMS: Final = ("text", "base64", "hex")
"""The encodings of a secret's bytes as text. `text` is UTF-8, which is how Spark converts a string to bytes."""
KEY_BYTES: Final = (16, 24, 32)

T = TypeVar("T")


class KeyUnusable(ValueError):
    """A secret that is not a valid key. The message contains the reason, but nothing of the secret."""


def derive_key_bytes(text: str, form: str) -> bytes:
    """Returns the bytes of a key. Raises KeyUnusable."""
    try:
        if form == "base64":
            key = base64.b64decode("".join(text.split()), validate=True)
        else:
            key = bytes.fromhex(text) if form == "hex" else text.encode()
    except (binascii.Error, ValueError):
        raise KeyUnusable(f"it is not {form}") from None
    if len(key) not in KEY_BYTES:
        raise KeyUnusable(f"it has {len(key)} bytes, a key has 16, 24 or 32")
    return key


def name_and_form(call: Call) -> tuple[str, str]:
    """Returns the name and the form of a `secret(...)` call."""
    name, form = call.arguments[:2]
    assert isinstance(name, Literal)
    assert isinstance(form, Literal)
    return str(name.value), str(form.value)


def find_secrets(expression: Expression, *, is_key: bool = False) -> Iterator[tuple[Call, bool]]:
    """Yields every `secret(...)` in an expression, and whether it is used as a key."""
    if isinstance(expression, Call) and expression.function == SECRET:
        yield expression, is_key
        return
    is_cipher = isinstance(expression, Call) and expression.function in CIPHERS
    for index, part in enumerate(children_of(expression)):
        yield from find_secrets(part, is_key=is_cipher and index == 1)


def find_encrypted(expression: Expression) -> Iterator[Expression]:
    """Yields what an expression encrypts or decrypts with a `secret(...)`."""
    for part in parts_of(expression):
        if isinstance(part, Call) and part.function in CIPHERS and any(find_secrets(part.arguments[1])):
            yield part.arguments[0]


def is_random(expression: Expression) -> bool:
    """Returns whether the value differs when it is computed again, because an initialization vector is drawn for it."""
    return any(map(_draws, parts_of(expression)))


def _draws(part: Expression) -> bool:
    match part:
        case Call(function="aes_encrypt", arguments=(_, _, mode, _, iv, _)):
            return _is_text(iv, "") and not _is_text(mode, "ECB")
    return False


def _is_text(expression: Expression, text: str) -> bool:
    return isinstance(expression, Literal) and expression.value == text


def reveal_secrets(value: T, secrets: Mapping[str, str]) -> T:
    """Returns the same value (operators, expressions, collections of these) with the keys inserted. The result and
    anything derived from it must not be shown, written or compared. Raises KeyError for an unknown name.
    """
    return cast("T", _revealed(value, lambda name, form: derive_key_bytes(secrets[name], form)))


def put_stand_ins(value: T) -> T:
    """Returns the same value with a placeholder key, to check whether an expression can be run."""
    return cast("T", _revealed(value, lambda _name, _form: bytes(KEY_BYTES[0])))


def _revealed(value: Any, find: Callable[[str, str], bytes]) -> Any:
    if isinstance(value, Call) and value.function == SECRET:
        key = Literal(find(*name_and_form(value)).hex(), STRING)
        return msgspec.structs.replace(value, arguments=(*value.arguments[:2], key))
    if isinstance(value, msgspec.Struct):
        found = {name: (old, _revealed(old, find)) for name, old in msgspec.structs.asdict(value).items()}
        changed = {name: new for name, (old, new) in found.items() if new is not old}
        return msgspec.structs.replace(value, **changed) if changed else value
    if isinstance(value, tuple | list):
        items = [_revealed(one, find) for one in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else type(value)(items)
    if isinstance(value, dict):
        inner = {name: _revealed(one, find) for name, one in value.items()}
        return inner if any(inner[name] is not one for name, one in value.items()) else value
    return value
