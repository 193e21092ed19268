"""Drives sinks as the slot loop does, and reads what came out as a read-committed consumer does."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as Position

from tests.conftest import KEPT
from tests.support import clients
from tests.support.records import records_of
from tests.waiting import wait_until
from tidegate.committable import Committable
from tidegate.coordinator.permit import CommitPermit, issue_permit
from tidegate.dev.broker.server import create_topics
from tidegate.formats.failures import BadRecordPolicy
from tidegate.formats.records import OutputRecords
from tidegate.ids import Attempt, CheckpointId, OperatorName, SlotIndex, TopicPartition, TransactionalId
from tidegate.kafka.errors import SinkFailed
from tidegate.kafka.transactions import TransactionClient
from tidegate.operators.builtin.kafka_sink import SinkOperator, TopicChoice
from tidegate.sinks.committer import Committer
from tidegate.sinks.kafka import KafkaSink, SinkPlacement
from tidegate.task.ports import Prepared

DEADLINE_S = 60.0
SHORT_MS = 1000
SHORT_MS_MAX = 32_000
NO_IDS: frozenset[TransactionalId] = frozenset()


def rows(numbers: Sequence[int], keys: int = 7, size: int = 0) -> OutputRecords:
    """Records whose value is their number; the key is the number modulo `keys`."""
    values = [(b"%d" % number).ljust(size, b" ") for number in numbers]
    return records_of(values, [b"%d" % (number % keys) for number in numbers])


def permit(committables: Sequence[Committable], checkpoint: int = 1) -> CommitPermit:
    return issue_permit(CheckpointId(checkpoint), tuple(committables))


def sink_operator(
    bootstrap: str, topic: str | TopicChoice, kafka: Mapping[str, str] | None = None, key: str | None = None
) -> SinkOperator:
    properties = {"bootstrap.servers": bootstrap, **(kafka or {})}
    return SinkOperator(OperatorName("out"), topic, "json", (), key, None, BadRecordPolicy.FAIL, properties)


class DrivenSink:
    """A KafkaSink with a loop around it."""

    def __init__(
        self,
        operator: SinkOperator,
        pipeline: str,
        attempt: int = 1,
        subtask: int = 0,
        timeout_ms: int = 60_000,
        exactly_once: bool = True,
    ) -> None:
        self.woken = threading.Event()
        self.sink = KafkaSink(
            operator,
            SinkPlacement(pipeline, SlotIndex(subtask), Attempt(attempt), timeout_ms, "j", exactly_once=exactly_once),
            self.woken.set,
        )
        self.sink.open()

    def turn_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
            if not self.sink.turn():
                self.woken.wait(0.01)
                self.woken.clear()

    def write(self, encoded: OutputRecords) -> None:
        self.turn_until(lambda: self.sink.room > 0, "room in the sink")
        self.sink.write(encoded)
        self.sink.turn()

    def written(self) -> None:
        """Wait until the client has taken everything."""
        self.turn_until(lambda: self.sink._backlog.head is None, "everything is taken")

    def prepared(self, checkpoint: int) -> Prepared:
        """Barrier, and the finished prepare."""
        self.sink.prepare(CheckpointId(checkpoint))
        return self.poll(checkpoint)

    def poll(self, checkpoint: int) -> Prepared:
        found: list[Prepared] = []

        def finished() -> bool:
            found.extend(self.sink.poll_prepared())
            return bool(found)

        self.turn_until(finished, f"checkpoint {checkpoint} prepared")
        assert [prepared.checkpoint for prepared in found] == [checkpoint]
        return found[0]


class Cluster:
    """A broker with what tests ask of it. Everything made through it is closed at the end of the test."""

    def __init__(self, bootstrap: str, unique_name: Callable[[str], str]) -> None:
        self.bootstrap = bootstrap
        self.pipeline = unique_name("pipe.line")
        self._unique_name = unique_name
        self._sinks: list[DrivenSink] = []

    @cached_property
    def client(self) -> TransactionClient:
        return TransactionClient({"bootstrap.servers": self.bootstrap})

    @cached_property
    def committer(self) -> Committer:
        return Committer(self.client)

    def topic(self, partitions: int = 3, config: Mapping[str, str] | None = None) -> str:
        name = self._unique_name("out")
        create_topics(self.bootstrap, {name: partitions}, {**KEPT, **(config or {})})
        return name

    def sink(
        self,
        topic: str | TopicChoice,
        attempt: int = 1,
        subtask: int = 0,
        timeout_ms: int = 60_000,
        exactly_once: bool = True,
        kafka: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> DrivenSink:
        operator = sink_operator(self.bootstrap, topic, kafka, key)
        driven = DrivenSink(operator, self.pipeline, attempt, subtask, timeout_ms, exactly_once)
        self._sinks.append(driven)
        return driven

    def prepare_short(self, count: int, checkpoint: int) -> tuple[str, Committable, int]:
        """A transaction that the broker is about to time out: its topic, itself, its timeout in ms.

        On a busy machine a short timeout may pass before it is prepared: then another one with more time.
        """
        timeout_ms, attempt = SHORT_MS, 1
        while True:
            topic = self.topic()
            driven = self.sink(topic, attempt, timeout_ms=timeout_ms)
            try:
                driven.write(rows(range(count)))
                (one,) = driven.prepared(checkpoint).committables
            except SinkFailed:
                if timeout_ms >= SHORT_MS_MAX:
                    raise
                timeout_ms, attempt = 2 * timeout_ms, attempt + 1
            else:
                return topic, one, timeout_ms

    def visible(self, topic: str, settled: bool = True) -> dict[int, list[int]]:
        """Numbers that a read-committed reader finds up to the last stable offset, in order, by partition.

        EndTxn answers before its markers are written: `settled` waits until nothing is open in the topic.
        """
        count = self.client.topics([topic])[topic].partitions
        partitions = [TopicPartition(topic, index) for index in range(count)]
        if settled:
            wait_until(lambda: self.client.stable_offsets(partitions) == self._ends(partitions), f"{topic} settled")
        return read_committed(self.bootstrap, self.client.stable_offsets(partitions))

    def values(self, topic: str, settled: bool = True) -> list[int]:
        """All visible numbers, sorted."""
        return sorted(number for part in self.visible(topic, settled).values() for number in part)

    def _ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermarks."""
        consumer = clients.consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "reader", "isolation.level": "read_uncommitted"}
        )
        try:
            return {
                part: consumer.get_watermark_offsets(Position(part.topic, part.partition), timeout=DEADLINE_S)[1]
                for part in partitions
            }
        finally:
            consumer.close()

    def close(self) -> None:
        for driven in self._sinks:
            driven.sink.close()
        if "client" in self.__dict__:
            self.client.close()


def read_committed(bootstrap: str, ends: Mapping[TopicPartition, int]) -> dict[int, list[int]]:
    """Numbers from the start of each partition up to its end offset."""
    found: dict[int, list[int]] = defaultdict(list)
    consumer = clients.consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    try:
        open_parts = {part.partition for part, end in ends.items() if end > 0}
        consumer.assign([Position(part.topic, part.partition, 0) for part in ends if part.partition in open_parts])
        deadline = time.monotonic() + DEADLINE_S
        while open_parts:
            assert time.monotonic() < deadline, f"partitions {sorted(open_parts)} were not read to their ends"
            for message in consumer.consume(5000, 0.05):
                partition = message.partition()
                assert partition is not None
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    open_parts.discard(partition)
                else:
                    value = message.value()
                    assert value is not None
                    found[partition].append(int(value))
    finally:
        consumer.close()
    return dict(found)


def assert_order_per_key(visible: Mapping[int, Sequence[int]], keys: int = 7) -> None:
    """Numbers were written in rising order, so each key's must rise in its partition."""
    for numbers in visible.values():
        last: dict[int, int] = {}
        for number in numbers:
            assert last.get(number % keys, -1) < number, f"{number} came after {last[number % keys]}"
            last[number % keys] = number
