"""What a slot gets in place of clocks, threads, disks and Kafka: everything happens when the bench asks for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.coordinator.types import SourcePositions
from tidegate.formats.failures import BadRecordPolicy
from tidegate.formats.record_limits import RecordLimits
from tidegate.formats.records import OutputRecords
from tidegate.formats.schemas import Schemas
from tidegate.ids import CheckpointId, TopicPartition
from tidegate.kafka.tools import KafkaTools
from tidegate.operators.builtin.dead_letters import Origin
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.calls.caller import Caller
from tidegate.operators.runtime import ROWS_MAX
from tidegate.sinks.kafka import SinkPlacement
from tidegate.sinks.runtime import SinkRuntime
from tidegate.slot.parts import SlotParts, reading_of
from tidegate.slot.uploads import Uploads
from tidegate.sources.fetching import Fetcher
from tidegate.sources.positions import Positions
from tidegate.sources.reader import ConsumerThread, Pending
from tidegate.sources.runtime import BadRecord, SourceRuntime
from tidegate.sources.tools import SourceTools
from tidegate.storage.base import ObjectMissing
from tidegate.task.loop import UploadJob
from tidegate.task.messages import Deploy, SlotSettings
from tidegate.task.ports import Prepared
from tidegate.testing.calls import PromptCaller
from tidegate.testing.feed import plain_schemas
from tidegate.testing.log import Log, LogConsumer, LogRecords

if TYPE_CHECKING:
    from tidegate.coordinator.types import StateHandle
    from tidegate.storage.base import Storage

NO_LIMIT: Final = 1 << 40


class VirtualClock:
    """Stands until it is set. See clock.Clock, and the clock of the loop."""

    def __init__(self, now_ms: int) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        """See Clock."""
        return self.time_ms

    def monotonic(self) -> float:
        """See Clock."""
        return self.time_ms / 1000

    def elapsed_ms(self) -> float:
        """See the loop's Clock."""
        return float(self.time_ms)

    def sleep(self, seconds: float) -> None:
        """Nobody waits for anybody here."""


class MemoryStorage:
    """See Storage."""

    location = "memory"

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """See Storage."""
        return self._objects.setdefault(name, data) is data

    def put(self, name: str, data: bytes) -> None:
        """See Storage."""
        self._objects[name] = data

    def get(self, name: str) -> bytes:
        """See Storage."""
        try:
            return self._objects[name]
        except KeyError:
            raise ObjectMissing(f"{name} is missing", name=name) from None

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """See Storage."""
        return self.get(name)[start : start + length]

    def exists(self, name: str) -> bool:
        """See Storage."""
        return name in self._objects

    def list(self, prefix: str) -> list[str]:
        """See Storage."""
        return sorted(name for name in self._objects if name.startswith(prefix))

    def delete(self, name: str) -> None:
        """See Storage."""
        self._objects.pop(name, None)

    def delete_all(self, names: Sequence[str]) -> None:
        """See Storage."""
        for name in names:
            self.delete(name)

    def probe(self) -> None:
        """See Storage."""


class PromptUploads(Uploads):
    """See Uploads. A job is done when it is submitted."""

    def close(self, timeout_s: float) -> None:
        """See Uploads."""

    def _start(self) -> None:
        """There is no thread."""

    def _put(self, job: UploadJob | StateHandle) -> None:
        self._do(job)


class OneThread:
    """See threads.Condition. Nobody else can change what is waited for."""

    def __enter__(self) -> object:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        pass

    def wait_for(self, predicate: Callable[[], object], timeout: float | None = None) -> object:  # noqa: ARG002  # as Condition
        """See Condition."""
        return predicate()

    def notify_all(self) -> None:
        """See Condition."""


class LogTools(SourceTools):
    """Consumers of what a case gives."""

    def __init__(self, log: Log, clock: VirtualClock) -> None:
        self.log = log
        self.clock = clock

    def condition(self) -> OneThread:
        """See Threads."""
        return OneThread()


class TestLogReader(ConsumerThread):
    """Reads when it is asked to: its thread never starts."""

    _consumer: LogConsumer
    _fetcher: Fetcher

    def start(self) -> None:
        """See Reader."""
        assert isinstance(self._tools, LogTools)
        self._consumer = LogConsumer(self._tools.log)
        self._fetcher = self._tools.fetcher(self._consumer, self._outage.on_error)
        self._prepare(self._consumer, self._fetcher)

    def pump(self) -> bool:
        """Hand what the log has to the source, and what is known of its ends; False when there was nothing new."""
        before = len(self._pending.caught_up)
        moved = self._consumer.waiting and self._room() > 0
        self._read(self._consumer, self._fetcher)
        return moved or len(self._pending.caught_up) != before


class LogSource(SourceRuntime):
    """The real source on a log."""

    caught_up: frozenset[TopicPartition] = frozenset()
    """Partitions that are idle."""

    def pump(self) -> bool:
        """See LogReader."""
        return isinstance(self._reader, TestLogReader) and self._reader.pump()

    def raise_watermark(self, watermark_ms: int) -> None:
        """As if a record had brought every partition to it."""
        if self.watermarks is not None and self.watermarks.marks:
            self.watermarks.on_records({part: max(at, watermark_ms) for part, at in self.watermarks.marks.items()})
            self.caught_up = frozenset()

    def on_quiet(self, parts: Collection[TopicPartition]) -> None:
        """These have no records after the restored positions, which is known already."""
        if self.watermarks is not None:
            for part in sorted(parts):
                self.watermarks.on_caught_up(part)
            self.caught_up = frozenset(parts)

    def _note_caught_up(self, reader: ConsumerThread, positions: Positions, pending: Pending) -> None:
        super()._note_caught_up(reader, positions, pending)
        records = pending.records
        read = {TopicPartition(topic, number) for topic, number in zip(records.topics, records.partitions, strict=True)}
        if self.watermarks is not None and self.watermarks.watches:
            self.caught_up = (self.caught_up - read) | frozenset(pending.caught_up)

    def _make_reader(self, partitions: Sequence[TopicPartition], restored: SourcePositions) -> ConsumerThread:
        return TestLogReader(self._operator, partitions, restored, self._group_id, self._wake, self._tools)


