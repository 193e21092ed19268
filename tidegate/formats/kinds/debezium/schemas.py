"""What the schema in a record says of its row's values: Connect's `JsonConverter` with `schemas.enable`. Pure.

In JSON alone milliseconds look like microseconds, bytes like a number, and bytes have no scale: the schema has it all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

UNITS: Final[Mapping[str, str]] = {
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "org.apache.kafka.connect.data.Timestamp": "ms",
}
DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"


class Said(msgspec.Struct, frozen=True):
    """Of one column; what is empty or None is not said."""

    unit: str = ""
    """Of whole numbers that stand for timestamps."""
    decimals: str = ""
    """As `written_as` has it."""
    scale: int | None = None
    """Of the numbers whose bytes are in base64."""


NOTHING: Final = Said()


class _Part(msgspec.Struct, gc=False):
    """Of a schema: what is needed of it."""

    type: str = ""
    name: str = ""
    field: str = ""
    parameters: dict[str, str] = {}
    fields: list[_Part] = []
    items: _Part | None = None


_DECODE: Final = msgspec.json.Decoder(_Part).decode


def read_said(schema: bytes) -> dict[str, Said]:
    """By column of the table. Nothing where the schema is none of an envelope: then nothing is known."""
    try:
        top = _DECODE(schema)
    except (ValueError, RecursionError):
        return {}
    rows = [part for part in top.fields if part.field in ("after", "before")]
    return {column.field: _said(column) for row in rows for column in row.fields}


def _said(part: _Part) -> Said:
    while part.items is not None:
        part = part.items
    if part.name == DECIMAL:
        scale = part.parameters.get("scale", "")
        return Said(decimals="base64", scale=int(scale) if scale.lstrip("-").isdecimal() and len(scale) < 5 else None)
    return Said(unit=UNITS.get(part.name, ""), decimals="text" if part.type == "string" else "")
