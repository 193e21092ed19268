"""Replacements for a slot's clocks, threads, disks and Kafka: everything happens when the bench requests it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import msgspec
import polars as pl
from typing_extensions import override

from tidegate.clock import Clock
from tidegate.coordinator.types import SourcePositions
from tidegate.formats.failures import BadRecordPolicy, RecordFailure
from tidegate.formats.record_limits import RecordLimits
from tidegate.formats.records import OutputRecords
from tidegate.formats.schemas import Schemas
from tidegate.ids import CheckpointId, TopicPartition
from tidegate.kafka.tools import KafkaTools
from tidegate.operators.async_queue import CallFailure, PendingCall
from tidegate.operators.builtin.dead_letters import Origin
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.calls.caller import (
    Asked,
    Caller,
    CallPolicy,
    CallTarget,
    attempt_call,
    close_target,
    open_target,
)
from tidegate.operators.runtime import ROWS_MAX
from tidegate.plan.graph import Plan
from tidegate.sinks.kafka import SinkPlacement
from tidegate.sinks.runtime import SinkRuntime
from tidegate.slot.parts import SlotParts, reading_of
from tidegate.slot.uploads import Uploads
from tidegate.sources.fetching import Fetcher
from tidegate.sources.positions import Positions
from tidegate.sources.reader import ConsumerThread, Pending
from tidegate.sources.runtime import BadRecord, SourceRuntime
from tidegate.sources.tools import SourceTools
from tidegate.storage.base import ObjectMissing, Storage
from tidegate.task.loop import UploadJob
from tidegate.task.messages import Deploy, SlotSettings
from tidegate.task.ports import Prepared
from tidegate.testing.feed import Log, LogConsumer, LogRecords, plain_schemas
from tidegate.threads import Condition
from tidegate.user_code.files import NO_FILES, CodeFiles

if TYPE_CHECKING:
    from tidegate.coordinator.types import StateHandle

NO_LIMIT: Final = 1 << 40
TOPIC_COLUMN: Final = "topic"
"""The column of kept rows with the topic that their sink has chosen, unless it is a column of theirs."""


class VirtualClock(Clock):
    """A clock that only moves when it is set. It also serves as the clock of the loop."""

    def __init__(self, now_ms: int) -> None:
        self.time_ms = now_ms

    @override
    def now_ms(self) -> int:
        return self.time_ms

    @override
    def monotonic(self) -> float:
        return self.time_ms / 1000

    def elapsed_ms(self) -> float:
        """Returns the time in ms, for the loop."""
        return float(self.time_ms)

    def sleep(self, seconds: float) -> None:
        """Does nothing, because nothing here needs to wait."""


class MemoryStorage(Storage):
    """A storage in memory."""

    location = "memory"

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    @override
    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._objects.setdefault(name, data) is data

    @override
    def put(self, name: str, data: bytes) -> None:
        self._objects[name] = data

    @override
    def get(self, name: str) -> bytes:
        try:
            return self._objects[name]
        except KeyError:
            raise ObjectMissing(f"{name} is missing", name=name) from None

    @override
    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.get(name)[start : start + length]

    @override
    def exists(self, name: str) -> bool:
        return name in self._objects

    @override
    def list(self, prefix: str) -> list[str]:
        return sorted(name for name in self._objects if name.startswith(prefix))

    @override
    def delete(self, name: str) -> None:
        self._objects.pop(name, None)

    @override
    def delete_all(self, names: Sequence[str]) -> None:
        for name in names:
            self.delete(name)

    @override
    def probe(self) -> None:
        pass


class PromptUploads(Uploads):
    """Uploads that run when they are submitted."""

    @override
    def close(self, timeout_s: float) -> None:
        pass

    def _start(self) -> None:
        """Does nothing, because there is no thread."""

    def _put(self, job: UploadJob | StateHandle) -> None:
        self._do(job)


class OneThread(Condition):
    """A condition for one thread: nothing else can change what it waits for."""

    def __enter__(self) -> object:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        pass

    @override
    def wait_for(self, predicate: Callable[[], object], timeout: float | None = None) -> object:
        return predicate()

    @override
    def notify_all(self) -> None:
        pass


class LogTools(SourceTools):
    """Consumers of the input of a case."""

    def __init__(self, log: Log, clock: VirtualClock) -> None:
        self.log = log
        self.clock = clock

    @override
    def condition(self) -> OneThread:
        return OneThread()


class TestLogReader(ConsumerThread):
    """A reader that reads on request; its thread never starts."""

    _consumer: LogConsumer
    _fetcher: Fetcher

    @override
    def start(self) -> None:
        assert isinstance(self._tools, LogTools)
        self._consumer = LogConsumer(self._tools.log)
        self._fetcher = self._tools.fetcher(self._consumer, self._outage.on_error)
        self._prepare(self._consumer, self._fetcher)

    def pump(self) -> bool:
        """Passes new records and ends from the log to the source. Returns False if there was nothing new."""
        before = len(self._pending.caught_up)
        moved = self._consumer.waiting and self._pace.room(self._pending) > 0
        self._read(self._consumer, self._fetcher)
        return moved or len(self._pending.caught_up) != before


class LogSource(SourceRuntime):
    """The real source on a log."""

    caught_up: frozenset[TopicPartition] = frozenset()
    """Idle partitions."""

    def pump(self) -> bool:
        """Passes new records and ends from the log to the source. Returns False if there was nothing new."""
        return isinstance(self._reader, TestLogReader) and self._reader.pump()

    def raise_watermark(self, watermark_ms: int) -> None:
        """Raises the watermark of every partition as a record would."""
        if self.watermarks is not None and self.watermarks.marks:
            self.watermarks.on_records({part: max(at, watermark_ms) for part, at in self.watermarks.marks.items()})
            self.caught_up = frozenset()

    def on_quiet(self, parts: Collection[TopicPartition]) -> None:
        """Marks partitions that have no records after the restored positions as caught up."""
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
    """A record as a sink has encoded it. A `timestamp_ms` of None means the time of writing."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    """None: chosen by the key."""
    topic: str | None = None
    """None: the sink has only one topic."""


Numbered = tuple[int, WrittenRecord]


class Collector(SinkRuntime):
    """The real sink without a client; it keeps the records that it receives."""

    numbers: Iterator[int]
    """Numbers for the records of all sinks, in the order of writing."""
    kept: list[tuple[int, pl.DataFrame]] | None = None
    """The rows that it has written, with numbers as those of records; None if nobody wants them."""
    _written: list[Numbered]
    _before: list[Numbered]
    _prepared: list[Prepared]

    @override
    def open(self) -> None:
        self._written = []
        self._before = []
        self._prepared = []

    @property
    @override
    def room(self) -> int:
        return ROWS_MAX

    def record_limits(self, topic: str) -> RecordLimits:
        """Returns no limits, because those of a topic are unknown without Kafka.

        A record without time still cannot be stored.
        """
        return RecordLimits(topic, NO_LIMIT)

    @override
    def write(self, rows: OutputRecords) -> None:
        none = [None] * len(rows)
        columns = (rows.values, rows.keys, rows.timestamps_ms, rows.partitions)
        lists = [none if column is None else column.to_list() for column in columns]
        headers = rows.header_pairs(0, len(rows)) or none
        for value, key, timestamp_ms, partition, pairs in zip(*lists, headers, strict=True):
            record = WrittenRecord(key, value, timestamp_ms, tuple(pairs or ()), partition, rows.topic)
            self._written.append((next(self.numbers), record))

    @override
    def _write(self, batch: pl.DataFrame, topic: str, *, chosen: bool = False) -> list[RecordFailure]:
        failures = super()._write(batch, topic, chosen=chosen)
        if self.kept is not None:
            failed = [failure.row for failure in failures]
            good = batch.filter(~pl.int_range(pl.len()).is_in(failed)) if failed else batch
            if chosen and TOPIC_COLUMN not in good.columns:
                good = good.with_columns(pl.lit(topic).alias(TOPIC_COLUMN))
            self.kept.append((next(self.numbers), good))
        return failures

    @override
    def turn(self) -> bool:
        return False

    @override
    def prepare(self, checkpoint: CheckpointId, *, final: bool = False) -> None:
        self._before += self.take()
        self._prepared.append(Prepared(checkpoint, (), 0.0))

    @override
    def poll_prepared(self) -> Sequence[Prepared]:
        prepared, self._prepared = self._prepared, []
        return prepared

    def take_prepared(self) -> list[Numbered]:
        """Returns what was written before the barrier."""
        return self._before

    def take(self) -> list[Numbered]:
        """Returns what was written since the last call, or since the barrier."""
        written, self._written = self._written, []
        return written

    @override
    def begin_close(self, timeout_s: float | None = None) -> None:
        pass

    @override
    def close(self, timeout_s: float | None = None) -> None:
        pass


class BenchTools(KafkaTools):
    """Tools without Kafka."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock


