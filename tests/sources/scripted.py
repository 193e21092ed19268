"""A source whose Kafka client is played by the test: records, ends of partitions, last stable offsets, outages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Self, cast

import confluent_kafka as ck
import polars as pl

from tests.operators.driven import Collected
from tests.support.clocks import SetClock
from tests.waiting import wait_until
from tidegate.coordinator.types import SourcePositions
from tidegate.datatypes import BIGINT, TIMESTAMP
from tidegate.formats.failures import BadRecordPolicy, RecordFailure
from tidegate.ids import OperatorName, TopicPartition
from tidegate.kafka.diagnosis import Obstacle
from tidegate.operators.builtin.kafka_source import EventTime, SourceOperator
from tidegate.operators.runtime import ROWS_MAX
from tidegate.operators.spec import Planned, Requirement
from tidegate.sources.runtime import SourceRuntime
from tidegate.sources.tools import Consumer, SourceTools

NAME = OperatorName("orders")
P0, P1 = (TopicPartition("orders", number) for number in range(2))
COLUMNS = (("id", BIGINT), ("at", BIGINT))
_END = ck.KafkaError._PARTITION_EOF
_AWAY = ck.KafkaException(ck.KafkaError(ck.KafkaError._TRANSPORT, "away"))


class ScriptedClient:
    """What the reader asks of a consumer. No question may wait for ever: nothing else would end a source's thread."""

    def __init__(self) -> None:
        self.away = False
        self.closed = False
        self.asked: list[TopicPartition] = []
        self.rounds = 0
        """Calls of `consume` that came back with nothing."""
        self.stable: dict[TopicPartition, int] = {}
        self.undecided: dict[TopicPartition, int] = {}
        """Records of open transactions."""
        self.first: dict[TopicPartition, int] = {}
        """Where a log begins that has lost its first records."""
        self.assigned: dict[TopicPartition, int] = {}
        self.paused: list[TopicPartition] = []
        """Each as often as it was paused."""
        self._queue: list[ck.Message] = []
        self._next: dict[TopicPartition, int] = {}
        self._changed = threading.Condition()

    def put(self, part: TopicPartition, *values: bytes | tuple[bytes, int | None] | None) -> None:
        """Records, each with its timestamp; without one it is 1000 ms. None is a tombstone."""
        with self._changed:
            for value in values:
                body, at_ms = value if isinstance(value, tuple) else (value, 1000)
                offset = self._next.get(part, 0)
                stamp = (ck.TIMESTAMP_NOT_AVAILABLE, -1) if at_ms is None else (ck.TIMESTAMP_CREATE_TIME, at_ms)
                message = ck.Message(
                    topic=part.topic, partition=part.partition, offset=offset, value=body, timestamp=stamp, error=None
                )
                self._queue.append(message)
                self._next[part] = self.stable[part] = offset + 1
            self._changed.notify_all()

    def put_whole(
        self, part: TopicPartition, value: bytes | None, key: bytes, headers: list[tuple[str, str | bytes | None]]
    ) -> None:
        """A record with all its parts."""
        with self._changed:
            self.put(part, value)
            self._queue[-1].set_key(key)
            self._queue[-1].set_headers(headers)

    def end(self, part: TopicPartition) -> None:
        """The end of a partition, where its records end."""
        offset = self._next.setdefault(part, 0)
        self.stable.setdefault(part, offset)
        with self._changed:
            self._report(part, offset, _END)

    def lose(self, part: TopicPartition, offset: int) -> None:
        """The brokers do not have this offset any more."""
        self.fail(part, offset, ck.KafkaError._AUTO_OFFSET_RESET)

    def fail(self, part: TopicPartition, offset: int, code: int) -> None:
        """Nothing is read here, for this reason."""
        with self._changed:
            self._report(part, offset, code)

    def _report(self, part: TopicPartition, offset: int, code: int) -> None:
        error = ck.KafkaError(code)
        self._queue.append(ck.Message(error=error, topic=part.topic, partition=part.partition, offset=offset))
        self._changed.notify_all()

    # -- what the reader calls -----------------------------------------------------------------------------------------

    def assign(self, partitions: Sequence[ck.TopicPartition]) -> None:
        for one in partitions:
            part = TopicPartition(one.topic, one.partition)
            self._next.setdefault(part, one.offset)
            self.assigned[part] = one.offset

    def incremental_assign(self, partitions: Sequence[ck.TopicPartition]) -> None:
        self.assign(partitions)

    def pause(self, partitions: Sequence[ck.TopicPartition]) -> None:
        self.paused += [TopicPartition(one.topic, one.partition) for one in partitions]

    def resume(self, partitions: Sequence[ck.TopicPartition]) -> None:
        return

    def close(self) -> None:
        self.closed = True

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
        assert timeout >= 0
        assert num_messages > 0
        with self._changed:
            if not self._queue:
                self._changed.wait(min(timeout, 0.01))
            taken, self._queue = self._queue[:num_messages], self._queue[num_messages:]
            self.rounds += not taken
            return taken

    def get_watermark_offsets(
        self, partition: ck.TopicPartition, timeout: float = -1, *, cached: bool = False
    ) -> tuple[int, int]:
        part = TopicPartition(partition.topic, partition.partition)
        if cached:
            return 0, self.stable[part] + self.undecided.get(part, 0)
        assert timeout > 0
        self.asked.append(part)
        if self.away:
            raise _AWAY
        return self.first.get(part, 0), self.stable[part]

    def offsets_for_times(self, partitions: list[ck.TopicPartition], timeout: float = -1) -> list[ck.TopicPartition]:
        assert {one.offset for one in partitions} == {ck.OFFSET_END}
        return [
            ck.TopicPartition(one.topic, one.partition, self.get_watermark_offsets(one, timeout)[1])
            for one in partitions
        ]

    def list_topics(self, topic: str, timeout: float = -1) -> Any:
        """It has ten partitions."""
        assert timeout > 0
        if self.away:
            raise _AWAY
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=range(10))})


