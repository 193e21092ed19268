"""MessagePack to columns: strict, one record at a time, with the rules and the failures of the JSON reader.

msgspec decodes each value into the struct that the JSON reader makes from the schema. Only what differs is here:

- Integers, floats, strings, bin and bool have their own types; text never stands for bin or a number.
- A timestamp is the extension type -1 or an RFC 3339 text. msgspec would round its nanoseconds up to later times, so it
  leaves the extension as it is, and `_Moments` converts it afterwards.
- NaN and infinities are floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec
from typing_extensions import override

from tidegate.datatypes import FLOAT_BOUND, TIMESTAMP, DataType, holds_kind
from tidegate.formats.contract import Columns, Decoded
from tidegate.formats.failures import FailureKind, RecordFailure, describe_undeclared
from tidegate.formats.in_memory import MemoryDecoder
from tidegate.formats.kinds.json.reader import Decode, JsonDecoder, explain_failure, find_memory_decoder
from tidegate.formats.kinds.json.types import FRAMED, convert, describe_framed, own_type, read_moment
from tidegate.formats.kinds.msgpack.plain import OUTSIDE, moment_of, text_of
from tidegate.formats.schemas import FormatOptions, UnknownFields
from tidegate.native.json import MSGPACK

_NO_MAP: Final = "Expected `object`, got"
_REWORDED: Final = {"`string | ext | null`": "`timestamp | null`", "`object": "`map", "`None`": "`null`"}
_FIELDS: Final = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode


class MsgpackDecoder(JsonDecoder):
    """Decodes MessagePack values into a frame with exactly the columns of `output`."""

    def __init__(self, declared: Columns, output: Columns, options: FormatOptions) -> None:
        def make(record: type[msgspec.Struct]) -> Decode:
            decode = msgspec.msgpack.Decoder(record, dec_hook=convert).decode
            moments = _Moments(declared)
            return moments.after(decode) if moments.any else decode

        super().__init__(declared, output, make, options, lambda _field: _own_type, needs_field=True)
        self._keeps_rest, self._is_strict = bool(options.rest), options.unknown_fields is UnknownFields.FAIL
        self._columns, self._wanted = declared, {name for name, _ in output}

    @cached_property
    @override
    def _in_memory(self) -> MemoryDecoder[Decoded] | None:
        if self._keeps_rest:
            return None
        wanted, strict = self._wanted, self._is_strict
        return find_memory_decoder(
            self._columns, wanted, self.decode_values, strict=strict, needs_field=True, syntax=MSGPACK
        )

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
        return RecordFailure(row, FailureKind.OUT_OF_RANGE if OUTSIDE in message else found.kind, message)

    @override
    def describe_unexpected(self, value: bytes, needed: Collection[str]) -> str:
        try:
            fields = _FIELDS(value)
        except ValueError:  # a field name is not UTF-8, which is reported when it is read
            fields = {"?": msgspec.Raw()}
        return "" if not fields or not fields.keys().isdisjoint(needed) else describe_undeclared(fields, needed)

    @override
    def texts_of(self, value: Any, known: Collection[str]) -> dict[str, str | None]:
        return {name: text_of(bytes(raw)) for name, raw in _FIELDS(value).items() if name not in known}


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


_Convert = Callable[[Any, str], Any]
"""Converts a value at a place of the record. Raises msgspec.ValidationError."""


class _Moments:
    """Replaces the timestamps in decoded records."""

    def __init__(self, declared: Columns) -> None:
        self._fields = _fields_of(declared)
        self.any = bool(self._fields)

    def after(self, decode: Decode) -> Decode:
        """Returns a decoder that converts what `decode` returns."""

        def decode_all(value: Any) -> Any:
            return _convert_fields(decode(value), "$", self._fields)

        return decode_all


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
        return read_moment(value) if value.__class__ is str else moment_of(value)
    except ValueError as error:
        raise msgspec.ValidationError(f"{error} - at `{place}`") from error
