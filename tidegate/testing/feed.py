"""The input of a case as events in time order, and the topics of a test bench: lists of messages by partition, and a
client that reads them.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import confluent_kafka as ck
import msgspec
from typing_extensions import override

from tidegate.config.cases import GivenSettings
from tidegate.config.models import SourceSettings
from tidegate.errors import TidegateError
from tidegate.formats import keys
from tidegate.formats.contract import FormatRefusal
from tidegate.formats.registry import FORMATS
from tidegate.formats.schema_keys import derive_key_schema, key_from_plain
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, KnownSchemas, Schemas, SchemaText, UnknownSchema
from tidegate.ids import MAIN_CLUSTER, ClusterName, OperatorName, TopicPartition
from tidegate.operators.async_queue import PendingCall
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.calls.caller import Asked, Caller
from tidegate.plan.graph import Plan
from tidegate.sources.messages import KafkaMessages
from tidegate.sources.tools import Consumer

Copies = Callable[[int | str], SchemaText | None]
"""Looks up a copy of a registry's schema by id or GUID."""
_KEY_ID: Final = 2**31 - 1
"""Id of a key schema that has none; value schemas have 0."""


NO_TIMESTAMP: Final = -1
"""The timestamp that Kafka's clients write for a record without one."""


class ProducedRecord(msgspec.Struct, frozen=True):
    """A record of a topic. A `timestamp_ms` of None means the clock's time, and `NO_TIMESTAMP` means none."""

    partition: TopicPartition
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    cluster: ClusterName = MAIN_CLUSTER


class NoCopy(UnknownSchema):
    """There is no local copy of a record's schema."""

    def __init__(self, schema_id: int | str) -> None:
        super().__init__(schema_id)
        self.args = (
            f"schema {schema_id} is not in the local copies; `tidegate run` stores a copy of each schema that it reads",
        )


class CopiedSchemas(KnownSchemas):
    """Schemas including copies from a registry, whose ids the records read from a topic carry."""

    def __init__(self, schemas: Mapping[int, SchemaText], copies: Copies) -> None:
        super().__init__(schemas)
        self._copies = copies

    @override
    def get(self, schema_id: int | str, /) -> SchemaText | None:
        try:
            return super().get(schema_id)
        except UnknownSchema:
            found = self._copies(schema_id)
            if found is None:
                raise NoCopy(schema_id) from None
            return found


class ValueRefused(TidegateError):
    """The format of the source cannot encode a value of a case."""

    code = "value-refused"
    exit_code = 2
    retriable = False


class FeedEvent(msgspec.Struct, frozen=True):
    """An event of a case, `after_ms` after its start. An event without record or watermark only lets time pass."""

    after_ms: int
    record: ProducedRecord | None = None
    source: str = ""
    watermark_ms: int | None = None
    """The new watermark of `source`."""


def plain_options(plan: Plan) -> dict[str, FormatOptions]:
    """Returns the schemas of the sources' values, derived from the columns if the file names none."""
    return {str(one.name): _plain_options(one) for one in plan.operators(SourceOperator)}


def plain_schemas(source: SourceOperator, copies: Copies | None) -> Schemas:
    """Returns the schemas of values and keys, and copies. There is no registry."""
    found = [_plain_options(source).schema, _plain_key_options(source).schema]
    known = {one.id: one for one in found if one is not None}
    return KnownSchemas(known) if copies is None else CopiedSchemas(known, copies)


def plain_key_options(plan: Plan) -> dict[str, FormatOptions]:
    """Returns the schemas of keys in a format with schemas, as `plain_options` does for values."""
    return {
        str(one.name): _plain_key_options(one) for one in plan.operators(SourceOperator) if one.key_format == keys.AVRO
    }


def _plain_key_options(source: SourceOperator) -> FormatOptions:
    options = source.key_options
    if source.key_format != keys.AVRO:
        return options
    schema = options.schema
    if schema is None:
        (kind,) = [one.type for one in source.metadata if one.part == "key"]
        schema = derive_key_schema(kind, source.name)
    return msgspec.structs.replace(options, schema=msgspec.structs.replace(schema, id=schema.id or _KEY_ID))


def _plain_options(source: SourceOperator) -> FormatOptions:
    options = msgspec.structs.replace(source.options, columns=tuple(name for name, _ in source.schema))
    record_format = FORMATS[source.format]
    if record_format.schema_kind is None or options.schema is not None:
        return options
    schema = record_format.derive_schema(dict(source.schema), source.name)
    return msgspec.structs.replace(options, schema=schema)