class WrittenRecord(msgspec.Struct, frozen=True):
    """A record as a sink has encoded it; `timestamp_ms` None is the time of writing."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    """None: chosen by the key."""
    topic: str | None = None
    """None: the sink has only one."""


Numbered = tuple[int, WrittenRecord]


class Collector(SinkRuntime):
    """The real sink as far as the client, which keeps what it is given."""

    numbers: Iterator[int]
    """Of the records of all sinks, in the order of writing."""
    _written: list[Numbered]
    _before: list[Numbered]
    _prepared: list[Prepared]

    def open(self) -> None:
        """See KafkaSink."""
        self._written = []
        self._before = []
        self._prepared = []

    @property
    def room(self) -> int:
        """See KafkaSink."""
        return ROWS_MAX

    def record_limits(self, topic: str) -> RecordLimits:
        """Without Kafka nobody knows those of a topic; a record without time cannot be stored all the same."""
        return RecordLimits(topic, NO_LIMIT)

    def write(self, rows: OutputRecords) -> None:
        """See KafkaSink."""
        none = [None] * len(rows)
        sent = (rows.timestamps_ms or none, rows.headers or none, rows.partitions or none)
        for key, value, timestamp_ms, headers, partition in zip(rows.keys or none, rows.values, *sent, strict=True):
            record = WrittenRecord(key, value, timestamp_ms, tuple(headers or ()), partition, rows.topic)
            self._written.append((next(self.numbers), record))

    def turn(self) -> bool:
        """See KafkaSink."""
        return False

    def prepare(self, checkpoint: CheckpointId, *, final: bool = False) -> None:  # noqa: ARG002  # as KafkaSink
        """See KafkaSink."""
        self._before += self.take()
        self._prepared.append(Prepared(checkpoint, (), 0.0))

    def poll_prepared(self) -> Sequence[Prepared]:
        """See KafkaSink."""
        prepared, self._prepared = self._prepared, []
        return prepared

    def take_prepared(self) -> list[Numbered]:
        """What was written before the barrier."""
        return self._before

    def take(self) -> list[Numbered]:
        """What was written since the last call, or since the barrier."""
        written, self._written = self._written, []
        return written

    def begin_close(self, timeout_s: float | None = None) -> None:
        """See KafkaSink."""

    def close(self, timeout_s: float | None = None) -> None:
        """See KafkaSink."""


class BenchTools(KafkaTools):
    """There is no Kafka."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock


class BenchParts(SlotParts):
    """See SlotParts. One for each slot; `sources` and `sinks` are what it has made."""

    open_caller = PromptCaller

    def __init__(
        self,
        log: Log,
        clock: VirtualClock,
        storage: MemoryStorage,
        numbers: Iterator[int],
        on_skipped: Callable[[str], None],
    ) -> None:
        self.tools = BenchTools(clock)
        self.sources: list[LogSource] = []
        self.sinks: list[Collector] = []
        self.log = log
        self._clock = clock
        self._storage = storage
        self._numbers = numbers
        self._on_skipped = on_skipped

    def open_storage(self, settings: SlotSettings) -> Storage:  # noqa: ARG002  # as SlotParts
        """See SlotParts."""
        return self._storage

    def make_uploads(self, storage: Storage, wake: Callable[[], None]) -> Uploads:
        """See SlotParts."""
        return PromptUploads(storage, wake, self._clock)

    def make_source(
        self,
        spec: SourceOperator,
        deploy: Deploy,
        wake: Callable[[], None],
        bad_record: BadRecord,
        schemas: Schemas,  # noqa: ARG002 - there is no registry
    ) -> SourceRuntime:
        """See SlotParts."""
        tools = LogTools(self.log, self._clock)
        known = plain_schemas(spec, self.log.schema, self.log.copies)
        source = LogSource(spec, *reading_of(deploy, spec.name), wake, bad_record, tools, known)
        self.sources.append(source)
        return source

    def open_reader(self, origins: Sequence[Origin], name: str, wake: Callable[[], None]) -> Caller:  # noqa: ARG002  # as SlotParts
        """See SlotParts."""
        return LogRecords(self.log)

    def make_sink(self, spec: SinkOperator, deploy: Deploy, wake: Callable[[], None]) -> SinkRuntime:
        """See SlotParts."""
        placement = SinkPlacement(deploy.plan.pipeline, deploy.slot, deploy.attempt, 0, deploy.journal)
        sink = Collector(spec, placement, wake, tools=self.tools, masked=deploy.plan.masked)
        sink.numbers = self._numbers
        self.sinks.append(sink)
        return sink

    def log_bad_record(self, policy: BadRecordPolicy, where: str, count: int) -> None:  # noqa: ARG002  # as SlotParts
        """See SlotParts."""
        self._on_skipped(where)
