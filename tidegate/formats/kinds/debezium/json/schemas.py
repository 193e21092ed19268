"""The meaning of a row's values according to the schema in a record: Connect's `JsonConverter` with `schemas.enable`.

In JSON alone, milliseconds look like microseconds, bytes can look like a number, and bytes have no scale. The schema
contains all of it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tidegate.datatypes import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    MAX_PRECISION,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    DataType,
    decimal_of,
)

UNITS: Final[Mapping[str, str]] = {
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "org.apache.kafka.connect.data.Timestamp": "ms",
}
DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"


class Said(msgspec.Struct, frozen=True):
    """The meaning of one column; empty or None if the schema does not define it."""

    unit: str = ""
    """Unit of integers that stand for timestamps."""
    decimals: str = ""
    """How texts stand for decimals, as in `written_as`."""
    scale: int | None = None
    """Scale of numbers whose bytes are in base64."""


NOTHING: Final = Said()
_TYPES: Final = {
    "boolean": BOOLEAN,
    "int8": TINYINT,
    "int16": SMALLINT,
    "int32": INT,
    "int64": BIGINT,
    "float": FLOAT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BINARY,
}
NAMED: Final = {
    **dict.fromkeys(UNITS, TIMESTAMP_NTZ),
    "io.debezium.time.IsoTimestamp": TIMESTAMP_NTZ,
    "io.debezium.time.ZonedTimestamp": TIMESTAMP,
    "io.debezium.time.Date": DATE,
    "io.debezium.time.IsoDate": DATE,
    "org.apache.kafka.connect.data.Date": DATE,
}
VARIABLE: Final = "io.debezium.data.VariableScaleDecimal"
"""A decimal with the scale in each value, so that no type certainly holds it."""


class _Part(msgspec.Struct, gc=False):
    """The required parts of a schema."""

    type: str = ""
    name: str = ""
    field: str = ""
    parameters: dict[str, str] = {}
    fields: list[_Part] = []
    items: _Part | None = None


_DECODE: Final = msgspec.json.Decoder(_Part).decode


def read_said(schema: bytes) -> dict[str, Said]:
    """Returns the meaning by column of the table; empty if the schema is not that of an envelope."""
    return {column.field: _said(column) for column in _columns(schema)}


def read_types(schema: bytes) -> dict[str, DataType]:
    """Returns the types of the columns that have a corresponding type."""
    return {column.field: kind for column in _columns(schema) if (kind := _type(column)) is not None}


def _columns(schema: bytes) -> list[_Part]:
    try:
        top = _DECODE(schema)
    except (ValueError, RecursionError):
        return []
    return [column for row in top.fields if row.field in ("after", "before") for column in row.fields]


def _type(part: _Part) -> DataType | None:
    if part.name == DECIMAL:
        scale = _said(part).scale
        digits = part.parameters.get("connect.decimal.precision", "")
        precision = int(digits) if digits.isdecimal() and len(digits) < 4 else MAX_PRECISION
        fits = scale is not None and 0 <= scale <= precision <= MAX_PRECISION
        return decimal_of(precision, scale) if fits and scale is not None else None
    if part.items is not None:
        element = _type(part.items)
        return None if element is None else DataType("array", element=element)
    if part.type == "struct" and part.name != VARIABLE:
        named = [one for one in part.fields if one.field.isidentifier()]  # a pipeline file may not accept others
        fields = tuple((one.field, kind) for one in named if (kind := _type(one)) is not None)
        return DataType("struct", fields=fields) if fields else None
    return NAMED.get(part.name) or _TYPES.get(part.type)


def _said(part: _Part) -> Said:
    while part.items is not None:
        part = part.items
    if part.name == DECIMAL:
        scale = part.parameters.get("scale", "")
        return Said(decimals="base64", scale=int(scale) if scale.lstrip("-").isdecimal() and len(scale) < 5 else None)
    return Said(unit=UNITS.get(part.name, ""), decimals="text" if part.type == "string" else "")
