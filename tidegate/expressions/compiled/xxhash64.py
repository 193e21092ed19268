"""XXH64 as in Spark's `xxhash64`: for several values, the hash of the preceding values is the seed of the next.

Source: github.com/Cyan4973/xxHash, doc/xxhash_spec.md, and Spark's `XXH64`. Small integers and booleans are four bytes,
bigints and times eight; doubles are hashed by their bits, with a single zero.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MASK = 0xFFFF_FFFF_FFFF_FFFF
_SEED = 42
_FORMATS = {"float": "<f", "double": "<d", "bigint": "<q", "timestamp": "<q", "timestamp_ntz": "<q"}


def hash_values(kinds: Sequence[str], values: Sequence[object]) -> int:
    """Returns the signed hash of all values that are not NULL."""
    found = _SEED
    for kind, value in zip(kinds, values, strict=True):
        if value is not None:
            found = hash_bytes(_bytes(kind, value), found)
    return found - (1 << 64) if found >> 63 else found


def _bytes(kind: str, value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if isinstance(value, float):
        plain = float("nan") if value != value else value + 0.0  # one NaN, and no minus zero
        return struct.pack(_FORMATS[kind], plain)
    return struct.pack(_FORMATS.get(kind, "<i"), value)


def hash_bytes(data: bytes, seed: int) -> int:
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
