"""AES as in Spark, row by row, with OpenSSL (the extra `encryption`).

GCM: 12 bytes of initialization vector, the text, a tag of 16 bytes. CBC: 16 bytes of initialization vector, the padded
text. ECB: the padded text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import polars as pl

from tidegate.expressions.compiled.compiled import Compiled, compiles
from tidegate.expressions.compiled.rowwise import RowFailed, by_row, within_limit
from tidegate.expressions.expression import Call, Literal
from tidegate.expressions.secrets import KEY_BYTES, SECRET
from tidegate.formats.failures import FailureKind

IV_BYTES: Final = {"GCM": 12, "CBC": 16, "ECB": 0}
_BLOCK_BYTES = 16
_LONGER_BYTES: Final = 32
"""The maximum size of the initialization vector and the tag, or the padding."""
_KEYS_MAX = 256
"""The number of keys from records that are cached with their ciphers."""


@compiles(SECRET)
def _secret(call: Call, arguments: Sequence[Compiled]) -> Compiled:  # noqa: ARG001  # the arguments are not columns
    """Compiles a secret to NULL: a key is not a value, and `key_of` takes it from the call."""
    return Compiled(pl.lit(None, pl.Binary()), call)


def key_of(call: Call) -> bytes | None:
    """Returns the key of a cipher if it is a secret, which a slot has inserted; None if the record contains the key."""
    key = call.arguments[1]
    if not (isinstance(key, Call) and key.function == SECRET):
        return None
    held = key.arguments[2]
    assert isinstance(held, Literal)
    return bytes.fromhex(str(held.value))


@compiles("aes_encrypt")
def _encrypt(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    mode = _mode_of(call)
    encrypt, iv_bytes = _ENCRYPT[mode], IV_BYTES[mode]

    def each(text: str | bytes, key: bytes, iv: str | bytes, aad: str | bytes) -> bytes:
        plain, vector = _bytes(text), _bytes(iv) or os.urandom(iv_bytes)
        within_limit(len(plain) + _LONGER_BYTES)
        if len(key) not in KEY_BYTES or len(vector) != iv_bytes:
            raise RowFailed(FailureKind.INVALID_PARAMETER_VALUE)
        return vector + encrypt(key, vector, plain, _bytes(aad))

    kinds = (FailureKind.INVALID_PARAMETER_VALUE, FailureKind.RESULT_TOO_LARGE)
    return _ciphered(call, arguments, each, kinds)


@compiles("aes_decrypt", "try_aes_decrypt")
def _decrypt(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    from cryptography.exceptions import InvalidTag

    mode, attempt = _mode_of(call), call.function.startswith("try_")
    decrypt, iv_bytes = _DECRYPT[mode], IV_BYTES[mode]

    def each(data: str | bytes, key: bytes, aad: str | bytes) -> bytes | None:
        whole = _bytes(data)
        if len(key) in KEY_BYTES and len(whole) >= iv_bytes:
            with suppress(InvalidTag, ValueError):
                return decrypt(key, whole[:iv_bytes], whole[iv_bytes:], _bytes(aad))
        if attempt:
            return None
        raise RowFailed(FailureKind.INVALID_PARAMETER_VALUE)

    return _ciphered(call, arguments, each, () if attempt else (FailureKind.INVALID_PARAMETER_VALUE,))


def _ciphered(
    call: Call, arguments: Sequence[Compiled], each: Callable[..., Any], kinds: tuple[FailureKind, ...]
) -> Compiled:
    """Runs row by row over the arguments from the record. A secret key does not become a column."""
    key = key_of(call)
    text, of_record, _, _, *others = arguments
    if key is None:
        return by_row(call, [text, of_record, *others], lambda text, key, *rest: each(text, _bytes(key), *rest), *kinds)
    return by_row(call, [text, *others], lambda text, *rest: each(text, key, *rest), *kinds)


def _mode_of(call: Call) -> str:
    mode = call.arguments[2]
    assert isinstance(mode, Literal)
    return str(mode.value)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


@lru_cache(_KEYS_MAX)
def _gcm(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _encrypt_gcm(key: bytes, vector: bytes, plain: bytes, aad: bytes) -> bytes:
    found: bytes = _gcm(key).encrypt(vector, plain, aad)
    return found


def _decrypt_gcm(key: bytes, vector: bytes, data: bytes, aad: bytes) -> bytes:
    found: bytes = _gcm(key).decrypt(vector, data, aad)
    return found


def _blocks(key: bytes, vector: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CBC, ECB

    return Cipher(AES(key), CBC(vector) if vector else ECB())  # noqa: S305  # the user's choice, as in Spark


def _encrypt_blocks(key: bytes, vector: bytes, plain: bytes, _aad: bytes) -> bytes:
    count = _BLOCK_BYTES - len(plain) % _BLOCK_BYTES
    made = _blocks(key, vector).encryptor()
    found: bytes = made.update(plain + bytes([count]) * count) + made.finalize()
    return found


def _decrypt_blocks(key: bytes, vector: bytes, data: bytes, _aad: bytes) -> bytes:
    """Raises ValueError if the padding is invalid, which is the only sign of a wrong key."""
    made = _blocks(key, vector).decryptor()
    padded: bytes = made.update(data) + made.finalize()
    count = padded[-1] if padded else 0
    if not padded:
        return b""
    if not 0 < count <= _BLOCK_BYTES or padded[-count:] != bytes([count]) * count:
        raise ValueError("the padding is damaged")
    return padded[:-count]


_ENCRYPT: Final = {"GCM": _encrypt_gcm, "CBC": _encrypt_blocks, "ECB": _encrypt_blocks}
_DECRYPT: Final = {"GCM": _decrypt_gcm, "CBC": _decrypt_blocks, "ECB": _decrypt_blocks}
