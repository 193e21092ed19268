"""A Kafka sink in the plan. `tidegate/sinks/` writes the records."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from typing_extensions import override

from tidegate.expressions.bounds import Bound, Bounds, sum_bounds
from tidegate.formats import keys
from tidegate.formats.failures import BadRecordPolicy
from tidegate.formats.record_parts import HeaderRules, RecordParts
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, Registration
from tidegate.ids import MAIN_CLUSTER, ClusterName
from tidegate.operators.spec import Columns, Operator, Requirement, Rest, render_columns


class TopicChoice(msgspec.Struct, frozen=True):
    """Replaces a fixed topic: a column selects one of several topics for each row."""

    column: str
    """The column of frames with the topic, a string. NULL and any topic that is not allowed make the row bad."""
    allowed: tuple[str, ...]
    text: str
    """The expression, for display."""

    def __str__(self) -> str:
        return f"{self.text}, one of {', '.join(self.allowed)}"


class SinkOperator(Operator, frozen=True, tag="sink"):
    """Writes Kafka records inside the transaction of the current checkpoint interval."""

    REST: ClassVar[Rest] = Rest.WRITTEN

    topic: str | TopicChoice
    format: str  # the format's name in formats.registry
    columns: Columns  # what is written, in order (json: the fields of the object)
    key: str | None  # the column whose text is the record key
    timestamp: str | None  # the column of the record timestamp; a value that Kafka cannot store makes the row bad
    bad_records: BadRecordPolicy
    kafka: dict[str, str]
    options: FormatOptions = NO_OPTIONS
    register: Registration | None = None  # None: the schema needs no id
    key_format: str = keys.TEXT
    partition: str | None = None  # the column with the record's partition
    deleted: str | None = None  # the column that marks tombstones
    headers: HeaderRules | None = None  # None: no headers are written
    key_options: FormatOptions = NO_OPTIONS  # for keys in a format with schemas
    key_register: Registration | None = None  # None: the key's schema needs no id
    cluster: ClusterName = MAIN_CLUSTER

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics that it may write. Whatever applies to a sink's topic applies to each of them."""
        return (self.topic,) if isinstance(self.topic, str) else self.topic.allowed

    @property
    def parts(self) -> RecordParts:
        """The parts of records other than their values."""
        parts = (self.key, self.key_format, self.timestamp, self.partition, self.deleted, self.headers)
        return RecordParts(*parts, key_options=self.key_options)

    @override
    def reads(self, port: int = 0) -> set[str]:
        chosen = set() if isinstance(self.topic, str) else {self.topic.column}
        return {name for name, _ in self.columns} | self.parts.columns | chosen

    @override
    def requires(self, port: int = 0) -> frozenset[Requirement]:
        lineage = self.headers is not None and self.headers.pass_through
        return frozenset({Requirement.HEADERS} if lineage else ())

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        """Counts the values and their names."""
        names = [name for name, _ in self.columns] + ([self.key] if self.key is not None else [])
        names += [column for _, column in self.headers.added] if self.headers is not None else []
        return {}, sum_bounds(columns[name] + Bound({}, len(name)) for name in names)

    @property
    def in_cluster(self) -> str:
        """Names the cluster behind a topic in a text, unless that is `kafka`."""
        return "" if self.cluster == MAIN_CLUSTER else f" in {self.cluster}"

    @override
    def describes(self) -> list[str]:
        key = f"; key {self.key}" if self.key else ""
        key += f" as {self.key_format}" if key and self.key_format != keys.TEXT else ""
        timestamp = f"; timestamp {self.timestamp}" if self.timestamp else ""
        partition = f"; partition {self.partition}" if self.partition else ""
        lines = [
            f"topic {self.topic}{self.in_cluster}; {self.format}{key}{timestamp}{partition}",
            f"writes {render_columns(self.columns)}",
        ]
        lines += [f"tombstones where {self.deleted}"] if self.deleted else []
        lines += [f"headers: {self.headers}"] if self.headers is not None else []
        lines += self.options.describes(self.register)
        return lines + [f"key: {line}" for line in self.key_options.describes(self.key_register)]
