"""Failed records as rows on their way to the dead-letter topic, with the failed row as the step received it.

The row is JSON from which the same row can be restored. Numbers, booleans, texts, arrays and structs are those of
JSON. A decimal is text with all digits of its scale, a timestamp and a date are ISO 8601, binary is base64, and a map
is an array of `key` and `value`. Doubles that JSON cannot represent are the texts `NaN`, `Infinity` and `-Infinity`.
The types are separate JSON: `{"price": "decimal(10,2)"}`.
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
from tidegate.formats.columns import polars_type, type_instance, type_of
from tidegate.formats.contract import Headers
from tidegate.formats.dead_letters import (
    DEAD_LETTER_COLUMNS,
    MESSAGE_CHARACTERS_MAX,
    NO_HEADERS,
    NO_RECORD,
    ORIGINAL,
    RETRY_TRIES,
    ROW_BYTES_MAX,
    WANTED,
)
from tidegate.formats.failures import RecordFailure
from tidegate.formats.row_kinds import ROW_KIND
from tidegate.formats.text import json_ready
from tidegate.ids import ClusterName, SourceTopic

DEAD_LETTER_SCHEMA: Final = {name: polars_type(kind) for name, kind in DEAD_LETTER_COLUMNS}


class RawRecord(msgspec.Struct, frozen=True):
    """A record of a source as it was read."""

    key: bytes | None
    value: bytes | None
    headers: Headers | None
    """None if they cannot be read."""
    timestamp_ms: int | None


def dead_letters_of_records(
    step: str, cluster: ClusterName, found: Sequence[tuple[str, int, int, RawRecord, RecordFailure]]
) -> pl.DataFrame:
    """Returns dead letters for records that a source could not decode: topic, partition, offset, bytes and reason."""
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            **columns_of(raw),
            "step": step,
            "kind": failure.kind.value,
            "message": _message_of(failure),
            "cluster": cluster,
        }
        for topic, partition, offset, raw, failure in found
    ]
    return pl.DataFrame(rows, schema=DEAD_LETTER_SCHEMA)


def columns_of(raw: RawRecord) -> dict[str, Any]:
    """Returns the columns that come from the record itself."""
    headers = [{"key": name, "value": value} for name, value in raw.headers or ()]
    return {
        "bytes": NO_HEADERS if raw.headers is None else ORIGINAL,
        "key": raw.key,
        "value": raw.value,
        "headers": headers,
        "timestamp": raw.timestamp_ms,
    }


def dead_letters_of_rows(
    step: str,
    origins: Sequence[SourceTopic],
    frame: pl.DataFrame,
    failures: Sequence[RecordFailure],
    port: int | None = 0,
) -> pl.DataFrame:
    """Returns dead letters for rows of `frame` that failed in a step or a sink.

    `port` is the input on which the rows arrived, None if they are results of the step. `origins` are the topics from
    which the rows may come. The record's bytes are read back by topic, partition and offset if these are known.
    """
    rows = frame[[failure.row for failure in failures]]
    place = [_column(rows, name) for name in ("__tidegate_partition", "__tidegate_offset")]
    topics = _only([one.topic for one in origins], rows.height) or _column(rows, "__tidegate_topic")
    clusters = _only([one.cluster for one in origins], rows.height) or _column(rows, "__tidegate_cluster")
    texts, types = render_rows(rows), render_types(rows)
    known = [None not in one for one in zip(clusters, topics, *place, strict=True)]
    return pl.DataFrame(
        {
            "topic": topics,
            "partition": place[0],
            "offset": place[1],
            "bytes": [WANTED if one else NO_RECORD for one in known],
            "step": [step] * rows.height,
            "kind": [failure.kind.value for failure in failures],
            "message": [_message_of(failure) for failure in failures],
            "row": [text for text, _ in texts],
            "row_types": [None if text is None else types for text, _ in texts],
            "row_bytes": [size for _, size in texts],
            "port": [port] * rows.height,
            "tries": _column(rows, RETRY_TRIES),
            "cluster": clusters,
        },
        schema_overrides=DEAD_LETTER_SCHEMA,
    ).select([name if name in _MADE else pl.lit(None, kind).alias(name) for name, kind in DEAD_LETTER_SCHEMA.items()])


_MADE: Final = frozenset(name for name, _ in DEAD_LETTER_COLUMNS) - {"key", "value", "headers", "timestamp"}


def _message_of(failure: RecordFailure) -> str:
    """Replaces characters that cannot be encoded: texts of exceptions may not be valid UTF-8."""
    return failure.message[:MESSAGE_CHARACTERS_MAX].encode(errors="replace").decode()


def _only(names: Sequence[str], count: int) -> list[Any]:
    """Returns the name that all rows have; empty if there are several."""
    return [names[0]] * count if len({*names}) == 1 else []


def _column(rows: pl.DataFrame, name: str) -> list[Any]:
    return rows[name].to_list() if name in rows.columns else [None] * rows.height


# -- the failed row ----------------------------------------------------------------------------------------------------


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
