"""Checks `event_time` of a source against the columns of the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from tidegate.config.fields.base import Path
from tidegate.config.fields.event_time import BY_ARRIVAL, Idle
from tidegate.config.models import SourceSettings
from tidegate.datatypes import DataType
from tidegate.expressions.event_time import find_event_time_problem
from tidegate.expressions.expression import ColumnReference, Expression
from tidegate.operators.builtin.kafka_source import EventTime

if TYPE_CHECKING:
    from tidegate.plan.steps import Builder


def derive_event_time(
    builder: Builder, name: str, source: SourceSettings, columns: Mapping[str, DataType]
) -> EventTime:
    """Derives the event time as declared and reports problems. `prune.py` decides later whether it is needed."""
    watermark, text = source.watermark, source.event_time
    if source.time == BY_ARRIVAL:
        return EventTime(None, watermark.delay_ms, Idle.WALL_CLOCK, arrival=True)
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
    problem = find_event_time_problem(found, written, is_column=text in columns, of="source")
    if problem is not None:
        builder.problem(path, *problem)
    if isinstance(found, ColumnReference):
        return msgspec.structs.replace(how, column=found.name)
    return msgspec.structs.replace(how, expression=found, written=written)
