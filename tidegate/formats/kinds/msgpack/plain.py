"""MessagePack as JSON, as people write it in tests and see it in previews, and as unknown fields are kept. Pure.

Timestamps are read and written exactly: msgspec would round their nanoseconds up to later times.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import struct
from decimal import Decimal
from typing import Any, Final

import msgspec

from tidegate.datatypes import FIRST_MOMENT, LAST_MOMENT
from tidegate.formats.contract import FormatRefusal
from tidegate.formats.plain import render_json


def msgpack_of(value: Any) -> bytes:
    """Encodes plain JSON data. Raises FormatRefusal.

    A number with a fraction becomes a float, or text if no float has its digits.
    """
    try:
        return msgspec.msgpack.encode(_with_floats(value))
    except (OverflowError, UnicodeEncodeError, msgspec.EncodeError) as error:
        raise FormatRefusal(f"MessagePack cannot hold the value: {error}", "write another value") from error


def _with_floats(value: Any) -> Any:
    if isinstance(value, Decimal):
        nearest = float(value)
        return nearest if Decimal(repr(nearest)) == value else str(value)
    if isinstance(value, dict):
        return {name: _with_floats(one) for name, one in value.items()}
    return [_with_floats(one) for one in value] if isinstance(value, list) else value


def json_of(data: bytes) -> str:
    """Returns the JSON text of a value. Raises ValueError."""
    return render_json(_plain(data))


def text_of(data: bytes) -> str | None:
    """Returns the text of a string, the JSON of any other value, or None for nil. Raises ValueError."""
    value = _plain(data)
    return value if value is None or (isinstance(value, str) and _is_text(data)) else render_json(value)


def _plain(data: bytes) -> Any:
    """Returns plain JSON data. Extensions are taken apart here because msgspec would round timestamps."""
    first = data[0] if data else 0
    if _MAP_FIRST <= first < _ARRAY_FIRST or first in _MAPS:
        return {_key(key): _plain(bytes(one)) for key, one in _decode_map(data).items()}
    if _ARRAY_FIRST <= first < _TEXT_FIRST or first in _ARRAYS:
        return [_plain(bytes(one)) for one in _decode_array(data)]
    if first in _EXTENSIONS:
        return _extension(_decode_extension(data))
    return _scalar(msgspec.msgpack.decode(data))


_MAP_FIRST, _ARRAY_FIRST, _TEXT_FIRST, _TEXT_END = 0x80, 0x90, 0xA0, 0xC0
_MAPS, _ARRAYS, _TEXTS = (0xDE, 0xDF), (0xDC, 0xDD), (0xD9, 0xDA, 0xDB)
_EXTENSIONS: Final = (0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8)
"""First bytes of the types."""
_decode_map = msgspec.msgpack.Decoder(dict[Any, msgspec.Raw]).decode
_decode_array = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_extension = msgspec.msgpack.Decoder(msgspec.msgpack.Ext).decode


def _is_text(data: bytes) -> bool:
    return _TEXT_FIRST <= data[0] < _TEXT_END or data[0] in _TEXTS


def _extension(value: msgspec.msgpack.Ext) -> Any:
    try:
        return _moment(moment_of(value))
    except ValueError:
        return {"ext": value.code, "data": base64.b64encode(value.data).decode()}


def _scalar(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return _moment(value) if isinstance(value, dt.datetime) else value


def _key(key: Any) -> str:
    made = _scalar(key)
    return made if isinstance(made, str) else render_json(made)


def _moment(value: dt.datetime) -> str:
    """Writes a timestamp as the JSON format does: a fraction only if there is one, of 3 or 6 digits."""
    digits = "seconds" if not value.microsecond else "microseconds" if value.microsecond % 1000 else "milliseconds"
    return value.replace(tzinfo=None).isoformat(timespec=digits) + "Z"


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
        raise ValueError("Invalid timestamp: it has more than 999,999,999 nanoseconds")
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
