"""The model's `confluent_kafka.Producer`: one librdkafka client with at most one transaction. Read `lanes.py` next.

Its answers in each state were measured with librdkafka 2.16 and a real broker, and `tests/simulation/broker` compares
what the product makes of them. Not modelled: a producer without idempotence, and the new producer id of a
non-transactional producer after a refused batch, because nothing more is written with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import lru_cache, partial
from typing import Any, Final

import confluent_kafka as ck
from typing_extensions import override

from tidegate.ids import TopicPartition, TransactionalId
from tidegate.kafka.tools import KafkaProducer
from tidegate.simulation.kernel import SimCondition
from tidegate.simulation.model_broker.broker import ModelBroker
from tidegate.simulation.model_broker.codes import COORDINATOR_RETRY, FENCED, LEADER_RETRY, Code, RequestRefused
from tidegate.simulation.model_broker.lanes import NEVER_S, AppendVerdict, Lane, ProducerSettings, SequencedBatch
from tidegate.simulation.model_broker.log import Record, Stamp
from tidegate.simulation.model_broker.metadata import read_metadata
from tidegate.simulation.model_broker.placement import NOBODY
from tidegate.simulation.port import BrokerPort, Connection

RETRY_S: Final = 0.1
REASON_FIRST: Final = 0.7
"""Probability that refused records are reported before those that are given up because of them."""
LOST_REPORTS: Final = 1
"""Number of reports that are lost together with a fatal error."""

PRODUCE_FAULTS: Final = {"refuse": Code.NOT_LEADER_OR_FOLLOWER, "forget": Code.NONE}
"""Kind of fault -> answer without effect: from a leader that has just lost its role, or from one that loses what it has
acknowledged because it was not replicated.
"""

_RETRY: Final = COORDINATOR_RETRY | LEADER_RETRY
_MULTIPLIER: Final = 0x5BD1E995
_MURMUR_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF

# ruff: noqa: SLF001 - the client's own error codes begin with an underscore, but are public


class State(Enum):
    """State of the transaction, with the client's names."""

    INIT = "Init"
    WAIT_PID = "WaitPID"
    READY = "Ready"
    IN_TRANSACTION = "InTransaction"
    ABORTABLE = "AbortableError"
    FATAL = "FatalError"


class Partitioner:
    """The partitions of records: by murmur2 of the key, as in Java's clients; in turn for records without a key."""

    def __init__(self) -> None:
        self._unkeyed = 0

    def choose(self, key: bytes | None, partitions: int) -> int:
        """Returns the partition of a record in a topic with this many partitions."""
        if key is not None:
            return _derive_partition(key, partitions)
        self._unkeyed += 1
        return self._unkeyed % partitions


