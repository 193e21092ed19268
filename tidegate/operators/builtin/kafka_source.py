"""A Kafka source in the plan. `tidegate/sources/` reads the records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from typing_extensions import override

from tidegate.config.fields.records import Idle, matches_pattern, render_idle
from tidegate.config.fields.units import render_duration
from tidegate.datatypes import BIGINT, BOOLEAN, INT, STRING, TIMESTAMP, DataType
from tidegate.expressions.bounds import Bound, Bounds
from tidegate.expressions.expression import Expression, columns_of, quote_column
from tidegate.formats import keys
from tidegate.formats.failures import BadRecordPolicy, RecordFailure
from tidegate.formats.record_parts import HEADERS_TYPE
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions
from tidegate.ids import MAIN_CLUSTER, ClusterName, OperatorName, SourceTopic
from tidegate.operators.fingerprint import Lineage, Lineages, digest, digest_expression
from tidegate.operators.spec import Columns, Operator, Requirement, render_columns

if TYPE_CHECKING:
    from tidegate.operators.builtin.retry.runtime import RetryDelivery

ON_LOST_STOP: Final = "stop"
ON_LOST_CONTINUE: Final = "continue"
PARTS: Final[Mapping[str, DataType]] = {
    "headers": HEADERS_TYPE,
    "timestamp": TIMESTAMP,
    "partition": INT,
    "offset": BIGINT,
    "topic": STRING,
}
"""The parts of a record besides its value, with their column types. The type of the key depends on its format."""
DELETED: Final = "_deleted"
"""The column that marks a row as a tombstone, if `on_null` turns tombstones into rows, or as deleted, for changes."""
CHANGE_COLUMNS: Final = frozenset({DELETED, "_op"})
"""The columns of a source of changes that describe the change."""
TOMBSTONE: Final = "tombstone"
SKIP: Final = "skip"


class MetadataColumn(msgspec.Struct, frozen=True):
    """A column for a part of a record other than its value."""

    part: str
    """`key`, or one of `PARTS`."""
    name: str
    type: DataType


class EventTime(msgspec.Struct, frozen=True):
    """The origin of the event time of a source's records, and how the watermark follows it.

    By default it is the Kafka timestamp. A column or an expression is checked even if no operator needs the time:
    whether a record is bad must not depend on what is read downstream.
    """

    column: str | None = None
    delay_ms: int = 0
    """The watermark of a partition is its highest event time so far, less this and 1 ms."""
    idle: Idle = Idle.CAUGHT_UP
    ahead_ms: int | None = None
    """A record is bad if the column is further than this after the Kafka timestamp; None: no limit."""
    expression: Expression | None = None
    """The expression that computes the time if it is more than a column; `column` is then None."""
    written: str = ""
    """The text of the expression."""
    arrival: bool = False
    """The Kafka timestamp is the time of arrival: a record that is behind the watermark of its partition gets the next
    instant instead of being late.
    """

    @property
    def text(self) -> str:
        """The column or the expression; empty for the Kafka timestamp."""
        return self.column or self.written

    @property
    def reads(self) -> frozenset[str]:
        """The columns from which the time is read."""
        if self.expression is not None:
            return columns_of(self.expression)
        return frozenset() if self.column is None else frozenset({self.column})


class FailedDelivery(msgspec.Struct, frozen=True):
    """A record that a delivery could not send anywhere."""

    partition: int
    offset: int
    failure: RecordFailure


class SourceOperator(Operator, frozen=True, tag="source"):
    """Reads Kafka partitions, decodes `schema`, and emits the columns of `output` that anything downstream reads.

    Its rows carry `__tidegate_partition` and `__tidegate_offset`, so that a failure downstream can be reported by them.
    """

    topics: tuple[str, ...]
    format: str  # the format's name in formats.registry
    schema: Columns  # as declared
    output: Columns  # what can be decoded and emitted
    start: str | dict[int, int]  # "earliest" | "latest" | ISO-8601 timestamp | {partition: offset}
    until: str  # "never" | "latest" | ISO-8601 timestamp
    bad_records: BadRecordPolicy
    kafka: dict[str, str]  # librdkafka properties: complete, with engine defaults and revealed secrets
    event_time: EventTime | None = None  # None: not declared
    options: FormatOptions = NO_OPTIONS
    on_lost_input: str = ON_LOST_STOP
    pattern: str = ""  # instead of `topics`: a regular expression for their names
    metadata: tuple[MetadataColumn, ...] = ()  # as declared
    key_format: str = keys.TEXT  # for the key column
    on_null: str = ""  # "bad" | "skip" | "tombstone"; empty: the format decides
    key_options: FormatOptions = NO_OPTIONS  # for keys in a format with schemas
    cluster: ClusterName = MAIN_CLUSTER

    def open_delivery(self) -> RetryDelivery | None:
        """Returns what sends its rows to several outputs, in the slot; None if all rows leave on the main output."""
        return None

    @property
    def columns(self) -> Columns:
        """All declared columns."""
        deleted = ((DELETED, BOOLEAN),) if self.on_null == TOMBSTONE else ()
        return (*self.schema, *((one.name, one.type) for one in self.metadata), *deleted)

    @property
    def checked(self) -> tuple[MetadataColumn, ...]:
        """The parts of records besides the values that are read: those that are emitted, and those that can make a
        record bad.
        """
        wanted = {name for name, _ in self.decodes}
        return tuple(one for one in self.metadata if one.name in wanted or self._can_fail(one))

    def _can_fail(self, one: MetadataColumn) -> bool:
        return one.part in ("timestamp", "headers") or (one.part == "key" and keys.can_fail(self.key_format))

    def matches(self, topic: str) -> bool:
        """Returns True if its `pattern` matches a topic."""
        return matches_pattern(self.pattern, topic)

    def reads_topic(self, cluster: ClusterName, topic: str) -> bool:
        """Returns True if it reads a topic of a cluster, by name or by its `pattern`."""
        return cluster == self.cluster and (topic in self.topics or self.matches(topic))

    @property
    def topics_text(self) -> str:
        """The topics or their pattern, for messages."""
        return ", ".join(self.topics) or f"like {self.pattern}"

    @override
    def unrepeatable(self) -> tuple[str, ...]:
        """Returns the columns that describe the change rather than the table's row. The record's key identifies the
        row, and its topic identifies the table.
        """
        event = [name for name, _ in self.schema if name in CHANGE_COLUMNS]
        return (*event, *(one.name for one in self.metadata if one.part not in ("key", "topic")))

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        """Counts an update as two rows if rows have kinds."""
        outgoing, made = super().output_size(columns, port)
        return outgoing, made + made if self.splits_rows() else made

    @property
    def carries_time(self) -> bool:
        """True if its rows have an event time and watermarks are sent."""
        return Requirement.EVENT_TIME in self.planned.carries

    @property
    def carries_headers(self) -> bool:
        """True if its rows have the headers of their records."""
        return Requirement.HEADERS in self.planned.carries

    @property
    def names_topic(self) -> bool:
        """True if its rows have the topics of their records."""
        if Requirement.TOPIC in self.planned.carries:
            return True
        # Partition and offset alone do not identify the record of the two rows of an update.
        return self.splits_rows() and len(self.topics) != 1

    @property
    def names_cluster(self) -> bool:
        """True if its rows have the name of its cluster."""
        return Requirement.CLUSTER in self.planned.carries

    @override
    def splits_rows(self) -> bool:
        """Returns True if rows have kinds, since an update is then two rows."""
        return Requirement.ROW_KIND in self.planned.carries

    @property
    def decoding(self) -> FormatOptions:
        """The options for decoding records."""
        return msgspec.structs.replace(self.options, row_kinds=self.splits_rows())

    @property
    def timing(self) -> EventTime | None:
        """The event time that is read. A declared one is checked even if no operator requires it."""
        declared = self.event_time or EventTime()
        return declared if declared.text or self.carries_time else None

    @property
    def decodes(self) -> Columns:
        """The decoded columns: those that are emitted, and those from which the event time is read."""
        output, timing = self.pruned_columns(), self.timing
        more = timing.reads - dict(output).keys() if timing is not None else ()
        return (*output, *(one for one in self.columns if one[0] in more)) if more else output

    @override
    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:
        columns = {column: digest("column", self.name, column) for column, _ in self.schema}
        columns |= {one.name: self._digest(one) for one in self.metadata}
        conditions: frozenset[str] = frozenset()
        if self.on_null == TOMBSTONE:
            columns[DELETED] = digest("metadata", self.name, DELETED)
            conditions = frozenset({digest("tombstones", self.name)})
        time = digest("event time", self.name, self._digest_time(columns)) if self.carries_time else ""
        return (Lineage(self.name, columns, conditions, time),)

    def _digest_time(self, columns: Mapping[str, str]) -> str:
        one = self.event_time or EventTime()
        if one.expression is not None:
            return digest_expression(one.expression, columns)
        return "" if one.column in self._kafka_times() else columns[one.column or ""]

    def _kafka_times(self) -> set[str | None]:
        """Returns the columns with the record's Kafka timestamp, and None, which also denotes it."""
        return {None, *(one.name for one in self.metadata if one.part == "timestamp")}

    def _digest(self, one: MetadataColumn) -> str:
        """Digests the part of the record. The name of its column has no effect; the format of a key has."""
        reading = (self.key_format, str(one.type)) if one.part == "key" else ()
        return digest("metadata", self.name, one.part, *reading)

    @override
    def describes(self) -> list[str]:
        start = self.start if isinstance(self.start, str) else {str(part): at for part, at in self.start.items()}
        in_cluster = "" if self.cluster == MAIN_CLUSTER else f" in {self.cluster}"
        return [
            f"topics {self.topics_text}{in_cluster}; {self.format}; from {start} until {self.until}",
            f"reads {render_columns(self.pruned_columns())}; bad records: {self.bad_records}",
            *self._describe_parts(),
            *self._describe_time(),
            *self.options.describes(),
            *(f"key: {line}" for line in self.key_options.describes()),
            *([f"lost input: {self.on_lost_input}"] if self.on_lost_input != ON_LOST_STOP else []),
        ]

    def _describe_parts(self) -> list[str]:
        texts = [f"{one.part} as {one.name}" for one in self.metadata]
        texts += [f"key format {self.key_format}"] if any(one.part == "key" for one in self.metadata) else []
        lines = [f"metadata: {', '.join(texts)}"] if texts else []
        lines += [f"records without value: {self.on_null}"] if self.on_null else []
        lines += ["carries headers: a sink passes them on"] if self.carries_headers else []
        lines += ["an update is two rows: the old one, retracted, and the new one"] if self.splits_rows() else []
        return lines

    def _describe_time(self) -> list[str]:
        one = self.timing
        if one is None:
            return []
        ahead = "" if one.ahead_ms is None else f", at most {render_duration(one.ahead_ms)} after the Kafka timestamp"
        time = f"event time: {'arrival' if one.arrival else one.text or 'Kafka timestamp'}{ahead}"
        if not self.carries_time:
            return [f"{time}, checked; no step needs it"]
        return [f"{time}; watermark: delay {render_duration(one.delay_ms)}, idle {render_idle(one.idle)}"]

    @override
    def origins(self) -> tuple[SourceTopic, ...]:
        return tuple(SourceTopic(self.cluster, topic) for topic in self.topics or (f"a topic {self.topics_text}",))


def derive_early_remedy(source: SourceOperator) -> str:
    """Returns the remedy that fits the origin of the source's event time."""
    one = source.event_time
    if one is None or not one.text:
        return (
            "set `event_time` to the column that has the time, or correct the producer: a Kafka timestamp is in "
            "ms since 1970"
        )
    kind = dict(source.columns)[one.column] if one.column is not None else one.expression and one.expression.type
    if kind != TIMESTAMP:
        remedy = f"`event_time: timestamp_seconds({one.written or quote_column(one.column or '')})`"
        return f"`{one.text}` is read as ms since 1970: if it is in seconds, write {remedy}"
    return f"`{one.text}` is a timestamp: correct the unit in which it is read or computed, or the producer"


def describe_early(source: OperatorName, count: int, remedy: str) -> str:
    """Returns the message for the log and for `status`."""
    number = "1 record has an event time" if count == 1 else f"{count:,} records have event times"
    return f"source {source}: {number} before 1971; {remedy}"
