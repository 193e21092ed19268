"""An encoding of keys as bytes that sort like the keys, column by column.

NULL comes first. Integers, decimals, dates and timestamps sort by value, booleans false before true, strings by code
point, and binary by its bytes. The encoding is private to a process and may change, because files contain the keys
themselves.

    NULL      00
    others    01, then   boolean   one byte
                         integer   8 bytes, big-endian, 2^63 added
                         decimal   16 bytes, big-endian, the unscaled number, 2^127 added
                         string    UTF-8, 00 as 00 FF, terminated by 00 01 unless it is the last column
                         binary    as string
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import repeat
from typing import Any, Final

from tidegate.datatypes import decimal_of_units, units_of
from tidegate.state.declaration import StateField

Row = tuple[Any, ...]
"""The columns of a key, or the first of them."""

_OFFSET: Final = 1 << 63
_WIDE_OFFSET: Final = 1 << 127
_TEXTS: Final = frozenset({"string", "binary"})
_END: Final = b"\x00\x01"
_ESCAPED: Final = b"\x00\xff"
_INTEGERS: Final = frozenset({"tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz"})
_pack_integer: Final = struct.Struct(">BQ").pack
"""Packs the marker of a non-NULL value and eight bytes."""


class KeyOrder:
    """Encoder and decoder of the keys of one state."""

    def __init__(self, keys: Sequence[StateField]) -> None:
        self._kinds = [field.type.kind for field in keys]
        codecs = [_codec_of(field) for field in keys]
        self._encoders = [encode for encode, _ in codecs]
        self._decoders = [decode for _, decode in codecs]
        self._single = _SINGLE.get(self._kinds[0]) if len(self._kinds) == 1 else None

    def encode(self, rows: Sequence[Row], lead: bytes = b"") -> list[bytes]:
        """Encodes complete keys, each after `lead`."""
        if self._single is not None:
            return self._single(rows, lead)
        if not rows:
            return []
        last = len(self._kinds) - 1
        columns: list[Iterable[bytes]] = [repeat(lead, len(rows))]
        columns += [
            _encode_values(kind, encode, values, end=kind in _TEXTS and place < last)
            for place, (kind, encode, values) in enumerate(
                zip(self._kinds, self._encoders, zip(*rows, strict=True), strict=True)
            )
        ]
        return list(map(b"".join, zip(*columns, strict=True)))

    def encode_prefix(self, prefix: Row) -> bytes:
        """Encodes the first columns of a key as the common prefix of the encodings of all keys with these columns."""
        if len(prefix) == len(self._kinds):
            return self.encode([prefix])[0]
        columns = zip(self._encoders, self._kinds, prefix, strict=False)
        return b"".join(_encode_column(encode, value, kind in _TEXTS) for encode, kind, value in columns)

    def decode(self, place: bytes) -> Row:
        """Decodes a complete key: the inverse of `encode`."""
        columns: list[Any] = []
        at, last = 0, len(self._kinds) - 1
        for index, decode in enumerate(self._decoders):
            there, at = place[at], at + 1
            if not there:
                columns.append(None)
            else:
                value, at = decode(place, at, index == last)
                columns.append(value)
        return tuple(columns)


def after_prefix(prefix: bytes) -> bytes:
    """Returns the first bytes after everything that begins with this prefix. The prefix must not consist of FF only."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


_Encode = Callable[[Any], bytes]
_Decode = Callable[[bytes, int, bool], tuple[Any, int]]


def _encode_column(encode: _Encode, value: Any, end: bool) -> bytes:
    if value is None:
        return b"\x00"
    if end:
        return b"\x01" + encode(value).replace(b"\x00", _ESCAPED) + _END
    return b"\x01" + encode(value)


def _encode_values(kind: str, encode: _Encode, values: Sequence[Any], *, end: bool) -> list[bytes]:
    """Encodes values like `_encode_column`, a column at a time."""
    if kind in _INTEGERS:
        return [b"\x00" if value is None else _pack_integer(1, value + _OFFSET) for value in values]
    if kind == "string" and not end:
        return [b"\x00" if value is None else b"\x01" + value.encode() for value in values]
    return [_encode_column(encode, value, end) for value in values]


def _encode_integer(value: int) -> bytes:
    return (value + _OFFSET).to_bytes(8, "big")


def _encode_boolean(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def _decode_integer(place: bytes, at: int, _last: bool) -> tuple[int, int]:
    return int.from_bytes(place[at : at + 8], "big") - _OFFSET, at + 8


def _decode_boolean(place: bytes, at: int, _last: bool) -> tuple[bool, int]:
    return place[at] == 1, at + 1


def _decode_binary(place: bytes, at: int, last: bool) -> tuple[bytes, int]:
    if last:
        return place[at:], len(place)
    end = place.index(_END, at)
    return place[at:end].replace(_ESCAPED, b"\x00"), end + len(_END)


def _decode_string(place: bytes, at: int, last: bool) -> tuple[str, int]:
    value, at = _decode_binary(place, at, last)
    return value.decode(), at


def _encode_strings(rows: Sequence[Row], lead: bytes) -> list[bytes]:
    null, there = lead + b"\x00", lead + b"\x01"
    return [null if key is None else there + key.encode() for (key,) in rows]


def _encode_integers(rows: Sequence[Row], lead: bytes) -> list[bytes]:
    null = lead + b"\x00"
    return [null if key is None else lead + _pack_integer(1, key + _OFFSET) for (key,) in rows]


def _codec_of(field: StateField) -> tuple[_Encode, _Decode]:
    kind = field.type.kind
    if kind == "decimal":
        return _decimal_codec(field.type.scale)
    return _ENCODERS.get(kind, _encode_integer), _DECODERS.get(kind, _decode_integer)


def _decimal_codec(scale: int) -> tuple[_Encode, _Decode]:
    def encode(value: Decimal) -> bytes:
        return (units_of(value, scale) + _WIDE_OFFSET).to_bytes(16, "big")

    def decode(place: bytes, at: int, _last: bool) -> tuple[Decimal, int]:
        units = int.from_bytes(place[at : at + 16], "big") - _WIDE_OFFSET
        return decimal_of_units(units, scale), at + 16

    return encode, decode


_ENCODERS: Final[dict[str, _Encode]] = {"boolean": _encode_boolean, "string": str.encode, "binary": bytes}
_DECODERS: Final[dict[str, _Decode]] = {
    "boolean": _decode_boolean,
    "string": _decode_string,
    "binary": _decode_binary,
}
_SINGLE: Final[dict[str, Callable[[Sequence[Row], bytes], list[bytes]]]] = {
    "string": _encode_strings,
    "bigint": _encode_integers,
}
"""Encoders of the most common single-column keys, a column at a time."""
