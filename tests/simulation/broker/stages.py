"""What a scenario can do at a broker, with one implementation for the model and one for the real one."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import confluent_kafka as ck
from confluent_kafka import Message

from tests.simulation.broker.scripted_port import Fate, ScriptedPort
from tests.support import clients
from tests.support.kafka_proxy import PRODUCE, KafkaProxy, Request, Verdict
from tests.support.records import records_of
from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.committable import Committable
from tidegate.dev.broker import DevelopmentBroker
from tidegate.ids import Attempt, CheckpointId, OperatorName, SlotIndex, TopicPartition, TransactionalId
from tidegate.kafka.properties import derive_producer_properties
from tidegate.kafka.tools import KafkaTools
from tidegate.kafka.transactions import TransactionClient
from tidegate.kafka.writer import TransactionWriter
from tidegate.simulation.kernel import Kernel, SimCondition, Trace
from tidegate.simulation.model_broker.answers import answer_bytes
from tidegate.simulation.model_broker.broker import ModelBroker
from tidegate.simulation.model_broker.channel import ModelChannel
from tidegate.simulation.model_broker.consumer import ModelConsumer
from tidegate.simulation.model_broker.producer import ModelProducer
from tidegate.simulation.threads import SimHelper
from tidegate.sinks.proof import Flushed, decide_committable, decide_flushed
from tidegate.sources.tools import SOURCE_TOOLS, Consumer, SourceTools
from tidegate.threads import Condition, HelperThread

DEADLINE_S = 120.0
POLL_S = 0.02
PLAY_S = 30 * 24 * 3600.0
FLUSH_S = 60.0
API_KEYS = {
    "produce": PRODUCE,
    "headers": 1,
    "fetch": 1,
    "ends": 2,
    "topics": 3,
    "coordinator": 10,
    "fence": 22,
    "end": 26,
}
API_KEYS |= {"producers": 61, "describe": 65, "list": 66}
SMALL_BATCHES = {"batch.size": "4000", "linger.ms": "0", "retry.backoff.ms": "20"}

T = TypeVar("T")


class Stage:
    """A broker and its clients. Names are unique for the stage, so that scenarios do not meet."""

    clock: Clock
    client: TransactionClient
    source_tools: SourceTools
    kafka: Mapping[str, str]

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._numbers = itertools.count()
        self._writers: list[TransactionWriter] = []

    def play(self, run: Callable[[], T]) -> T:
        """The result of what is done at it; everything that asks brokers is done here."""
        return run()

    # -- given by the implementation -----------------------------------------------------------------------------------

    def make_topic(self, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        raise NotImplementedError

    def delete_topic(self, name: str) -> None:
        raise NotImplementedError

    def delete_records(self, partition: TopicPartition, before: int) -> None:
        raise NotImplementedError

    def restart(self) -> None:
        raise NotImplementedError

    def hurt_requests(self, name: str, fates: Sequence[Fate]) -> None:
        """What becomes of the next requests of this name (`API_KEYS`)."""
        raise NotImplementedError

    @property
    def hurt(self) -> int:
        """Requests that were hurt so far."""
        raise NotImplementedError

    def group_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> list[int]:
        """What a group has committed; negative where it has nothing."""
        raise NotImplementedError

    def offsets(self, partition: TopicPartition) -> tuple[int, int, int]:
        """Start, last stable offset, end."""
        raise NotImplementedError

    def another_client(self) -> TransactionClient:
        """One that knows nothing yet."""
        raise NotImplementedError

    def make_writer(self, topic: str, properties: Mapping[str, str]) -> TransactionWriter:
        raise NotImplementedError

    def make_consumer(self, config: Mapping[str, Any]) -> Consumer:
        raise NotImplementedError

    # -- built on it ---------------------------------------------------------------------------------------------------

    def topic(self, partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        name = f"{self.prefix}-topic-{next(self._numbers)}"
        self.make_topic(name, partitions, settings)
        return name

    def tid(self, name: str) -> TransactionalId:
        return TransactionalId(f"{self.prefix}.{name}")

    def writer(
        self, name: str, topic: str, timeout_ms: int = 60_000, kafka: Mapping[str, str] | None = None
    ) -> TransactionWriter:
        """A writer with its transaction begun."""
        writer = self.make_writer(topic, derive_producer_properties(kafka or {}, self.tid(name), timeout_ms))
        self._writers.append(writer)
        writer.open(self.client, _never)
        return writer

    def plain_writer(self, topic: str) -> TransactionWriter:
        """One without a transaction."""
        writer = self.make_writer(topic, derive_producer_properties({}, None, 60_000))
        self._writers.append(writer)
        writer.open(None, _never)
        return writer

    def write(
        self,
        writer: TransactionWriter,
        numbers: Sequence[int],
        key: bytes | None = None,
        size: int = 0,
        times_ms: list[int | None] | None = None,
    ) -> None:
        """Write numbers and flush; the key (or the number as key) decides about the partition."""
        values = [(b"%d" % number).ljust(size) for number in numbers]
        keys = [b"%d" % number if key is None else key for number in numbers]
        assert writer.write(records_of(values, keys, times_ms), 0) == len(values)
        assert writer.flush(FLUSH_S, _never) == 0
        writer.poll()

    def committable(self, writer: TransactionWriter) -> Committable:
        """Prove the transaction and give its committable. Raises SinkFailed."""
        flushed = Flushed(
            sink=OperatorName("out"),
            subtask=SlotIndex(0),
            attempt=Attempt(1),
            checkpoint=CheckpointId(1),
            transactional_id=writer.transactional_id,
            producer=writer.producer,
            produced=writer.produced,
            undelivered=writer.flush(FLUSH_S, _never),
            delivery_errors=writer.delivery_errors,
            first_error=writer.first_error,
            refused=writer.refused,
        )
        decide_flushed(flushed)
        view = self.client.prepared_view(writer.transactional_id, writer.producer)
        return decide_committable(flushed, view)

    def prepared(self, name: str, topic: str, numbers: Sequence[int], timeout_ms: int = 60_000) -> Committable:
        """A prepared transaction with these numbers."""
        writer = self.writer(name, topic, timeout_ms)
        self.write(writer, numbers)
        return self.committable(writer)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline_s = self.clock.monotonic() + DEADLINE_S
        while not condition():
            assert self.clock.monotonic() < deadline_s, f"not within {DEADLINE_S} s: {what}"
            self.clock.sleep(POLL_S)

    def settled(self, topic: str) -> None:
        """Wait until no transaction is open in a topic: EndTxn answers before its markers are written."""
        self.until(lambda: all(stable == end for _, stable, end in map(self.offsets, self.parts(topic))), "settled")

    def parts(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, index) for index in range(self.client.topics([topic])[topic].partitions)]

    def messages(self, topic: str, committed: bool = True) -> list[Message]:
        """All messages from the start to the last stable offset (committed) or to the end, by partition."""
        found: list[Message] = []
        for part in self.parts(topic):
            start, stable, end = self.offsets(part)
            found += self._read(part, start, stable if committed else end, committed)
        return found

    def visible(self, topic: str, committed: bool = True) -> dict[int, list[int]]:
        """Numbers by partition, in order."""
        numbers: dict[int, list[int]] = defaultdict(list)
        for message in self.messages(topic, committed):
            partition, value = message.partition(), message.value()
            assert partition is not None
            assert value is not None
            numbers[partition].append(int(value))
        return dict(numbers)

    def _read(self, part: TopicPartition, start: int, end: int, committed: bool) -> list[Message]:
        if start >= end:
            return []
        consumer = self.make_consumer({
            "group.id": "reader",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        })  # fmt: skip
        found: list[Message] = []
        try:
            consumer.assign([ck.TopicPartition(part.topic, part.partition, start)])
            while True:
                for message in consumer.consume(500, 0.05):
                    if message.error() is not None:
                        return found
                    found.append(message)
        finally:
            consumer.close()

    def close(self) -> None:
        for writer in self._writers:
            writer.discard()


class ModelStage(Stage):
    """The model, on a virtual thread of its own time."""

    def __init__(self, prefix: str, marker_delay_ms: int = 0) -> None:
        super().__init__(prefix)
        self._kernel = Kernel(prefix, Trace())
        self._process = self._kernel.process("slot", "stage")
        self.clock = self._kernel.clock
        self.broker = ModelBroker()
        self.broker.marker_delay_ms = marker_delay_ms
        self.port = ScriptedPort(self._process)
        self.client = self.another_client()
        self.source_tools = _ModelSourceTools(self)
        self.kafka = {}

    def play(self, run: Callable[[], T]) -> T:
        results: list[T] = []

        def work() -> None:
            results.append(run())
            self._kernel.stop()

        self._kernel.spawn(self._process, "scenario", work)
        self._kernel.stopped = False
        self._kernel.run(PLAY_S)
        return results[0]

    def another_client(self) -> TransactionClient:
        return _ModelTools(self).connect({}, 0.0)

    def make_topic(self, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        self.broker.create_topic(name, partitions, settings)

    def delete_topic(self, name: str) -> None:
        self.broker.delete_topic(self.clock.now_ms(), name)

    def delete_records(self, partition: TopicPartition, before: int) -> None:
        self.broker.delete_records(self.clock.now_ms(), partition, before)

    def restart(self) -> None:
        """Two seconds without coordinator and leaders."""
        now_ms = self.clock.now_ms()
        self.broker.coordinator_away(now_ms, now_ms + 2000)

    def hurt_requests(self, name: str, fates: Sequence[Fate]) -> None:
        self.port.script(name, fates)

    def group_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> list[int]:
        found = self.broker.group_offsets(group)
        return [found.get(part, (ck.OFFSET_INVALID, ""))[0] for part in partitions]

    @property
    def hurt(self) -> int:
        return self.port.hurt

    def offsets(self, partition: TopicPartition) -> tuple[int, int, int]:
        found = self.broker.offsets(self.clock.now_ms(), partition)
        return found.start, found.stable, found.end

    def make_writer(self, topic: str, properties: Mapping[str, str]) -> TransactionWriter:
        return TransactionWriter("out", {topic: self.client.topic_limits(topic)}, properties, _ModelTools(self))

    def make_consumer(self, config: Mapping[str, Any]) -> Consumer:
        return ModelConsumer(self.broker, self.port, config)

    def close(self) -> None:
        super().close()
        self._kernel.close()


class _ModelSourceTools(SourceTools):
    """A consumer of the model, on a virtual thread."""

    def __init__(self, stage: ModelStage) -> None:
        self.clock = stage.clock
        self._broker = stage.broker
        self._port = stage.port

    def helper(self, name: str, on_error: Callable[[BaseException], None]) -> HelperThread:
        return SimHelper(self._port.process, name, on_error)

    def condition(self) -> Condition:
        return SimCondition(self._port.kernel)

    def consumer(self, config: Mapping[str, Any], on_error: Callable[[ck.KafkaError], None]) -> ModelConsumer:
        return ModelConsumer(self._broker, self._port, config, on_error)

    def find_obstacle(self, kafka: Mapping[str, str]) -> None:
        pass


class _ModelTools(KafkaTools):
    """Clients of the model."""

    def __init__(self, stage: ModelStage) -> None:
        self.clock = stage.clock
        self._broker = stage.broker
        self._port = stage.port

    def channel(self, kafka: Mapping[str, str], timeout_s: float) -> ModelChannel:
        return ModelChannel(self._broker, self._port, answer_bytes)

    def producer(self, config: Mapping[str, Any]) -> ModelProducer:
        return ModelProducer(self._broker, self._port, config)


class RealStage(Stage):
    """A development broker that is reached only through a proxy."""

    def __init__(self, prefix: str, broker: DevelopmentBroker, proxy: KafkaProxy) -> None:
        super().__init__(prefix)
        self.clock = SYSTEM_CLOCK
        self._broker = broker
        self._proxy = proxy
        self.kafka = {"bootstrap.servers": broker.bootstrap}
        self.client = self.another_client()
        self.source_tools = SOURCE_TOOLS
        self._admin = clients.admin(dict(self.kafka))
        self._bounds_readers = [
            clients.consumer({**self.kafka, "group.id": "bounds", "isolation.level": level})
            for level in ("read_committed", "read_uncommitted")
        ]

    def make_topic(self, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        self._broker.create_topics({name: partitions}, settings)

    def delete_topic(self, name: str) -> None:
        for future in self._admin.delete_topics([name]).values():
            future.result(DEADLINE_S)
        self.until(lambda: not self.client.topics([name]), "topic deleted")

    def delete_records(self, partition: TopicPartition, before: int) -> None:
        place = ck.TopicPartition(partition.topic, partition.partition, before)
        for future in self._admin.delete_records([place]).values():
            future.result(DEADLINE_S)

    def restart(self) -> None:
        self._broker.kill()
        self._broker.start()

    def hurt_requests(self, name: str, fates: Sequence[Fate]) -> None:
        verdicts = {Fate.REFUSE: Verdict.REFUSE, Fate.LOSE_REQUEST: Verdict.DROP, Fate.LOSE_ANSWER: Verdict.CUT}
        script = iter([verdicts.get(outcome, Verdict.FORWARD) for outcome in fates])

        def rule(request: Request) -> Verdict:
            return next(script, Verdict.FORWARD) if request.api_key == API_KEYS[name] else Verdict.FORWARD

        self._proxy.rule = rule

    def group_offsets(self, group: str, partitions: Sequence[TopicPartition]) -> list[int]:
        reader = clients.consumer({**self.kafka, "group.id": group})
        try:
            places = [ck.TopicPartition(part.topic, part.partition) for part in partitions]
            return [place.offset for place in reader.committed(places, timeout=DEADLINE_S)]
        finally:
            reader.close()

    @property
    def hurt(self) -> int:
        return self._proxy.hurt

    def offsets(self, partition: TopicPartition) -> tuple[int, int, int]:
        place = ck.TopicPartition(partition.topic, partition.partition)
        bounds = [reader.get_watermark_offsets(place, timeout=DEADLINE_S) for reader in self._bounds_readers]
        return bounds[0][0], bounds[0][1], bounds[1][1]

    def another_client(self) -> TransactionClient:
        return TransactionClient(self.kafka)

    def make_writer(self, topic: str, properties: Mapping[str, str]) -> TransactionWriter:
        return TransactionWriter("out", {topic: self.client.topic_limits(topic)}, {**properties, **self.kafka})

    def make_consumer(self, config: Mapping[str, Any]) -> Consumer:
        return clients.consumer({**config, **self.kafka})

    def close(self) -> None:
        super().close()
        self.client.close()
        for reader in self._bounds_readers:
            reader.close()
        del self._admin  # a refusal that was caught may hold the stage


def _never() -> bool:
    return False
