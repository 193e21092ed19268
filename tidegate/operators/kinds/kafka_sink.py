"""A Kafka sink as the plan knows it. What writes is in `tidegate/sinks/`."""

from __future__ import annotations

from typing import Any, ClassVar

from tidegate.expressions.bounds import Bound, Bounds, sum_bounds
from tidegate.formats.failures import BadRecordPolicy
from tidegate.operators.spec import Columns, Operator, Rest, render_columns, texts_of


class SinkOperator(Operator, frozen=True, tag="sink"):
    """Writes Kafka records inside the transaction of the current checkpoint interval."""

    REST: ClassVar[Rest] = Rest.WRITTEN

    topic: str
    format: str  # by its name in formats.registry
    columns: Columns  # what is written, in order (json: the fields of the object)
    key: str | None  # column whose text is the record key
    timestamp: str | None  # column that becomes the record timestamp; rows whose value Kafka cannot store are bad
    bad_records: BadRecordPolicy
    kafka: dict[str, str]

    def reads(self) -> set[str]:
        """See Operator."""
        return {name for name, _ in self.columns} | {name for name in (self.key, self.timestamp) if name is not None}

    def makes(self, columns: Bounds) -> tuple[Bounds, Bound]:
        """See Operator. The values and their names."""
        names = [name for name, _ in self.columns] + ([self.key] if self.key is not None else [])
        return {}, sum_bounds(columns[name] + Bound({}, len(name)) for name in names)

    def explains(self) -> dict[str, Any]:
        """See Operator."""
        return {
            "topic": self.topic,
            "format": self.format,
            "columns": texts_of(self.columns),
            "key": self.key,
            "timestamp": self.timestamp,
            "bad_records": self.bad_records,
        }

    def describes(self) -> list[str]:
        """See Operator."""
        key = f"; key {self.key}" if self.key else ""
        timestamp = f"; timestamp {self.timestamp}" if self.timestamp else ""
        return [f"topic {self.topic}; {self.format}{key}{timestamp}", f"writes {render_columns(self.columns)}"]