class ScriptedTools(SourceTools):
    """Gives one client."""

    def __init__(self, client: ScriptedClient) -> None:
        self.client = client
        self.clock = self.set_clock = SetClock()
        self.config: Mapping[str, Any] = {}
        self.on_error: Callable[[ck.KafkaError], None] = lambda _: None

    def consumer(self, config: Mapping[str, Any], on_error: Callable[[ck.KafkaError], None]) -> Consumer:
        self.config, self.on_error = config, on_error
        return cast("Consumer", self.client)

    def find_obstacle(self, _kafka: Mapping[str, str]) -> Obstacle | None:
        return None


def operator_of(
    event_time: EventTime | None,
    carries: tuple[Requirement, ...] | None = None,
    *,
    catches_up: bool = False,
    **changes: Any,
) -> SourceOperator:
    """Reads `id` and `at` of JSON records; keyword arguments replace fields. With an event time, rows carry it."""
    if carries is None:
        carries = () if event_time is None else (Requirement.EVENT_TIME,)
    fields: dict[str, Any] = {
        "name": NAME,
        "topics": ("orders",),
        "format": "json",
        "schema": COLUMNS,
        "output": COLUMNS,
        "start": "earliest",
        "until": "never",
        "bad_records": BadRecordPolicy.SKIP,
        "kafka": {},
        "event_time": event_time,
        "planned": Planned(carries=carries, catches_up=catches_up),
    }
    return SourceOperator(**{**fields, **changes})


class Scripted:
    """A source of two partitions as the loop drives it. Use as a context."""

    def __init__(
        self,
        event_time: EventTime | None,
        restored: SourcePositions | None = None,
        *,
        partitions: Sequence[TopicPartition] = (P0, P1),
        ends: Mapping[TopicPartition, int] | None = None,
        **changes: Any,
    ) -> None:
        """With `ends`, the topic holds this at the start, and the source declares when it has caught up."""
        self.client = ScriptedClient()
        self.client.stable.update(ends or {})
        self.tools = ScriptedTools(self.client)
        self.bad: list[tuple[str, RecordFailure]] = []
        begin = SourcePositions(NAME, tuple((part, 0) for part in partitions))
        self.source = SourceRuntime(
            operator_of(event_time, catches_up=ends is not None, **changes),
            partitions,
            begin if restored is None else restored,
            "tests",
            lambda: None,
            lambda _, __, ___, where, failure: self.bad.append((where, failure)),
            self.tools,
        )
        self.source.wait_ready(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()

    def gather(self) -> None:
        """Until the reader has taken all that the test has put."""
        rounds = self.client.rounds
        wait_until(lambda: self.client.rounds > rounds + 1, "the reader has looked twice and found nothing more")

    def poll(self, rows_max: int = ROWS_MAX) -> list[Any]:
        """What one call of `poll` sends, and then the answers to what it asks: ids of rows, watermarks, statuses."""
        out = Collected()
        self.source.poll(rows_max, out)
        while self._asks:
            self.gather()
            if not self.source.poll(rows_max, out):
                break
        return list(map(_short, out.order))

    @property
    def _asks(self) -> bool:
        watermarks = self.source.watermarks
        return watermarks is not None and any(map(watermarks.question_of, watermarks.marks))

    def read(
        self, *values: tuple[TopicPartition, bytes | tuple[bytes, int | None]], rows_max: int = ROWS_MAX
    ) -> pl.DataFrame:
        """The rows of these records."""
        for part, value in values:
            self.client.put(part, value)
        self.gather()
        out = Collected()
        while self.source.poll(rows_max, out):
            pass
        return pl.concat(out.batches)

    @property
    def finished(self) -> bool:
        """Whether the end is reported."""
        return self.source.finished

    @property
    def deadlines(self) -> list[int]:
        """When `on_time` is due."""
        at_ms = self.source.next_deadline_ms
        return [] if at_ms is None else [at_ms]

    def stay(self, seconds: float = 1.0) -> None:
        """So much time passes, and the reader looks."""
        self.tools.set_clock.now += seconds
        self.gather()


def _short(element: object) -> Any:
    if isinstance(element, pl.DataFrame):
        return element["id"].to_list()
    return element


def order(number: int, at: object) -> bytes:
    return b'{"id":%d,"at":%s}' % (number, str(at).encode())


TIMESTAMPS = (("id", BIGINT), ("at", TIMESTAMP))
