"""The failed row as the step received it: JSON from which the same row can be restored.

Numbers, booleans, texts, arrays and structs are those of JSON. A decimal is text with all digits of its scale, a
timestamp and a date are ISO 8601, binary is base64, and a map is an array of `key` and `value`. Doubles that JSON
cannot represent are the texts `NaN`, `Infinity` and `-Infinity`. The types are separate JSON: `{"price":
"decimal(10,2)"}`.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec
import polars as pl

from tidegate.datatypes import DataType, entry_of, is_reserved
from tidegate.formats.bisection import evaluate_rows
from tidegate.formats.columns import type_instance, type_of
from tidegate.formats.dead_letters import ROW_BYTES_MAX
from tidegate.formats.row_kinds import ROW_KIND
from tidegate.formats.text import json_ready

CARRIED: Final = ("__tidegate_time", "__tidegate_behind", ROW_KIND)
"""System columns that steps use and that cannot be derived from the record alone."""
_FLOAT_DIGITS: Final = 9
"""Sufficient for every float."""

RowText = tuple[str | None, int | None]
"""The JSON, and its size if it is left out; both are None if the row cannot be rendered."""


def render_types(rows: pl.DataFrame) -> str:
    """Returns the types of the columns that `render_rows` writes."""
    types = {name: str(type_of(rows.schema[name])) for name in _names(rows)}
    return msgspec.json.encode(types).decode()


def render_rows(rows: pl.DataFrame) -> list[RowText]:
    """Renders rows one by one, because a row can be as large as a record."""
    if not rows.width:
        return [(None, None)] * rows.height
    names = _names(rows)
    kinds = {name: type_instance(rows.schema[name]) for name in names}
    fields = [json_ready(pl.col(name), kind).alias(name) for name, kind in kinds.items()]

    def render(start: int, end: int) -> list[RowText]:
        return [_render(rows[row : row + 1].select(fields).row(0), kinds) for row in range(start, end)]

    parts, _ = evaluate_rows(rows.height, render)
    texts: list[RowText] = [(None, None)] * rows.height
    for start, found in parts:
        texts[start : start + len(found)] = found
    return texts


def _names(rows: pl.DataFrame) -> list[str]:
    return [name for name in rows.columns if not is_reserved(name) or name in CARRIED]


def _render(values: Sequence[Any], kinds: dict[str, pl.DataType]) -> RowText:
    plain = {name: _plain(value, kind) for (name, kind), value in zip(kinds.items(), values, strict=True)}
    text = msgspec.json.encode(plain)
    return (text.decode(), None) if len(text) <= ROW_BYTES_MAX else (None, len(text))


def _plain(value: Any, kind: pl.DataType) -> Any:
    """Converts a value to JSON's types; timestamps and binary values are texts already."""
    if value is None:
        return None
    if isinstance(kind, pl.List):
        inner = type_instance(kind.inner)
        return [_plain(item, inner) for item in value]
    if isinstance(kind, pl.Struct):
        return {part.name: _plain(value[part.name], type_instance(part.dtype)) for part in kind.fields}
    if isinstance(value, float):
        return _plain_float(value, single=isinstance(kind, pl.Float32))
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value.isoformat() if isinstance(value, date) else value


def _plain_float(value: float, *, single: bool) -> float | str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if not single:
        return value
    bits = struct.pack("f", value)
    texts = (float(f"{value:.{digits}g}") for digits in range(1, _FLOAT_DIGITS))
    return next((text for text in texts if _pack(text) == bits), value)


def _pack(value: float) -> bytes | None:
    """Packs a value as a float; None if it rounds to more than the largest float."""
    try:
        return struct.pack("f", value)
    except OverflowError:
        return None


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def restore_value(kind: DataType, value: Any) -> Any:
    """Returns a value of a rendered row in the form that `make_column` takes. Raises ValueError, TypeError, KeyError,
    ArithmeticError for a value that is not of the type.
    """
    if value is None:
        return None
    match kind.kind:
        case "array":
            assert kind.element is not None
            return tuple(restore_value(kind.element, item) for item in value)
        case "map":
            entry = entry_of(kind)
            return tuple(restore_value(entry, item) for item in value)
        case "struct":
            return tuple(restore_value(field, value[name]) for name, field in kind.fields)
        case "decimal":
            return Decimal(value)
        case "timestamp" | "timestamp_ntz":
            moment = datetime.fromisoformat(value)
            return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
        case "date":
            return (date.fromisoformat(value) - _EPOCH.date()).days
        case "binary":
            return base64.b64decode(value, validate=True)
        case "float" | "double":
            return float(value)
    return value
