"""Functions of bytes, row by row: character sets, percent-encoding, base 64, URLs, checksums, deterministic ids, AES.

URLs have the parts that `java.net.URI` finds, which Spark's `parse_url` uses: by RFC 2396, unlike browsers.
AES is OpenSSL's (the extra `encryption`). GCM: 12 bytes of initialization vector, the text, a tag of 16 bytes. CBC: 16
bytes of initialization vector, the padded text. ECB: the padded text.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import re
import struct
import unicodedata
import urllib.parse
import uuid
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import polars as pl

from tidegate.expressions.compiled.compiled import Compiled, compiles
from tidegate.expressions.compiled.rowwise import RowFailed, by_row, text_within_limit, within_limit
from tidegate.expressions.expression import Call, Literal
from tidegate.expressions.secrets import KEY_BYTES, SECRET
from tidegate.formats.failures import FailureKind

_PYTHON_NAMES = {"utf-16": "utf-16-be", "us-ascii": "ascii"}
_CODING_FAILURES = (FailureKind.MALFORMED_CHARACTER_CODING, FailureKind.RESULT_TOO_LARGE)
_BASE64, _NOT_BASE64 = re.compile(r"[A-Za-z0-9+/]"), re.compile(r"[^A-Za-z0-9+/]")


@compiles("encode")
def _encode(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    name = str(arguments[1].constant)
    python_name, mark = _PYTHON_NAMES.get(name, name), b"\xfe\xff" if name == "utf-16" else b""

    def each(text: str) -> bytes:
        try:
            found = mark + text.encode(python_name) if text else b""
        except UnicodeEncodeError:
            raise RowFailed(FailureKind.MALFORMED_CHARACTER_CODING) from None
        within_limit(len(found))
        return found

    return by_row(call, arguments[:1], each, *_CODING_FAILURES)


_MARKS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


@compiles("decode")
def _decode(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    name = str(arguments[1].constant)
    plain, marks = (b"", _PYTHON_NAMES.get(name, name)), _MARKS if name == "utf-16" else ()

    def each(data: bytes) -> str:
        mark, chosen = next((one for one in marks if data.startswith(one[0])), plain)
        try:
            found = data[len(mark) :].decode(chosen)
        except UnicodeDecodeError:
            raise RowFailed(FailureKind.MALFORMED_CHARACTER_CODING) from None
        text_within_limit(found)
        return found

    return by_row(call, arguments[:1], each, *_CODING_FAILURES)


@compiles("unbase64")
def _unbase64(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    def each(text: str) -> bytes:
        head, padded, rest = text.partition("=")
        data = _NOT_BASE64.sub("", head)
        missing = -len(data) % 4
        wrong = padded and (missing == 0 or (missing == 2 and not rest.startswith("=")) or _BASE64.search(rest))
        if wrong or missing == 3:
            raise RowFailed(FailureKind.INVALID_PARAMETER_VALUE)
        return base64.b64decode(data + "=" * missing)

    return by_row(call, arguments, each, FailureKind.INVALID_PARAMETER_VALUE)


@compiles("url_encode")
def _url_encode(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    def each(text: str) -> str:
        found = urllib.parse.quote_plus(text, safe="*").replace("~", "%7E")
        within_limit(len(found))
        return found

    return by_row(call, arguments, each, FailureKind.RESULT_TOO_LARGE)


_ESCAPE = re.compile(r"(?:%(?:[0-9a-fA-F]{2}|\+[0-9a-fA-F]))+")  # Java also accepts a sign


def _url_decoded(text: str) -> str | None:
    """Decodes like Java's URLDecoder; None if it would reject the text."""
    parts: list[str] = []
    at = 0
    while (found := text.find("%", at)) >= 0:
        escapes = _ESCAPE.match(text, found)
        if escapes is None or text.startswith("%", escapes.end()):
            return None
        decoded = bytes(int(digits, 16) for digits in escapes[0].split("%")[1:])
        parts += [text[at:found].replace("+", " "), decoded.decode("utf-8", "replace")]
        at = escapes.end()
    return "".join([*parts, text[at:].replace("+", " ")])


