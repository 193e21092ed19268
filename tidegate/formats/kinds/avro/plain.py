"""Encodes records one by one, as written by people in tests. Of a union of several types, which sinks do not write, the
member that is set is written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import polars as pl
from typing_extensions import override

from tidegate.datatypes import units_of
from tidegate.formats.columns import plain_values
from tidegate.formats.contract import Encoded, Encoder
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.avro.encoder import zigzag
from tidegate.formats.kinds.avro.schema import MICROS, AvroType


class PlainEncoder(Encoder):
    """Encodes frames with a column for each field of the record, one row at a time."""

    def __init__(self, record: AvroType, prefix: bytes) -> None:
        self._record = record
        self._prefix = prefix

    @override
    def encode(self, frame: pl.DataFrame) -> Encoded:
        values: list[bytes | None] = []
        failures: list[RecordFailure] = []
        columns = [plain_values(frame[field.name]) for field in self._record.fields]
        for row, parts in enumerate(zip(*columns, strict=True)):
            try:
                values.append(self._prefix + _bytes_of(self._record, parts))
            except ValueError as error:
                values.append(None)
                failures.append(RecordFailure(row, FailureKind.OUT_OF_RANGE, str(error)))
        return Encoded(pl.DataFrame([pl.Series("value", values, dtype=pl.Binary)]), failures)


def _bytes_of(one: AvroType, value: Any) -> bytes:
    """Encodes a value. Raises ValueError if it is not one of the type."""
    if one.kind == "union":
        return _of_union(one, value)
    if value is None:
        raise ValueError(f"a NULL where the schema has {one.name or one.kind}, which is not nullable")
    match one.kind:
        case "record":
            return b"".join(_field(field.name, field.type, part) for field, part in zip(one.fields, value, strict=True))
        case "array" if one.items is not None:
            return _list(_bytes_of(one.items, each) for each in value)
        case "map" if one.items is not None:
            return _list(_of_bytes(key.encode()) + _bytes_of(one.items, each) for key, each in value)
        case "boolean":
            return b"\1" if value else b"\0"
        case "float" | "double":
            return struct.pack("<f" if one.kind == "float" else "<d", value)
        case "string":
            return _of_bytes(value.encode())
        case "enum":
            if value not in one.symbols:
                raise ValueError(f"{value[:60]!r} is not a symbol of {one.name}")
            return zigzag(one.symbols.index(value))
        case "int" | "long":
            return zigzag(_number(one, value))
    return _data(one, value)


def _field(name: str, one: AvroType, value: Any) -> bytes:
    try:
        return _bytes_of(one, value)
    except ValueError as error:
        raise ValueError(f"`{name}`: {error}") from error


def _of_union(one: AvroType, value: Any) -> bytes:
    """Encodes a union value. With several types, `value` is a struct of its members, as in columns."""
    places = {index: each for index, each in enumerate(one.branches) if each.kind != "null"}
    if value is None:
        if len(places) == len(one.branches):
            raise ValueError("a NULL where the schema has a union, which is not nullable")
        return zigzag(next(index for index in range(len(one.branches)) if index not in places))
    if one.bare is not one:
        [(index, branch)] = places.items()
    else:
        found = [(at, each, part) for (at, each), part in zip(places.items(), value, strict=True) if part is not None]
        if len(found) != 1:
            raise ValueError(f"{len(found)} members of the union are set, but exactly one must be")
        [(index, branch, value)] = found
    return zigzag(index) + _bytes_of(branch, value)


def _number(one: AvroType, value: int) -> int:
    if one.logical.startswith(("timestamp-", "local-timestamp-")):
        factor, divisor = MICROS[one.logical.rpartition("-")[2]]
        value = value * divisor // factor
        if not -(2**63) <= value < 2**63:
            raise ValueError("too far from 1970 for nanoseconds")
    return value


def _data(one: AvroType, value: Any) -> bytes:
    """Encodes bytes and fixed types."""
    if one.logical == "decimal":
        units = units_of(value, one.scale)
        value = units.to_bytes(one.size or (units.bit_length() + 8) >> 3, "big", signed=True)
    if one.kind == "bytes":
        return _of_bytes(value)
    if len(value) != one.size:
        raise ValueError(f"{len(value)} bytes, but {one.name} has {one.size}")
    return bytes(value)


def _of_bytes(data: bytes) -> bytes:
    return zigzag(len(data)) + data


def _list(items: Iterable[bytes]) -> bytes:
    made = list(items)
    return (zigzag(len(made)) + b"".join(made) if made else b"") + b"\0"
