"""A Kafka source as the plan knows it. What reads is in `tidegate/sources/`."""

from __future__ import annotations

from typing import Any

import msgspec

from tidegate.formats.failures import BadRecordPolicy
from tidegate.operators.meaning import Branch, Branches, digest
from tidegate.operators.spec import Columns, Operator, keep_columns, render_columns, texts_of
from tidegate.settings.event_time import Idle, render_idle
from tidegate.settings.units import render_duration


class EventTime(msgspec.Struct, frozen=True):
    """Where a source has the event time of its records from, and how its watermark follows it."""

    column: str | None = None
    """None: the Kafka timestamp. A declared column is checked whether anybody needs the time or not: a record's fate
    must not depend on what is read further down."""
    delay_ms: int = 0
    """The watermark of a partition is its highest event time so far, less this and 1 ms."""
    idle: Idle = Idle.CAUGHT_UP
    carried: bool = False
    """An operator downstream needs it: rows have `__time` and `__behind`, and watermarks are sent."""


class SourceOperator(Operator, frozen=True, tag="source"):
    """Reads Kafka partitions, decodes `schema`, emits `output` (only the columns that anything downstream reads).

    Its rows carry `__partition` and `__offset`: wherever one fails further down, it is reported by them.
    """

    topics: tuple[str, ...]
    format: str  # by its name in formats.registry
    schema: Columns  # as declared
    output: Columns  # what is decoded and emitted
    start: str | dict[int, int]  # "earliest" | "latest" | ISO-8601 timestamp | {partition: offset}
    until: str  # "never" | "latest" | ISO-8601 timestamp
    bad_records: BadRecordPolicy
    kafka: dict[str, str]  # librdkafka properties without secrets resolved away: complete, engine defaults included
    event_time: EventTime | None = None  # None: nobody has declared or needs it

    def produces(self) -> Columns:
        """See Operator."""
        return self.output

    def narrowed(self, needed: set[str]) -> SourceOperator:
        """See Operator. What is declared is checked all the same."""
        return msgspec.structs.replace(self, output=keep_columns(self.output, needed))

    def timed(self, *, carried: bool) -> SourceOperator:
        """See Operator."""
        event_time = self.event_time or EventTime()
        unused = event_time.column is None and not carried
        return msgspec.structs.replace(
            self, event_time=None if unused else msgspec.structs.replace(event_time, carried=carried)
        )

    @property
    def decodes(self) -> Columns:
        """What is decoded: `output`, and the column that the event time is read from."""
        column = None if self.event_time is None else self.event_time.column
        if column is None or column in dict(self.output):
            return self.output
        return (*self.output, (column, dict(self.schema)[column]))

    def passes(self, branches: Branches) -> Branches:  # noqa: ARG002  # nothing reaches a source
        """See Operator."""
        columns = {column: digest("column", self.name, column) for column, _ in self.schema}
        event_time = self.event_time
        carried = event_time is not None and event_time.carried
        of = columns[event_time.column] if event_time is not None and event_time.column is not None else ""
        return (Branch(self.name, columns, time=digest("event time", self.name, of) if carried else ""),)

    def explains(self) -> dict[str, Any]:
        """See Operator."""
        start = self.start if isinstance(self.start, str) else {str(k): v for k, v in self.start.items()}
        return {
            "topics": list(self.topics),
            "format": self.format,
            "start": start,
            "until": self.until,
            "bad_records": self.bad_records,
            "reads": texts_of(self.output),
            "event_time": self._explain_time(),
        }

    def describes(self) -> list[str]:
        """See Operator."""
        start = self.explains()["start"]
        return [
            f"topics {', '.join(self.topics)}; {self.format}; from {start} until {self.until}",
            f"reads {render_columns(self.output)}; bad records: {self.bad_records}",
            *self._describe_time(),
        ]

    def _explain_time(self) -> dict[str, Any] | None:
        if self.event_time is None:
            return None
        one = self.event_time
        return {
            "of": one.column or "Kafka timestamp",
            "delay": render_duration(one.delay_ms),
            "idle": render_idle(one.idle),
            "carried": one.carried,
        }

    def _describe_time(self) -> list[str]:
        found = self._explain_time()
        if found is None:
            return []
        if not found["carried"]:
            return [f"event time: {found['of']}, checked; no step needs it"]
        return [f"event time: {found['of']}; watermark: delay {found['delay']}, idle {found['idle']}"]

    def origins(self) -> tuple[str, ...]:
        """See Operator."""
        return self.topics
