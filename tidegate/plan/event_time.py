"""Checks `event_time` of a source against the columns of the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.config.fields.base import Path
from tidegate.config.models import SourceSettings
from tidegate.datatypes import DataType
from tidegate.expressions.expression import ColumnReference, Expression, columns_of, quote_column
from tidegate.expressions.secrets import find_secrets, is_random
from tidegate.operators.builtin.kafka_source import EventTime

if TYPE_CHECKING:
    from tidegate.plan.steps import Builder

_INTEGERS: Final = frozenset({"tinyint", "smallint", "int"})
_CAST: Final = frozenset({"date", "timestamp_ntz"})
_CAST_AS_SECONDS: Final = frozenset({"float", "double", "decimal"})


def derive_event_time(
    builder: Builder, name: str, source: SourceSettings, columns: Mapping[str, DataType]
) -> EventTime:
    """Derives the event time as declared and reports problems. `prune.py` decides later whether it is needed."""
    watermark, text = source.watermark, source.event_time
    how = EventTime(None, watermark.delay_ms, watermark.idle, watermark.ahead_ms)
    if text is None:
        if watermark.ahead_ms is not None:
            remedy = "name a column, or remove `ahead`: brokers have `message.timestamp.after.max.ms`"
            message = "without `event_time` the Kafka timestamp is the event time, and never ahead of itself"
            builder.problem(("sources", name, "watermark", "ahead"), message, remedy)
        return how
    path: Path = ("sources", name, "event_time")
    if text in columns:  # even if the name would parse as an expression
        found: Expression | None = ColumnReference(text, columns[text])
    else:
        found = builder.expression(path, text, columns)
    if found is None:
        return how
    written = " ".join(text.split())
    problem = _find_problem(found, written, quote_column(text) if text in columns else written)
    if problem is not None:
        builder.problem(path, *problem)
    if isinstance(found, ColumnReference):
        return msgspec.structs.replace(how, column=found.name)
    return msgspec.structs.replace(how, expression=found, written=written)


def _find_problem(found: Expression, text: str, inside: str) -> tuple[str, str] | None:
    """Returns message and remedy; `inside` is the text as a part of an expression."""
    from_columns = "compute the event time from columns of the source"
    if not columns_of(found):
        return f"`{text}` is the same for all records", from_columns
    if found.type.kind not in ("timestamp", "bigint"):
        return f"`{text}` is {found.type}", _remedy(found.type, inside)
    if is_random(found) or any(find_secrets(found)):
        return f"`{text}` encrypts, or needs a secret", f"{from_columns} that are not encrypted"
    return None


def _remedy(kind: DataType, text: str) -> str:
    either = "use a timestamp, or a bigint in ms since 1970"
    if kind.kind in _INTEGERS:
        return f"{either}: of seconds `timestamp_seconds({text})`"
    if kind.kind in _CAST_AS_SECONDS:
        return f"{either}: of seconds `cast({text} as timestamp)`"
    if kind.kind == "string":
        return f"{either}: `cast({text} as timestamp)`, or `to_timestamp({text}, 'dd/MM/yyyy HH:mm')` with its pattern"
    if kind.kind in _CAST:
        return f"{either}: `cast({text} as timestamp)`"
    return either
