"""The model's `confluent_kafka.Consumer`: one librdkafka client that reads the partitions assigned to it.

It fetches ahead, with one request at a time per node, and repeats failed requests. What it reports about ends, deleted
offsets and brokers that do not answer was measured with librdkafka 2.16 and a real broker. Not modelled: groups with
members, and the time after which a deleted topic is noticed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import confluent_kafka as ck
import msgspec
from typing_extensions import override

from tidegate.ids import TopicPartition
from tidegate.simulation.kernel import SimCondition
from tidegate.simulation.model_broker.broker import ModelBroker
from tidegate.simulation.model_broker.codes import Code, RequestRefused
from tidegate.simulation.model_broker.log import FetchedBatches, Record
from tidegate.simulation.model_broker.metadata import read_metadata
from tidegate.simulation.model_broker.placement import NOBODY
from tidegate.simulation.port import FETCH, BrokerPort, Connection, LinkLost, LinkSilent
from tidegate.sources.tools import Consumer

FETCH_RECORDS: Final = 32
QUEUED_MAX: Final = 128
IDLE_S: Final = 0.05
RETRY_S: Final = 0.1

_Answers = dict[TopicPartition, FetchedBatches | Code]

# ruff: noqa: SLF001 - the client's own error codes begin with an underscore, but are public


class _Place(msgspec.Struct, eq=False):
    """The read position in a partition."""

    partition: TopicPartition
    offset: int
    ended_at: int = -1
    """Offset of the last end that was reported."""
    stopped: bool = False
    """Paused, or its offset cannot be read."""
    asked: bool = False
    """A fetch is in flight."""


class ModelConsumer(Consumer):
    """The part of `confluent_kafka.Consumer` that `sources.reader` and `sinks.salvager` use."""

    def __init__(
        self,
        broker: ModelBroker,
        port: BrokerPort,
        config: Mapping[str, Any],
        on_error: Callable[[ck.KafkaError], None] | None = None,
    ) -> None:
        self._broker = broker
        self._port = port
        self._committed = config.get("isolation.level", "read_committed") == "read_committed"
        self._reports_ends = bool(config.get("enable.partition.eof", False))
        self._on_error = on_error
        self._errors: deque[ck.KafkaError] = deque(maxlen=8)
        self._places: dict[TopicPartition, _Place] = {}
        self._queue: deque[ck.Message] = deque()
        self._connections: dict[int, Connection] = {}
        self._changed = SimCondition(port.kernel)
        self._timer = False
        self._closed = False

    # -- the interface -------------------------------------------------------------------------------------------------

    @override
    def assign(self, partitions: list[ck.TopicPartition]) -> None:
        self._places.clear()
        self._queue.clear()
        self.incremental_assign(partitions)

    @override
    def incremental_assign(self, partitions: list[ck.TopicPartition]) -> None:
        for wanted in partitions:
            partition = TopicPartition(wanted.topic, wanted.partition)
            self._places[partition] = _Place(partition, wanted.offset)
        self._fetch()

    @override
    def pause(self, partitions: list[ck.TopicPartition]) -> None:
        """Pauses partitions and drops what has been fetched from them."""
        paused = {TopicPartition(one.topic, one.partition) for one in partitions}
        for partition in paused:
            self._places[partition].stopped = True
        kept = [message for message in self._queue if _partition_of(message) not in paused]
        self._queue = deque(kept)

    def resume(self, partitions: list[ck.TopicPartition]) -> None:
        """Raises NotImplementedError: no simulated record waits for a schema."""
        raise NotImplementedError

    @override
    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
        self._changed.wait_for(lambda: len(self._queue) >= num_messages, timeout)
        while self._errors and self._on_error is not None:
            self._on_error(self._errors.popleft())
        taken = [self._queue.popleft() for _ in range(min(num_messages, len(self._queue)))]
        self._fetch()
        return taken

    @override
    def get_watermark_offsets(
        self, partition: ck.TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """Returns the current bounds. Cached ones are current too, because the last fetch is always recent."""
        wanted = TopicPartition(partition.topic, partition.partition)
        if cached:
            bounds = self._broker.offsets(self._port.clock.now_ms(), wanted)
            return bounds.start, bounds.end
        try:
            return self._port.call("offsets", lambda: self._read_bounds(wanted), timeout)
        except RequestRefused as refused:
            unknown = refused.code is Code.UNKNOWN_TOPIC_OR_PARTITION
            raise _failed(ck.KafkaError._UNKNOWN_PARTITION if unknown else int(refused.code)) from None
        except LinkSilent:
            raise _failed(ck.KafkaError._TIMED_OUT) from None
        except LinkLost:
            raise _failed(ck.KafkaError._TRANSPORT) from None

    @override
    def offsets_for_times(self, partitions: list[ck.TopicPartition], timeout: float = -1) -> list[ck.TopicPartition]:
        wanted = [TopicPartition(one.topic, one.partition) for one in partitions]
        try:
            ends = self._port.call("offsets", lambda: [self._read_bounds(part)[1] for part in wanted], timeout)
        except RequestRefused as refused:
            raise _failed(int(refused.code)) from None
        except LinkSilent:
            raise _failed(ck.KafkaError._TIMED_OUT) from None
        except LinkLost:
            raise _failed(ck.KafkaError._TRANSPORT) from None
        return [ck.TopicPartition(part.topic, part.partition, end) for part, end in zip(wanted, ends, strict=True)]

    @override
    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        return read_metadata(self._broker, self._port, topic, timeout)

    @override
    def close(self) -> None:
        self._closed = True

    # -- fetching ------------------------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        """Sends a fetch to every node without one, for the partitions that it leads according to metadata."""
        if self._closed or len(self._queue) >= QUEUED_MAX:
            return
        now_ms = self._port.clock.now_ms()
        wanted: dict[int, list[_Place]] = {}
        for place in self._places.values():
            if not place.stopped and not place.asked:
                wanted.setdefault(self._broker.placement.told_leader(place.partition, now_ms), []).append(place)
        for node, places in wanted.items():
            if node == NOBODY:
                self._come_again(RETRY_S)
                continue
            if node not in self._connections:
                self._connections[node] = self._port.connect()
            for place in places:
                place.asked = True
            asked = {place.partition: place.offset for place in places}
            self._connections[node].post(
                FETCH,
                partial(self._read, node, asked),
                partial(self._on_fetched, places),
                partial(self._on_lost, places),
            )

    def _read(self, node: int, asked: Mapping[TopicPartition, int]) -> _Answers:
        """Reads at the broker."""
        now_ms, answers = self._port.clock.now_ms(), dict[TopicPartition, FetchedBatches | Code]()
        for partition, offset in asked.items():
            try:
                self._broker.check_leader(now_ms, partition, node)
                answers[partition] = self._broker.fetch(
                    now_ms, partition, offset, committed=self._committed, limit=FETCH_RECORDS
                )
            except RequestRefused as refused:
                answers[partition] = refused.code
        return answers

    def _on_fetched(self, places: list[_Place], answers: _Answers) -> None:
        moved = retry = False
        for place in places:
            place.asked = False
            if place.stopped or self._places.get(place.partition) is not place:
                continue  # paused or reassigned meanwhile
            answer = answers[place.partition]
            if isinstance(answer, Code):
                retry = True
                self._take_refusal(place, answer)
            else:
                moved |= bool(answer.records)
                self._take(place, answer)
        if moved or self._queue:
            self._changed.notify_all()
        if moved and not retry:
            self._fetch()
        else:
            self._come_again(RETRY_S if retry else IDLE_S)

    def _take(self, place: _Place, answer: FetchedBatches) -> None:
        self._queue.extend(_make_message(place.partition, at, record) for at, record in answer.records)
        place.offset = answer.next_offset
        if not answer.records and self._reports_ends and place.ended_at != place.offset:
            place.ended_at = place.offset
            self._queue.append(_event(ck.KafkaError._PARTITION_EOF, place))

    def _take_refusal(self, place: _Place, code: Code) -> None:
        if code is Code.OFFSET_OUT_OF_RANGE:
            place.stopped = True
            self._queue.append(_event(ck.KafkaError._AUTO_OFFSET_RESET, place))

    def _on_lost(self, places: list[_Place]) -> None:
        for place in places:
            place.asked = False
        away = self._port.broker_away
        self._errors.append(ck.KafkaError(ck.KafkaError._ALL_BROKERS_DOWN if away else ck.KafkaError._TRANSPORT))
        self._come_again(RETRY_S)

    def _come_again(self, seconds: float) -> None:
        """Fetches again after a delay. One timer is enough, because `consume` also fetches at once."""
        if not self._timer and not self._closed:
            self._timer = True
            self._port.after(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = False
        self._fetch()

    def _read_bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Reads start and end at the broker."""
        now_ms = self._port.clock.now_ms()
        node = self._broker.placement.told_leader(partition, now_ms)
        self._broker.check_leader(now_ms, partition, node)
        bounds = self._broker.offsets(now_ms, partition)
        return bounds.start, bounds.stable if self._committed else bounds.end


def _partition_of(message: ck.Message) -> TopicPartition:
    return TopicPartition(message.topic() or "", message.partition() or 0)


def _event(code: int, place: _Place) -> ck.Message:
    return ck.Message(
        error=ck.KafkaError(code),
        topic=place.partition.topic,
        partition=place.partition.partition,
        offset=place.offset,
    )


def _failed(code: int) -> ck.KafkaException:
    return ck.KafkaException(ck.KafkaError(code, "Failed to get watermark offsets"))


def _make_message(partition: TopicPartition, offset: int, record: Record) -> ck.Message:
    """Builds the real client's message of a record of the model."""
    return ck.Message(
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        key=record.key,
        value=record.value,
        headers=list(record.headers),
        error=None,
        timestamp=(ck.TIMESTAMP_CREATE_TIME, record.timestamp_ms),
    )