def derive_events(
    given: Mapping[str, Sequence[GivenSettings]],
    sources: Mapping[str, SourceSettings],
    options: Mapping[str, FormatOptions],
    key_options: Mapping[str, FormatOptions],
    turns: Mapping[OperatorName, int],
) -> list[FeedEvent]:
    """Returns the events in time order.

    Each source has its own time, which its `advance` moves; ties keep the order of the sources. What is there at the
    start comes in the order of the gates: `turns` as in derive_turns.
    """
    events: list[tuple[int, FeedEvent]] = []
    for name, elements in given.items():
        after_ms, turn = 0, turns.get(OperatorName(name), 0)
        for element in elements:
            if element.advance_ms is not None:
                after_ms += element.advance_ms
                events.append((0, FeedEvent(after_ms)))
            elif element.watermark is not None:
                events.append((0 if after_ms else turn, FeedEvent(after_ms, None, name, element.watermark)))
            else:
                record = make_record(element, sources[name], options.get(name, NO_OPTIONS), key_options.get(name))
                events.append((0 if after_ms else turn, FeedEvent(after_ms, record)))
    return [event for _, event in sorted(events, key=lambda one: (one[1].after_ms, one[0]))]


def make_record(
    element: GivenSettings, source: SourceSettings, options: FormatOptions, key_options: FormatOptions | None
) -> ProducedRecord:
    """Encodes a record of a case. Raises ValueRefused."""
    part = TopicPartition(element.topic or source.example_topic, element.partition)
    key = element.key_base64 if element.key is None else _key(element.key, key_options)
    none = "timestamp" in element.written and element.timestamp is None
    at_ms = NO_TIMESTAMP if none else element.timestamp
    value = _value(element, source.format, options)
    return ProducedRecord(part, key, value, at_ms, element.headers or (), source.cluster)


def _key(text: str, options: FormatOptions | None) -> bytes:
    """Encodes a key. With `options`, it is JSON text for a format with schemas, or begins with the id of its schema."""
    if options is None or text.startswith("\0"):
        return text.encode()
    try:
        return key_from_plain(text, options)
    except FormatRefusal as refused:
        raise ValueRefused(f"{refused.message}: {text[:100]}; {refused.remedy}") from refused


def _value(element: GivenSettings, format_name: str, options: FormatOptions) -> bytes | None:
    if element.text is not None:
        return element.text.encode()
    if element.value_base64 is not None:
        return element.value_base64
    if element.value is None:
        return None
    try:
        return FORMATS[format_name].from_plain(element.value, options)
    except FormatRefusal as refused:
        raise ValueRefused(f"{refused.message}: {str(element.value)[:100]}; {refused.remedy}") from refused


Ends = Mapping[ClusterName, Mapping[TopicPartition, int]]
"""The final number of records of each partition."""


def open_log(ends: Ends, copies: Copies | None) -> Log:
    """Opens the logs of all clusters. The parameters are as in Log."""
    others = {cluster: theirs for cluster, theirs in ends.items() if cluster != MAIN_CLUSTER}
    return Log(ends.get(MAIN_CLUSTER, {}), copies, others)


def derive_ends(records: Iterable[ProducedRecord], sources: Iterable[SourceSettings]) -> Ends:
    """Returns the final number of records of each partition.

    A topic without records has one partition. A pattern stands for a topic of its own only if no topic with records
    matches it.
    """
    ends: defaultdict[ClusterName, Counter[TopicPartition]] = defaultdict(Counter)
    for one in records:
        ends[one.cluster][one.partition] += 1
    given = {cluster: {part.topic for part in theirs} for cluster, theirs in ends.items()}
    for source in sources:
        named = given.get(source.cluster, set())
        ends[source.cluster] |= {
            TopicPartition(topic, 0): 0
            for topic in source.all_topics or ([] if any(map(source.reads, named)) else [source.example_topic])
            if topic not in named
        }
    return ends


# -- the topics: lists of messages by partition, and a client that reads them ------------------------------------------

_END: Final = ck.KafkaError._PARTITION_EOF  # noqa: SLF001  # the client's own codes begin with an underscore, but are public

