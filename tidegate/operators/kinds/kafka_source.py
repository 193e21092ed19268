"""A Kafka source as the plan knows it. What reads is in `tidegate/sources/`."""

from __future__ import annotations

from typing import Any

import msgspec

from tidegate.formats.failures import BadRecordPolicy
from tidegate.operators.meaning import Branch, Branches, digest
from tidegate.operators.spec import Columns, Operator, keep_columns, render_columns, texts_of


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

    def produces(self) -> Columns:
        """See Operator."""
        return self.output

    def narrowed(self, needed: set[str]) -> SourceOperator:
        """See Operator. What is declared is checked all the same."""
        return msgspec.structs.replace(self, output=keep_columns(self.output, needed))

    def passes(self, branches: Branches) -> Branches:  # noqa: ARG002  # nothing reaches a source
        """See Operator."""
        return (Branch(self.name, {column: digest("column", self.name, column) for column, _ in self.schema}),)

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
        }

    def describes(self) -> list[str]:
        """See Operator."""
        start = self.explains()["start"]
        return [
            f"topics {', '.join(self.topics)}; {self.format}; from {start} until {self.until}",
            f"reads {render_columns(self.output)}; bad records: {self.bad_records}",
        ]

    def origins(self) -> tuple[str, ...]:
        """See Operator."""
        return self.topics
