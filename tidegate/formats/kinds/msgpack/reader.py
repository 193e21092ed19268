"""MessagePack to columns: strict, one record at a time, with the rules and the failures of the JSON reader.

msgspec decodes each value into the struct that the JSON reader makes from the schema. Only what differs is here:

- Integers, floats, strings, bin and bool have their own types; text never stands for bin or a number.
- A timestamp is the extension type -1 or an RFC 3339 text. msgspec would round its nanoseconds up to later times, so it
  leaves the extension as it is, and `_convert_fields` converts it afterwards.
- NaN and infinities are floats.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec
from typing_extensions import override

from tidegate.datatypes import FIRST_MOMENT, FLOAT_BOUND, LAST_MOMENT, TIMESTAMP, DataType, holds_kind
from tidegate.formats.contract import Columns
from tidegate.formats.failures import FailureKind, RecordFailure, describe_undeclared
from tidegate.formats.kinds.json.reader import Decode, JsonDecoder, explain_failure
from tidegate.formats.kinds.json.types import FRAMED, convert, describe_framed, own_type, read_moment
from tidegate.formats.plain import render_json
from tidegate.formats.schemas import FormatOptions
from tidegate.native.json import MSGPACK

_NO_MAP: Final = "Expected `object`, got"
_REWORDED: Final = {"`string | ext | null`": "`timestamp | null`", "`object": "`map", "`None`": "`null`"}
_FIELDS: Final = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode


class MsgpackDecoder(JsonDecoder):
    """Decodes MessagePack values into a frame with exactly the columns of `output`."""

    syntax = MSGPACK

    def __init__(self, declared: Columns, output: Columns, options: FormatOptions) -> None:
        def make(record: type[msgspec.Struct]) -> Decode:
            decode = msgspec.msgpack.Decoder(record, dec_hook=convert).decode
            moments = _fields_of(declared)
            return (lambda value: _convert_fields(decode(value), "$", moments)) if moments else decode

        super().__init__(declared, output, make, options, lambda _field: _own_type, needs_field=True)
        self._in_c = None if options.rest else (declared, {name for name, _ in output})

    @override
    def explain(self, row: int, value: bytes | None, error: Exception) -> RecordFailure:
        if value is None:
            return RecordFailure(row, FailureKind.NULL_VALUE, "a tombstone has no MessagePack")
        text = str(error)
        malformed = isinstance(error, msgspec.DecodeError) and not isinstance(error, msgspec.ValidationError)
        if value and (malformed or text.startswith(_NO_MAP)) and (hint := _hint_of(value)):
            return RecordFailure(row, FailureKind.MALFORMED_MSGPACK, f"it is not a map; {hint}")
        if value and (malformed or error.__class__ is ValueError):
            return RecordFailure(row, FailureKind.MALFORMED_MSGPACK, text)
        found = explain_failure(row, value, error)
        message = found.message
        for words, instead in _REWORDED.items():
            message = message.replace(words, instead)
        return RecordFailure(row, FailureKind.OUT_OF_RANGE if _OUTSIDE in message else found.kind, message)

    @override
    def describe_unexpected(self, value: bytes, needed: Collection[str]) -> str:
        try:
            fields = _FIELDS(value)
        except ValueError:  # a field name is not UTF-8, which is reported when it is read
            fields = {"?": msgspec.Raw()}
        return "" if not fields or not fields.keys().isdisjoint(needed) else describe_undeclared(fields, needed)

    @override
    def texts_of(self, value: Any, known: Collection[str]) -> dict[str, str | None]:
        return {name: _text_of(bytes(raw)) for name, raw in _FIELDS(value).items() if name not in known}


def _hint_of(value: bytes) -> str:
    if value.startswith(FRAMED):
        return describe_framed(value)
    return "it looks like JSON: use `format: json`" if value.lstrip().startswith(b"{") else ""


# -- types -------------------------------------------------------------------------------------------------------------


def _read_float(value: Any) -> float:
    if value.__class__ is int or value.__class__ is float:
        if abs(value) <= FLOAT_BOUND or not math.isfinite(value):
            return float(value)
        raise ValueError(f"Expected `float` {'<=' if value > 0 else '>='} {math.copysign(FLOAT_BOUND, value)!r}")
    raise ValueError(f"Expected `float | null`, got `{type(value).__name__}`")


_FLOAT: Final = own_type("float", _read_float)
_MOMENT: Final = msgspec.msgpack.Ext | str


def _own_type(kind: DataType) -> Any:
    if kind == TIMESTAMP:
        return _MOMENT
    return _FLOAT if kind.kind == "float" else None


# -- timestamps --------------------------------------------------------------------------------------------------------


_OUTSIDE: Final = "outside the years 1 to 9999"
"""Part of the reason for a timestamp out of range."""
_CODE: Final = -1
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NANOS: Final = 1_000_000_000
_SHORT, _LONG, _LONGEST = struct.Struct(">I"), struct.Struct(">Q"), struct.Struct(">Iq")
_SECONDS_BITS: Final = 34


def _moment_of(value: msgspec.msgpack.Ext) -> dt.datetime:
    """Converts an extension; nanoseconds are cut off to microseconds. Raises ValueError."""
    if value.code != _CODE:
        raise ValueError(f"Expected `timestamp`, got the extension type {value.code}")
    seconds, nanos = _parts_of(bytes(value.data))
    if nanos >= _NANOS:
        raise ValueError("Invalid timestamp: it has more than 999,999,999 nanoseconds")
    micros = seconds * 1_000_000 + nanos // 1000
    if not FIRST_MOMENT <= micros <= LAST_MOMENT:
        raise ValueError(f"Invalid timestamp: it is {_OUTSIDE}")
    return _EPOCH + dt.timedelta(microseconds=micros)


def _parts_of(data: bytes) -> tuple[int, int]:
    """Returns the seconds and nanoseconds of a timestamp in one of its three lengths. Raises ValueError."""
    match len(data):
        case _SHORT.size:
            return _SHORT.unpack(data)[0], 0
        case _LONG.size:
            (both,) = _LONG.unpack(data)
            return both & ((1 << _SECONDS_BITS) - 1), both >> _SECONDS_BITS
        case _LONGEST.size:
            nanos, seconds = _LONGEST.unpack(data)
            return seconds, nanos
    raise ValueError(f"Invalid timestamp: it has {len(data)} bytes, not 4, 8 or 12")


_Convert = Callable[[Any, str], Any]
"""Converts a value at a place of the record. Raises msgspec.ValidationError."""


def _fields_of(fields: Columns) -> list[tuple[str, str, _Convert]]:
    """Returns the attribute, the name and the conversion of each field that holds timestamps."""
    return [
        (f"f{index}", name, _conversion(kind))
        for index, (name, kind) in enumerate(fields)
        if holds_kind(kind, (TIMESTAMP.kind,))
    ]


def _convert_fields(record: Any, place: str, fields: Sequence[tuple[str, str, _Convert]]) -> Any:
    for attribute, name, convert_value in fields:
        value = getattr(record, attribute)
        if value is not None:
            setattr(record, attribute, convert_value(value, f"{place}.{name}"))
    return record


def _conversion(kind: DataType) -> _Convert:
    if kind == TIMESTAMP:
        return _convert_moment
    if kind.kind == "struct":
        fields = _fields_of(kind.fields)
        return lambda value, place: _convert_fields(value, place, fields)
    assert kind.element is not None
    inner = _conversion(kind.element)
    if kind.kind == "map":
        return lambda value, place: {
            key: None if one is None else inner(one, f"{place}[...]") for key, one in value.items()
        }
    return lambda value, place: [None if one is None else inner(one, f"{place}[...]") for one in value]


def _convert_moment(value: Any, place: str) -> Any:
    try:
        return read_moment(value) if value.__class__ is str else _moment_of(value)
    except ValueError as error:
        raise msgspec.ValidationError(f"{error} - at `{place}`") from error


# -- values as JSON, for previews and for unknown fields ---------------------------------------------------------------


def json_of(data: bytes) -> str:
    """Returns the JSON text of a value. Raises ValueError."""
    return render_json(_plain(data))


def _text_of(data: bytes) -> str | None:
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
        return _moment_text(_moment_of(value))
    except ValueError:
        return {"ext": value.code, "data": base64.b64encode(value.data).decode()}


def _scalar(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return _moment_text(value) if isinstance(value, dt.datetime) else value


def _key(key: Any) -> str:
    made = _scalar(key)
    return made if isinstance(made, str) else render_json(made)


def _moment_text(value: dt.datetime) -> str:
    """Writes a timestamp as the JSON format does: a fraction only if there is one, of 3 or 6 digits."""
    digits = "seconds" if not value.microsecond else "microseconds" if value.microsecond % 1000 else "milliseconds"
    return value.replace(tzinfo=None).isoformat(timespec=digits) + "Z"