class PromptCaller(Caller):
    """A caller that answers before `take` returns: the case waits for the answers, in the order of the rows.

    Limits and timeouts are those of the step, in real time; pauses are minimal.
    """

    def __init__(self, name: str, target: CallTarget, policy: CallPolicy, wake: Callable[[], None]) -> None:  # noqa: ARG002  # same signature as ThreadCaller
        self._name = name
        self._target = target
        self._policy = policy
        self._asked: list[tuple[PendingCall, object]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    @override
    def submit(self, asked: Asked) -> None:
        self._asked += asked

    @override
    def take(self) -> list[PendingCall]:
        """Answers all submitted calls and returns them. Raises CallsFailed."""
        asked, self._asked = self._asked, []
        if not asked:
            return []
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            _finish(self._loop, open_target(self._target))
        _finish(self._loop, self._answer(asked))
        return [call for call, _ in asked]

    @override
    def close(self) -> None:
        if self._loop is not None:
            _finish(self._loop, close_target(self._target, self._name))
            self._loop.close()
            self._loop = None

    async def _answer(self, asked: Asked) -> None:
        await asyncio.gather(*(self._call(call, request) for call, request in asked))

    async def _call(self, call: PendingCall, request: object) -> None:
        answer = await attempt_call(lambda: self._target.ask(request), self._policy, lambda: 0.0)
        if isinstance(answer, CallFailure):
            call.failure = answer
        else:
            call.answer = answer


def _finish(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, object]) -> None:
    """Runs a coroutine to its end; on another thread if this one runs a loop already, as that of a notebook does."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        loop.run_until_complete(work)
    else:
        with ThreadPoolExecutor(1) as other:
            other.submit(loop.run_until_complete, work).result()


class BenchParts(SlotParts):
    """The parts of one slot. `sources` and `sinks` are those that it has created."""

    open_caller = PromptCaller

    def __init__(
        self,
        log: Log,
        clock: VirtualClock,
        storage: MemoryStorage,
        numbers: Iterator[int],
        on_skipped: Callable[[str], None],
        code: CodeFiles = NO_FILES,
    ) -> None:
        self.tools = BenchTools(clock)
        self.sources: list[LogSource] = []
        self.sinks: list[Collector] = []
        self.log = log
        self._clock = clock
        self._storage = storage
        self._numbers = numbers
        self._on_skipped = on_skipped
        self._code = code

    @override
    def open_code(self, storage: Storage, plan: Plan) -> CodeFiles:
        return self._code

    @override
    def open_storage(self, settings: SlotSettings) -> Storage:
        return self._storage

    @override
    def make_uploads(self, storage: Storage, wake: Callable[[], None]) -> Uploads:
        return PromptUploads(storage, wake, self._clock)

    @override
    def make_source(
        self,
        spec: SourceOperator,
        deploy: Deploy,
        wake: Callable[[], None],
        bad_record: BadRecord,
        schemas: Schemas,
    ) -> SourceRuntime:
        tools = LogTools(self.log.of(spec.cluster), self._clock)
        known = plain_schemas(spec, self.log.copies)
        source = LogSource(spec, *reading_of(deploy, spec.name), wake, bad_record, tools, known)
        self.sources.append(source)
        return source

    @override
    def open_reader(self, origins: Sequence[Origin], name: str, wake: Callable[[], None]) -> Caller:
        return LogRecords(self.log)

    @override
    def make_sink(self, spec: SinkOperator, deploy: Deploy, wake: Callable[[], None]) -> SinkRuntime:
        placement = SinkPlacement(deploy.plan.pipeline, deploy.slot, deploy.attempt, 0, deploy.journal)
        sink = Collector(spec, placement, wake, tools=self.tools, masked=deploy.plan.masked)
        sink.numbers = self._numbers
        self.sinks.append(sink)
        return sink

    @override
    def log_bad_record(self, policy: BadRecordPolicy, where: str, count: int) -> None:
        self._on_skipped(where)
