"""MessagePack's timestamps, exactly: msgspec would round their nanoseconds up to later times. Pure."""

from __future__ import annotations

import datetime as dt
import struct
from typing import Final

import msgspec

from tidegate.datatypes import FIRST_MOMENT, LAST_MOMENT

OUTSIDE: Final = "outside the years 1 to 9999"
"""Part of the reason for a timestamp out of range."""
_CODE: Final = -1
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NANOS: Final = 1_000_000_000
_SHORT, _LONG, _LONGEST = struct.Struct(">I"), struct.Struct(">Q"), struct.Struct(">Iq")
_WRITE_LONG: Final = struct.Struct(">BbQ").pack
_WRITE_LONGEST: Final = struct.Struct(">BBbIq").pack
_SECONDS_BITS: Final = 34
SECONDS_END: Final = 1 << _SECONDS_BITS
"""The first second that eight bytes do not hold."""
SECOND: Final = 1_000_000


def raw_of(micros: int | None) -> msgspec.Raw | None:
    """Encodes microseconds since 1970 in 8 bytes, or in 12 if need be."""
    if micros is None:
        return None
    seconds, fraction = divmod(micros, SECOND)
    if not 0 <= seconds < SECONDS_END:
        return msgspec.Raw(_WRITE_LONGEST(0xC7, _LONGEST.size, _CODE, fraction * 1000, seconds))
    return raw_of_long((fraction * 1000) << _SECONDS_BITS | seconds)


def raw_of_long(both: int) -> msgspec.Raw:
    """Encodes nanoseconds and, in the lower 34 bits, seconds. A datetime would take twice the time."""
    return msgspec.Raw(_WRITE_LONG(0xD7, _CODE, both))


def moment_of(value: msgspec.msgpack.Ext) -> dt.datetime:
    """Converts an extension; nanoseconds are cut off to microseconds. Raises ValueError."""
    if value.code != _CODE:
        raise ValueError(f"Expected `timestamp`, got the extension type {value.code}")
    seconds, nanos = _parts_of(bytes(value.data))
    if nanos >= _NANOS:
        raise ValueError("Invalid timestamp: a second has a thousand million nanoseconds")
    micros = seconds * SECOND + nanos // 1000
    if not FIRST_MOMENT <= micros <= LAST_MOMENT:
        raise ValueError(f"Invalid timestamp: it is {OUTSIDE}")
    return _EPOCH + dt.timedelta(microseconds=micros)


def _parts_of(data: bytes) -> tuple[int, int]:
    """Returns the seconds and nanoseconds of a timestamp in one of its three lengths. Raises ValueError."""
    match len(data):
        case _SHORT.size:
            return _SHORT.unpack(data)[0], 0
        case _LONG.size:
            (both,) = _LONG.unpack(data)
            return both & (SECONDS_END - 1), both >> _SECONDS_BITS
        case _LONGEST.size:
            nanos, seconds = _LONGEST.unpack(data)
            return seconds, nanos
    raise ValueError(f"Invalid timestamp: it has {len(data)} bytes, not 4, 8 or 12")