@lru_cache(maxsize=4096)
def _derive_partition(key: bytes, partitions: int) -> int:
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    """Computes `org.apache.kafka.common.utils.Utils.murmur2`, which is librdkafka's `murmur2_random`."""
    mixed = _MURMUR_SEED ^ len(data)
    whole = len(data) & ~3
    for place in range(0, whole, 4):
        part = int.from_bytes(data[place : place + 4], "little") * _MULTIPLIER & _MASK
        part = (part ^ part >> 24) * _MULTIPLIER & _MASK
        mixed = (mixed * _MULTIPLIER & _MASK) ^ part
    if whole < len(data):
        mixed = (mixed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    mixed = (mixed ^ mixed >> 13) * _MULTIPLIER & _MASK
    return mixed ^ mixed >> 15


class ModelProducer(KafkaProducer):
    """The part of `confluent_kafka.Producer` that `sinks.writer` uses. `config` has librdkafka's names."""

    def __init__(self, broker: ModelBroker, port: BrokerPort, config: Mapping[str, Any]) -> None:
        self._broker = broker
        self._port = port
        self._clock = port.clock
        self._transactional_id = TransactionalId(config.get("transactional.id", ""))
        self._on_delivery: Callable[[ck.KafkaError, ck.Message], None] = config["on_delivery"]
        self._settings = ProducerSettings.of(config)
        self._partitioner = Partitioner()
        self._state = State.INIT if self._transactional_id else State.IN_TRANSACTION
        self._error: ck.KafkaError | None = None
        """The error that made the transaction or the producer unusable."""
        self._owner: tuple[int, int] | None = None
        self._asking = False
        self._lanes: dict[TopicPartition, Lane] = {}
        self._added: frozenset[TopicPartition] = frozenset()
        self._adding = False
        self._events: deque[tuple[ck.KafkaError, TopicPartition, Record] | None] = deque()
        """Reports that have not been served; None stands for the fatal error."""
        self._connections: dict[int, Connection] = {}
        self._changed = SimCondition(port.kernel)
        self._flushing = False
        self._queued = 0
        self._timer_s = NEVER_S

    def __len__(self) -> int:
        return self._queued + len(self._events)

    # -- the interface -------------------------------------------------------------------------------------------------

    @override
    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        return read_metadata(self._broker, self._port, topic, timeout)

    @override
    def init_transactions(self, timeout: float = -1) -> None:
        if self._state is State.INIT:
            self._state = State.WAIT_PID
            self._ask_owner()
        elif self._state is not State.WAIT_PID:
            raise self._out_of_order()
        self._changed.wait_for(lambda: self._state is not State.WAIT_PID, timeout)
        if self._state is State.WAIT_PID:
            text = "Timed out waiting for operation to finish, retry call to resume"
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._TIMED_OUT, text, False, True))
        if self._state is State.FATAL:
            raise ck.KafkaException(self._error)

    @override
    def begin_transaction(self) -> None:
        if self._state is not State.READY:
            raise self._out_of_order()
        self._state = State.IN_TRANSACTION

    @override
    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        *,
        timestamp: int = 0,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> None:
        code = self._take(topic, Record(key, value, timestamp or self._clock.now_ms(), tuple(headers or ())), partition)
        if code == ck.KafkaError._QUEUE_FULL:
            raise BufferError("Local: Queue full")
        if code is not None:
            raise ck.KafkaException(ck.KafkaError(code, "Unable to produce message"))
        self._step()

    @override
    def produce_batch(self, topic: str, messages: list[dict[str, Any]]) -> int:
        now_ms, taken = self._clock.now_ms(), 0
        for message in messages:
            code = self._take(topic, Record(message.get("key"), message.get("value"), now_ms), -1)
            if code is None:
                taken += 1
            else:
                message["_error"] = ck.KafkaError(code, "Message failed")
        self._step()
        return taken

    @override
    def poll(self, timeout: float = -1) -> int:
        self._changed.wait_for(lambda: self._events, timeout)
        served = 0
        while self._events:
            event = self._events.popleft()
            if event is None:
                raise ck.KafkaException(self._error)
            self._report(*event)
            served += 1
        return served

    @override
    def flush(self, timeout: float = -1) -> int:
        deadline_s = self._clock.monotonic() + timeout
        self._flushing = True
        try:
            self._step()
            while True:
                self._serve_all()
                left_s = deadline_s - self._clock.monotonic()
                if not len(self) or left_s <= 0:
                    return len(self)
                self._changed.wait_for(lambda: self._events or not len(self), left_s)
        finally:
            self._flushing = False

    @override
    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drops all records. Those in flight still arrive."""
        assert in_queue
        assert in_flight
        assert not blocking
        for lane in self._lanes.values():
            for batch in lane.batches:
                self._fail(batch, ck.KafkaError._PURGE_INFLIGHT if batch.sent else ck.KafkaError._PURGE_QUEUE)
            lane.batches.clear()

    # -- records -------------------------------------------------------------------------------------------------------

    def _take(self, topic: str, record: Record, number: int) -> int | None:
        """Queues a record. Returns an error code, or None if it was accepted."""
        if self._state is State.FATAL:
            return ck.KafkaError._FATAL
        if self._state is not State.IN_TRANSACTION:
            return ck.KafkaError._STATE
        if len(record.key or b"") + len(record.value or b"") > self._settings.record_bytes_max:
            return ck.KafkaError.MSG_SIZE_TOO_LARGE
        if len(self) >= self._settings.queue_max:
            return ck.KafkaError._QUEUE_FULL
        if number < 0:
            number = self._partitioner.choose(record.key, self._broker.topics([topic])[topic].partitions)
        partition = TopicPartition(topic, number)
        if partition not in self._lanes:
            self._lanes[partition] = Lane(partition, self._settings)
        self._lanes[partition].add(record, self._clock.monotonic())
        self._queued += 1
        return None

    def _serve_all(self) -> None:
        """Serves all reports.

        Reports together with a fatal error confuse the client: some are lost, and it raises SystemError.
        """
        fatal, lost = False, 0
        while self._events:
            event = self._events.popleft()
            if event is None:
                fatal = True
            elif fatal and lost < LOST_REPORTS:
                lost += 1
            else:
                self._report(*event)
        if lost:
            raise SystemError("<on_delivery> returned a result with an exception set")
        if fatal:
            raise ck.KafkaException(self._error)

    def _report(self, error: ck.KafkaError, partition: TopicPartition, record: Record) -> None:
        message = ck.Message(
            topic=partition.topic, partition=partition.partition, key=record.key, value=record.value, error=error
        )
        self._on_delivery(error, message)

    # -- sending -------------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        """Sends everything that may be sent, and sets a timer for what depends on time alone."""
        if self._state is not State.IN_TRANSACTION:
            return
        now_s = self._clock.monotonic()
        if expired := [batch for lane in self._lanes.values() for batch in lane.expired(now_s)]:
            self._expire(expired)
            return
        if self._owner is None:
            self._ask_owner()
            return
        self._add_partitions()
        for partition, lane in self._lanes.items():
            if partition in self._added or not self._transactional_id:
                for batch in lane.take(now_s, hurried=self._flushing):
                    self._send(lane, batch)
        self._set_timer(min((lane.next_s(now_s) for lane in self._lanes.values()), default=NEVER_S))

    def _set_timer(self, at_s: float) -> None:
        if at_s < self._timer_s:
            self._timer_s = at_s
            self._port.after(at_s - self._clock.monotonic(), self._on_timer)

    def _on_timer(self) -> None:
        self._timer_s = NEVER_S
        self._step()

    def _send(self, lane: Lane, batch: SequencedBatch) -> None:
        assert self._owner is not None
        node = self._broker.placement.told_leader(batch.partition, self._clock.now_ms())
        if node == NOBODY:
            lane.lose(batch, self._clock.monotonic())
            return
        stamp = Stamp(*self._owner, batch.first_sequence, bool(self._transactional_id))
        self._connection(node).post(
            "produce",
            partial(self._produce, batch.partition, tuple(batch.records), stamp, node),
            partial(self._on_produced, lane, batch),
            partial(self._on_lost, lane, batch),
            self._settings.socket_timeout_s,
            PRODUCE_FAULTS,
        )

    def _produce(self, partition: TopicPartition, records: tuple[Record, ...], stamp: Stamp, node: int) -> Code:
        """Writes at the broker."""
        now_ms = self._clock.now_ms()
        try:
            self._broker.check_leader(now_ms, partition, node)
            self._broker.produce(now_ms, partition, records, stamp, self._transactional_id or None)
        except RequestRefused as refused:
            return refused.code
        return Code.NONE

    def _on_produced(self, lane: Lane, batch: SequencedBatch, code: Code) -> None:
        if batch not in lane.batches:
            return  # expired or purged meanwhile
        verdict = lane.judge(batch, code, self._clock.monotonic())
        text = f"ProduceRequest for {batch.partition} with {len(batch.records)} message(s) failed: {code.name}"
        if verdict in (AppendVerdict.FENCED, AppendVerdict.REFUSED):
            self._end(code, text, fenced=verdict is AppendVerdict.FENCED)
            if reason_first := self._port.random.random() < REASON_FIRST:
                self._fail(batch, int(code))
            self._give_up_unsent()
            if not reason_first:
                self._fail(batch, int(code))
        elif verdict is AppendVerdict.RETRY:
            self._give_up_unsent()
        else:
            self._queued -= len(batch.records)
        self._step()
        self._changed.notify_all()

    def _on_lost(self, lane: Lane, batch: SequencedBatch) -> None:
        if batch in lane.batches:
            lane.lose(batch, self._clock.monotonic())
            self._give_up_unsent()
            self._step()

    def _add_partitions(self) -> None:
        new = self._lanes.keys() - self._added
        if not new or self._adding or not self._transactional_id:
            return
        self._adding = True
        wanted = frozenset(new)

        def add(node: int) -> Code:
            assert self._owner is not None
            self._broker.check_coordinator(self._clock.now_ms(), self._transactional_id, node)
            self._broker.add_partitions(self._clock.now_ms(), self._transactional_id, *self._owner, wanted)
            return Code.NONE

        self._ask_coordinator("add-partitions", add, partial(self._on_added, wanted))

    def _on_added(self, wanted: frozenset[TopicPartition], code: Code) -> None:
        self._adding = False
        if code in _RETRY:
            self._port.after(self._settings.retry_s, self._step)
        elif code is Code.NONE:
            self._added |= wanted
            self._step()
        else:
            self._end(code, f"Failed to add partition(s) to transaction: {code.name}", fenced=code in FENCED)
            self._give_up_unsent()

    def _ask_owner(self) -> None:
        """Requests a producer id and an epoch until it gets them."""
        if self._asking:
            return
        self._asking = True

        def ask(node: int) -> Code:
            now_ms, wanted = self._clock.now_ms(), self._transactional_id or None
            if wanted is not None:
                self._broker.check_coordinator(now_ms, wanted, node)
            given.append(self._broker.init_producer(now_ms, wanted, self._settings.transaction_timeout_ms))
            return Code.NONE

        def answered(code: Code) -> None:
            self._asking = False
            if code is Code.NONE:
                self._owner = given[-1]
                self._state = State.READY if self._state is State.WAIT_PID else self._state
                self._step()
            elif code in _RETRY:
                self._port.after(RETRY_S, self._ask_owner)
            else:
                self._fail_for_good(int(code), f"Failed to acquire transactional PID from broker: {code.name}")
            self._changed.notify_all()

        given: list[tuple[int, int]] = []
        self._ask_coordinator("init", ask, answered)

    def _ask_coordinator(self, name: str, ask: Callable[[int], Code], answered: Callable[[Code], None]) -> None:
        node = self._broker.placement.told_coordinator(self._transactional_id, self._clock.now_ms())

        def request() -> Code:
            try:
                return ask(node)
            except RequestRefused as refused:
                return refused.code

        lost = partial(answered, Code.COORDINATOR_NOT_AVAILABLE)
        self._connection(node).post(name, request, answered, lost, self._settings.socket_timeout_s)

    def _connection(self, node: int) -> Connection:
        if node not in self._connections:
            self._connections[node] = self._port.connect()
        return self._connections[node]

    # -- failing -------------------------------------------------------------------------------------------------------

    def _expire(self, batches: Sequence[SequencedBatch]) -> None:
        count = sum(len(batch.records) for batch in batches)
        self._end(None, f"{count} message(s) timed out on {batches[0].partition}", fenced=False)
        for batch in batches:
            self._fail(batch, ck.KafkaError._MSG_TIMED_OUT)
        self._give_up_unsent()

    def _end(self, code: Code | None, text: str, *, fenced: bool) -> None:
        """Makes the transaction abortable, or the producer unusable if fenced.

        Requests in flight are still answered. `code` None: timed out.
        """
        if self._state is not State.IN_TRANSACTION:
            return
        if fenced:
            self._fail_for_good(ck.KafkaError._FENCED, text)
        else:
            number = ck.KafkaError._TIMED_OUT if code is None else int(code)
            self._state, self._error = State.ABORTABLE, ck.KafkaError(number, text, False, False, True)

    def _fail_for_good(self, code: int, text: str) -> None:
        self._state, self._error = State.FATAL, ck.KafkaError(code, text, True)
        self._events.append(None)

    def _give_up_unsent(self) -> None:
        """Drops all unsent batches once the transaction has failed."""
        if self._state is State.IN_TRANSACTION:
            return
        for lane in self._lanes.values():
            for batch in [batch for batch in lane.batches if not batch.sent]:
                lane.batches.remove(batch)
                self._fail(batch, ck.KafkaError._PURGE_QUEUE)

    def _fail(self, batch: SequencedBatch, code: int) -> None:
        error = ck.KafkaError(code)
        self._queued -= len(batch.records)
        self._events.extend((error, batch.partition, record) for record in batch.records)
        self._changed.notify_all()

    def _out_of_order(self) -> ck.KafkaException:
        """Returns the error for an operation that does not fit the state."""
        if self._error is not None:
            return ck.KafkaException(self._error)
        text = f"Operation not valid in state {self._state.value}"
        return ck.KafkaException(ck.KafkaError(ck.KafkaError._STATE, text))
