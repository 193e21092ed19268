"""Character sets, percent-encoding, base 64, checksums and deterministic ids, row by row."""

from __future__ import annotations

import base64
import re
import struct
import urllib.parse
import uuid
import zlib
from collections.abc import Sequence

from tidegate.expressions.compiled.compiled import Compiled, compiles
from tidegate.expressions.compiled.rowwise import RowFailed, by_row, text_within_limit, within_limit
from tidegate.expressions.compiled.urls import part_of_url
from tidegate.expressions.expression import Call
from tidegate.formats.failures import FailureKind

_PYTHON_NAMES = {"utf-16": "utf-16-be", "utf-32": "utf-32-be", "us-ascii": "ascii"}
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


_MARKS = {
    "utf-16": ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")),
    "utf-32": ((b"\xff\xfe\0\0", "utf-32-le"), (b"\0\0\xfe\xff", "utf-32-be")),
}
_SURROGATE = re.compile("[\ud800-\udfff]")


@compiles("decode")
def _decode(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    name = str(arguments[1].constant)
    plain = (b"", _PYTHON_NAMES.get(name, name))
    errors = "surrogatepass" if name == "utf-32" else "strict"

    def each(data: bytes) -> str:
        mark, chosen = next((one for one in _MARKS.get(name, ()) if data.startswith(one[0])), plain)
        try:
            found = data[len(mark) :].decode(chosen, errors)
            if _SURROGATE.search(found):
                found = _without_surrogates(found)
        except UnicodeDecodeError:
            raise RowFailed(FailureKind.MALFORMED_CHARACTER_CODING) from None
        text_within_limit(found)
        return found

    return by_row(call, arguments[:1], each, *_CODING_FAILURES)


def _without_surrogates(text: str) -> str:
    """Replaces surrogates in UTF-32 as Java does: a pair becomes one character, any other surrogate a question mark."""
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _SURROGATE.sub("?", joined)


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