@compiles("url_decode", "try_url_decode")
def _url_decode(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    def each(text: str) -> str:
        found = _url_decoded(text)
        if found is None:
            raise RowFailed(FailureKind.CANNOT_DECODE_URL)
        return found

    if call.function == "try_url_decode":
        return by_row(call, arguments, _url_decoded)
    return by_row(call, arguments, each, FailureKind.CANNOT_DECODE_URL)


@compiles("crc32")
def _crc32(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    def each(value: str | bytes) -> int:
        return zlib.crc32(value if isinstance(value, bytes) else value.encode())

    return by_row(call, arguments, each)


@compiles("xxhash64")
def _xxhash64(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    kinds = [one.type.kind for one in arguments]
    return by_row(call, arguments, lambda *values: _hash_values(kinds, values), needed=0)


@compiles("uuid5")
def _named_id(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    namespace = uuid.UUID(str(arguments[0].constant))
    return by_row(call, arguments[1:], lambda name: str(uuid.uuid5(namespace, name)))


@compiles("parse_url")
def _parse_url(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    part = str(arguments[1].constant)
    name = str(arguments[2].constant) if len(arguments) == 3 else ""

    def each(text: str) -> str | None:
        try:
            return part_of_url(text, part, name)
        except ValueError:
            raise RowFailed(FailureKind.INVALID_URL) from None

    return by_row(call, arguments[:1], each, FailureKind.INVALID_URL)


# XXH64 as in Spark's `xxhash64`: for several values, the hash of the preceding values is the seed of the next. Source:
# github.com/Cyan4973/xxHash, doc/xxhash_spec.md, and Spark's `XXH64`. Small integers and booleans are four bytes,
# bigints and times eight; doubles are hashed by their bits, with a single zero.

_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MASK = 0xFFFF_FFFF_FFFF_FFFF
_SEED = 42
_HASHED_FORMATS = {"float": "<f", "double": "<d", "bigint": "<q", "timestamp": "<q", "timestamp_ntz": "<q"}


def _hash_values(kinds: Sequence[str], values: Sequence[object]) -> int:
    """Returns the signed hash of all values that are not NULL."""
    found = _SEED
    for kind, value in zip(kinds, values, strict=True):
        if value is not None:
            found = _hash_bytes(_hashed_bytes(kind, value), found)
    return found - (1 << 64) if found >> 63 else found


def _hashed_bytes(kind: str, value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if isinstance(value, float):
        plain = float("nan") if value != value else value + 0.0  # one NaN, and no minus zero
        return struct.pack(_HASHED_FORMATS[kind], plain)
    return struct.pack(_HASHED_FORMATS.get(kind, "<i"), value)


def _hash_bytes(data: bytes, seed: int) -> int:
    """Computes XXH64."""
    size, at = len(data), 0
    if size >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while at <= size - 32:
            words = struct.unpack_from("<4Q", data, at)
            lanes = [_round(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += 32
        found = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            found = ((found ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        found = (seed + _P5) & _MASK
    found = (found + size) & _MASK
    while at <= size - 8:
        found = (_rotated(found ^ _round(0, struct.unpack_from("<Q", data, at)[0]), 27) * _P1 + _P4) & _MASK
        at += 8
    if at <= size - 4:
        found = (_rotated(found ^ (struct.unpack_from("<I", data, at)[0] * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        found = _rotated(found ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    found = (found ^ found >> 33) * _P2 & _MASK
    found = (found ^ found >> 29) * _P3 & _MASK
    return found ^ found >> 32


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (64 - bits)) & _MASK


def _round(lane: int, word: int) -> int:
    return _rotated(lane + word * _P2, 31) * _P1 & _MASK


_WHOLE = re.compile(r"(?:([^:/?#]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_OTHER = r"%[0-9A-Fa-f]{2}|[^\x00-\x7f]"
_PATH = re.compile(rf"(?:[A-Za-z0-9_!.~'()*:@&=+$,;/-]|{_OTHER})*")
_QUERY = re.compile(rf"(?:[A-Za-z0-9_!.~'()*:@&=+$,;/?\[\]-]|{_OTHER})*")
_USER = re.compile(rf"(?:[A-Za-z0-9_!.~'()*:&=+$,;-]|{_OTHER})*")
_REGISTRY = re.compile(rf"(?:[A-Za-z0-9_!.~'()*:@&=+$,;-]|{_OTHER})+")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_TOP_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = re.compile(
    rf"(?:{_LABEL}\.)*{_TOP_LABEL}\.?|(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){{3}}(?:25[0-5]|2[0-4]\d|1?\d?\d)"
)
_SERVER = re.compile(r"(?:([^@]*)@)?(\[[0-9A-Fa-f:.]*\]|[^@:]*)(?::([0-9]*))?")


def part_of_url(text: str, part: str, name: str = "") -> str | None:
    """Returns HOST, PATH, QUERY ... as written in the text, or the value of `name` in the query; None if it does not
    exist.

    Raises ValueError if the text is not a URL.
    """
    scheme, authority, path, query, reference = _split(text)
    opaque = scheme is not None and authority is None and not path.startswith("/")
    if part == "PROTOCOL":
        return scheme
    if part == "REF":
        return reference
    if opaque:
        return None
    user, host = _server(authority)
    if part == "QUERY" and name and query is not None:
        found = re.search(rf"(?:&|^){name}=([^&]*)", query)
        return found[1] if found else None
    file = path if query is None else f"{path}?{query}"
    return {"PATH": path, "QUERY": query, "FILE": file, "AUTHORITY": authority, "HOST": host, "USERINFO": user}[part]


def _split(text: str) -> tuple[str | None, str | None, str, str | None, str | None]:
    found = _WHOLE.fullmatch(text)
    if found is None or any(unicodedata.category(one) in ("Zs", "Zl", "Zp", "Cc") for one in text):
        raise ValueError(text)
    scheme, authority, path, query, reference = found.groups()
    rest = text if scheme is None else text[len(scheme) + 1 :]
    legal = (scheme is None or _SCHEME.fullmatch(scheme)) and _QUERY.fullmatch(reference or "")
    if not legal or (scheme is not None and not rest.partition("#")[0]):
        raise ValueError(text)
    if scheme is not None and not rest.startswith("/"):
        if not _QUERY.fullmatch(rest.partition("#")[0]):
            raise ValueError(text)
        return scheme, None, path, query, reference
    if not _PATH.fullmatch(path) or not _QUERY.fullmatch(query or ""):
        raise ValueError(text)
    if authority == "" and not rest.removeprefix("//"):
        raise ValueError(text)
    return scheme, authority or None, path, query, reference


def _server(authority: str | None) -> tuple[str | None, str | None]:
    """Returns user and host; both are None for an authority that does not name a server, such as `my_host`."""
    if authority is None:
        return None, None
    found = _SERVER.fullmatch(authority)
    if found is not None and _USER.fullmatch(found[1] or ""):
        if found[2].startswith("["):
            ipaddress.IPv6Address(found[2][1:-1])  # raises ValueError if it is not an IPv6 address
            return found[1], found[2]
        if _HOST.fullmatch(found[2]):
            return found[1], found[2]
    if not _REGISTRY.fullmatch(authority):
        raise ValueError(authority)
    return None, None


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