NO_OTHERS: Final[Mapping[ClusterName, Mapping[TopicPartition, int]]] = {}


class Log:
    """The records produced so far in a cluster. Sources of the same topic read the same records."""

    def __init__(
        self,
        ends: Mapping[TopicPartition, int],
        copies: Callable[[int | str], SchemaText | None] | None = None,
        others: Mapping[ClusterName, Mapping[TopicPartition, int]] = NO_OTHERS,
    ) -> None:
        """`ends`: the final number of records of each partition in the main cluster; `others`: those in other ones.

        `copies`: copies of a registry's schemas.
        """
        self.ends = ends
        self.copies = copies
        self.partitions: dict[TopicPartition, list[ck.Message]] = {part: [] for part in ends}
        self._others = {cluster: Log(theirs, copies) for cluster, theirs in others.items()}

    def of(self, cluster: ClusterName) -> Log:
        """Returns the log of a cluster."""
        return self if cluster == MAIN_CLUSTER else self._others[cluster]

    def append(
        self,
        part: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> None:
        """Produces a record."""
        records = self.partitions[part]
        records.append(
            ck.Message(
                topic=part.topic,
                partition=part.partition,
                offset=len(records),
                key=key,
                value=value,
                headers=list(headers),
                error=None,
                timestamp=(ck.TIMESTAMP_CREATE_TIME, timestamp_ms),
            )
        )


class LogRecords(Caller):
    """A caller that reads single records back at once."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._asked: list[tuple[PendingCall, object]] = []

    @override
    def submit(self, asked: Asked) -> None:
        self._asked += asked

    @override
    def take(self) -> list[PendingCall]:
        asked, self._asked = self._asked, []
        for call, request in asked:
            cluster, topic, partition, offset = cast("tuple[ClusterName, str, int, int]", request)
            records = self._log.of(cluster).partitions[TopicPartition(topic, partition)]
            call.answer = KafkaMessages([records[offset]]).raw(0)
        return [call for call, _ in asked]

    @override
    def close(self) -> None:
        pass


class LogConsumer(Consumer):
    """The consumer methods that `sources.reader` uses. It never waits."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._next: dict[TopicPartition, int] = {}
        self._ended: dict[TopicPartition, int] = {}
        self._queue: deque[ck.Message] = deque()

    @property
    def waiting(self) -> bool:
        """True if `consume` would return anything."""
        self._fetch()
        return bool(self._queue)

    @override
    def assign(self, partitions: list[ck.TopicPartition]) -> None:
        self._next = {TopicPartition(one.topic, one.partition): one.offset for one in partitions}

    @override
    def incremental_assign(self, partitions: list[ck.TopicPartition]) -> None:
        self._next |= {TopicPartition(one.topic, one.partition): one.offset for one in partitions}

    @override
    def pause(self, partitions: list[ck.TopicPartition]) -> None:
        for one in partitions:
            self._next.pop(TopicPartition(one.topic, one.partition), None)

    def resume(self, partitions: list[ck.TopicPartition]) -> None:
        """Raises NotImplementedError, because nothing is ever paused to wait."""
        raise NotImplementedError

    @override
    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
        self._fetch()
        return [self._queue.popleft() for _ in range(min(num_messages, len(self._queue)))]

    @override
    def get_watermark_offsets(
        self,
        partition: ck.TopicPartition,
        timeout: float = -1,
        cached: bool = False,
    ) -> tuple[int, int]:
        return 0, len(self._log.partitions[TopicPartition(partition.topic, partition.partition)])

    @override
    def offsets_for_times(
        self,
        partitions: list[ck.TopicPartition],
        timeout: float = -1,
    ) -> list[ck.TopicPartition]:
        return [ck.TopicPartition(p.topic, p.partition, self.get_watermark_offsets(p)[1]) for p in partitions]

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Raises NotImplementedError: it is only needed when a broker is unavailable."""
        raise NotImplementedError

    @override
    def close(self) -> None:
        pass

    def _fetch(self) -> None:
        """Queues all new records, and each end once."""
        for part, offset in self._next.items():
            records = self._log.partitions[part]
            self._queue.extend(records[offset:])
            self._next[part] = len(records)
            if self._ended.get(part) != len(records):
                self._ended[part] = len(records)
                end = ck.Message(
                    error=ck.KafkaError(_END), topic=part.topic, partition=part.partition, offset=len(records)
                )
                self._queue.append(end)
