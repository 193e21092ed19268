"""Encodes records one by one, as written by people in tests. Of a union of several types, which sinks do not write, the
member that is set is written.
"""

from __future__ import annotations

import io
from typing import Any

import fastavro
import polars as pl
from typing_extensions import override

from tidegate.datatypes import units_of
from tidegate.formats.columns import plain_values
from tidegate.formats.contract import Encoded, Encoder
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.avro.schema import MICROS, AvroType, as_encoded, as_json


class PlainEncoder(Encoder):
    """Encodes frames with a column for each field of the record, one row at a time."""

    def __init__(self, record: AvroType, prefix: bytes) -> None:
        self._record = record
        self._schema = fastavro.parse_schema(as_json(as_encoded(record)))
        self._prefix = prefix

    @override
    def encode(self, frame: pl.DataFrame) -> Encoded:
        values: list[bytes | None] = []
        failures: list[RecordFailure] = []
        columns = [plain_values(frame[field.name]) for field in self._record.fields]
        for row, parts in enumerate(zip(*columns, strict=True)):
            stream = io.BytesIO()
            try:
                fastavro.schemaless_writer(stream, self._schema, _encoded(self._record, parts))
                values.append(self._prefix + stream.getvalue())
            except ValueError as error:
                values.append(None)
                failures.append(RecordFailure(row, FailureKind.OUT_OF_RANGE, str(error)))
        return Encoded(pl.DataFrame([pl.Series("value", values, dtype=pl.Binary)]), failures)


def _encoded(one: AvroType, value: Any) -> Any:
    """Converts a value to one that fastavro writes without logical types. Raises ValueError if it is not one."""
    if one.kind == "union":
        return _member(one, value)
    if value is None:
        raise ValueError(f"a NULL where the schema has {one.name or one.kind}, which is not nullable")
    if one.kind == "record":
        return {field.name: _field(field.name, field.type, part) for field, part in zip(one.fields, value, strict=True)}
    if one.items is not None:
        items = one.items
        if one.kind == "map":
            return {key: _encoded(items, each) for key, each in value}
        return [_encoded(items, each) for each in value]
    if one.logical.startswith(("timestamp-", "local-timestamp-")):
        factor, divisor = MICROS[one.logical.rpartition("-")[2]]
        value = value * divisor // factor
        if not -(2**63) <= value < 2**63:
            raise ValueError("too far from 1970 for nanoseconds")
    if one.logical == "decimal":
        units = units_of(value, one.scale)
        return units.to_bytes(one.size or (units.bit_length() + 8) >> 3, "big", signed=True)
    if one.kind == "enum" and value not in one.symbols:
        raise ValueError(f"{value[:60]!r} is not a symbol of {one.name}")
    return value


def _field(name: str, one: AvroType, value: Any) -> Any:
    try:
        return _encoded(one, value)
    except ValueError as error:
        raise ValueError(f"`{name}`: {error}") from error


def _member(one: AvroType, value: Any) -> Any:
    """Returns the type and the value. With several types, `value` is a struct of its members, as in columns."""
    members = [each for each in one.branches if each.kind != "null"]
    if value is None:
        if len(members) == len(one.branches):
            raise ValueError("a NULL where the schema has a union, which is not nullable")
        return None
    parts = [value] if one.bare is not one else value
    found = [(each, part) for each, part in zip(members, parts, strict=True) if part is not None]
    if len(found) != 1:
        raise ValueError(f"{len(found)} members of the union are set, but exactly one must be")
    [(branch, part)] = found
    return branch.name or branch.kind, _encoded(branch, part)
