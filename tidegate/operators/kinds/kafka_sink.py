"""A Kafka sink as the plan knows it. What writes is in `tidegate/sinks/`."""

from __future__ import annotations

from typing import Any, ClassVar

from tidegate.expressions.bounds import Bound, Bounds, sum_bounds
from tidegate.formats import keys
from tidegate.formats.failures import BadRecordPolicy
from tidegate.formats.record_parts import HeaderRules, RecordParts
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, Registration
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
    options: FormatOptions = NO_OPTIONS
    register: Registration | None = None  # None: the schema needs no id
    key_format: str = keys.TEXT
    partition: str | None = None  # column with the partition that a record goes to
    deleted: str | None = None  # column that says which rows are tombstones
    headers: HeaderRules | None = None  # None: none are written

    @property
    def parts(self) -> RecordParts:
        """What records get besides their values."""
        return RecordParts(self.key, self.key_format, self.timestamp, self.partition, self.deleted, self.headers)

    def reads(self) -> set[str]:
        """See Operator."""
        return {name for name, _ in self.columns} | self.parts.columns

    def needs_headers(self) -> bool:
        """See Operator."""
        return self.headers is not None and self.headers.passes

    def makes(self, columns: Bounds) -> tuple[Bounds, Bound]:
        """See Operator. The values and their names."""
        names = [name for name, _ in self.columns] + ([self.key] if self.key is not None else [])
        names += [column for _, column in self.headers.added] if self.headers is not None else []
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
            **self._explain_parts(),
            **self.options.explains(),
        }

    def _explain_parts(self) -> dict[str, Any]:
        """What the file says besides the usual; nothing where it says nothing."""
        found: dict[str, Any] = {}
        if self.key_format != keys.TEXT:
            found["key_format"] = self.key_format
        if self.partition is not None:
            found["partition"] = self.partition
        if self.headers is not None:
            found["headers"] = self.headers.explains()
        if self.deleted is not None:
            found["tombstones"] = self.deleted
        return found

    def describes(self) -> list[str]:
        """See Operator."""
        key = f"; key {self.key}" if self.key else ""
        key += f" as {self.key_format}" if key and self.key_format != keys.TEXT else ""
        timestamp = f"; timestamp {self.timestamp}" if self.timestamp else ""
        partition = f"; partition {self.partition}" if self.partition else ""
        lines = [
            f"topic {self.topic}; {self.format}{key}{timestamp}{partition}",
            f"writes {render_columns(self.columns)}",
        ]
        lines += [f"tombstones where {self.deleted}"] if self.deleted else []
        lines += [f"headers: {self.headers}"] if self.headers is not None else []
        return lines + self.options.describes(self.register)
