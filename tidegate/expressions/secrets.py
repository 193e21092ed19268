"""Keys in expressions: `secret('name')` is a name everywhere but in a slot, where the key takes its place.

What people and files see (explain, digests in the journal and in state, messages, the plan's operators) has the name.
The keys travel beside the operators of a plan, as passwords do, and are put into the expressions where they are run.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, cast

import msgspec

from tidegate.datatypes import STRING
from tidegate.expressions.expression import Call, Cast, Expression, FieldAccess, Lambda, Literal

SECRET: Final = "secret"  # noqa: S105 - the name of a function
CIPHERS: Final = frozenset({"aes_encrypt", "aes_decrypt", "try_aes_decrypt"})
FORMS: Final = ("text", "base64", "hex")
"""How the text of a secret says its bytes; `text` is UTF-8, as Spark makes bytes of a string."""
KEY_BYTES: Final = (16, 24, 32)

T = TypeVar("T")


class KeyUnusable(ValueError):
    """A secret is no key; the message says why, and nothing of the secret."""


def derive_key_bytes(text: str, form: str) -> bytes:
    """The bytes of a key. Raises KeyUnusable."""
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
    """What `secret(...)` says."""
    name, form = call.arguments[:2]
    assert isinstance(name, Literal)
    assert isinstance(form, Literal)
    return str(name.value), str(form.value)


def find_secrets(expression: Expression, *, is_key: bool = False) -> Iterator[tuple[Call, bool]]:
    """Every `secret(...)` in an expression, and whether it stands where a key is wanted."""
    match expression:
        case Call(function=function, arguments=arguments):
            if function == SECRET:
                yield expression, is_key
                return
            for index, argument in enumerate(arguments):
                yield from find_secrets(argument, is_key=function in CIPHERS and index == 1)
        case Cast(operand=part) | FieldAccess(base=part) | Lambda(body=part):
            yield from find_secrets(part)


def is_random(expression: Expression) -> bool:
    """Whether the value is another one when it is computed again: an initialization vector is drawn for it."""
    match expression:
        case Call(function="aes_encrypt", arguments=(_, _, mode, _, iv, _)) if _is_text(iv, ""):
            return not _is_text(mode, "ECB") or any(map(is_random, expression.arguments))
        case Call(arguments=arguments):
            return any(map(is_random, arguments))
        case Cast(operand=part) | FieldAccess(base=part) | Lambda(body=part):
            return is_random(part)
    return False


def _is_text(expression: Expression, text: str) -> bool:
    return isinstance(expression, Literal) and expression.value == text


def reveal_secrets(value: T, secrets: Mapping[str, str]) -> T:
    """The same value (operators, expressions, collections of them) with the keys in it. What is made of it must not be
    shown, written or compared. Raises KeyError for a name that is not there.
    """
    return cast("T", _revealed(value, lambda name, form: derive_key_bytes(secrets[name], form)))


def put_stand_ins(value: T) -> T:
    """The same with a key that is none, to see whether an expression can be run."""
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
