"""The model's stand-in for `sinks.writer.Writer`: one producer, its one transaction, batches in flight.

Batches leave in the order of their sequence numbers, several at once; each may be lost, refused or late, and is then
sent again, as librdkafka does. A batch that the broker calls out of order although everything before it is
acknowledged counts as delivered when its sequence is an old one: that is the trap of ADR 3, which the proof must find.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

import msgspec

from tidegate.ids import TopicPartition, TransactionalId
from tidegate.simulation.model_broker.broker import ModelBroker
from tidegate.simulation.model_broker.codes import COORDINATOR_RETRY, LEADER_RETRY, Code, RequestRefused
from tidegate.simulation.model_broker.link import Link, LinkLost
from tidegate.simulation.model_broker.log import Record, Stamp
from tidegate.simulation.model_broker.partitioner import derive_partition
from tidegate.sinks.errors import SinkFailed, SinkRefused
from tidegate.sinks.writer import FLUSH_SLICE_S, OPEN_TIMEOUT_S, RETRY_PAUSE_S

if TYPE_CHECKING:
    import confluent_kafka as ck

    from tidegate.formats.records import Encoded
    from tidegate.sinks.transactions import TransactionClient

T = TypeVar("T")

BATCH_RECORDS: Final = 16
FLUSH_PAUSE_S: Final = 0.005
IN_FLIGHT: Final = 5

_RETRY: Final = COORDINATOR_RETRY | LEADER_RETRY
_FENCED: Final = frozenset({Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH, Code.INVALID_PRODUCER_ID_MAPPING})


class _Batch(msgspec.Struct, eq=False):
    """Records of one partition that travel together."""

    first_sequence: int
    expires_at_s: float
    records: list[Record]
    sent: bool = False
    """On its way, or its answer is; a batch that was sent once takes no more records."""
    closed: bool = False


class _Lane(msgspec.Struct):
    """Everything of one partition that is not acknowledged, in order."""

    batches: deque[_Batch] = msgspec.field(default_factory=deque)
    next_sequence: int = 0
    acknowledged: int = -1
    """Last sequence of which the client believes that everything up to it is in the log."""


class ModelWriter:
    """A producer with at most one transaction. See `Writer` for the contract of each method."""

    def __init__(self, broker: ModelBroker, link: Link, sink: str, topic: str, properties: Mapping[str, str]) -> None:
        self.transactional_id = TransactionalId(properties.get("transactional.id", ""))
        self.producer_id = -1
        self.producer_epoch = -1
        self.produced = 0
        self.first_record_at: float | None = None
        self.delivery_errors = 0
        self.first_error = ""
        self.refused = False
        self.partitions = 0
        self.queued = 0
        self._broker = broker
        self._link = link
        self._sink = sink
        self._topic = topic
        self._queue_max = int(properties["queue.buffering.max.messages"])
        self._message_timeout_s = int(properties["message.timeout.ms"]) / 1000
        self._timeout_ms = int(properties.get("transaction.timeout.ms", "60000"))
        self._in_flight_max = int(properties.get("max.in.flight", str(IN_FLIGHT)))
        self._owner = (-1, -1)
        self._lanes: dict[TopicPartition, _Lane] = defaultdict(_Lane)
        self._added: set[TopicPartition] = set()
        self._adding = False
        self._fatal = ""
        self._discarded = False
        self._stepping = False
        self._step_again = False
        self._retry_planned = False

    # -- what the sink calls -------------------------------------------------------------------------------------------

    def open(self, client: TransactionClient | None, stopping: Callable[[], bool]) -> None:
        """Initialise the transactional id and learn the topic. Raises SinkFailed, SinkRefused."""
        deadline_s = self._link.clock.monotonic() + OPEN_TIMEOUT_S
        wanted = self.transactional_id or None
        self._owner = self._patiently(
            "init",
            lambda: self._broker.init_producer(self._link.clock.now_ms(), wanted, self._timeout_ms),
            deadline_s,
            stopping,
        )
        if client is not None:
            description = client.describe(self.transactional_id)
            if description is None:
                raise SinkFailed(
                    f"sink {self._sink}: {self.transactional_id} is unknown right after its initialisation"
                )
            self.producer_id, self.producer_epoch = description.producer_id, description.producer_epoch
        found = self._patiently("metadata", lambda: self._broker.topics([self._topic]), deadline_s, stopping)
        if self._topic not in found:
            raise SinkRefused(f"sink {self._sink}: topic {self._topic}: unknown; create it", sink=self._sink)
        self.partitions = found[self._topic].partitions

    @property
    def room(self) -> int:
        """Records that would be taken now."""
        return self._queue_max - self.queued

    def discard(self) -> None:
        """Give up what is queued; what is on its way arrives, and the transaction stays as it is."""
        self._discarded = True
        self._lanes.clear()
        self.queued = 0

    def write(self, rows: Encoded, start: int) -> int:
        """Hand over rows from `start` on; index of the first that found no room. Raises SinkFailed."""
        self._raise_fatal()
        end = min(len(rows.records), start + self.room)
        now_ms = self._link.clock.now_ms()
        for index in range(start, end):
            record = rows.records[index]
            key = record.get("key")
            timestamp_ms = rows.timestamps_ms[index] if rows.timestamps_ms is not None else None
            taken = Record(key, record.get("value"), now_ms if timestamp_ms is None else timestamp_ms)
            number = self.produced % self.partitions if key is None else derive_partition(key, self.partitions)
            self._enqueue(TopicPartition(self._topic, number), taken)
        self._step()
        return max(start, end)

    def repeat(self, message: ck.Message) -> None:
        """Produce a message that was read, into the same partition, with all it has. Raises SinkFailed."""
        self._raise_fatal()
        partition, (_, timestamp_ms) = message.partition(), message.timestamp()
        assert partition is not None
        headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
        key, value = message.key(), message.value()
        record = Record(key, value, timestamp_ms, tuple(headers))
        self._enqueue(TopicPartition(self._topic, partition), record)
        self._step()

    def poll(self) -> None:
        """Serve delivery errors. Raises SinkFailed."""
        self._step()
        self._raise_fatal()
        if self.delivery_errors:
            raise SinkFailed(f"sink {self._sink}: a record was not delivered: {self.first_error}", sink=self._sink)

    def flush(self, timeout_s: float, stopping: Callable[[], bool]) -> int:
        """Wait until everything is delivered or has failed; the number of records that are neither."""
        deadline_s = self._link.clock.monotonic() + timeout_s
        checked_s = self._link.clock.monotonic()
        while True:
            self._step()
            if not self.queued:
                return 0  # also when the producer is fenced: the client notices only what it sends
            self._raise_fatal()
            now_s = self._link.clock.monotonic()
            if now_s > deadline_s or (stopping() and now_s - checked_s >= FLUSH_SLICE_S):
                return self.queued
            self._link.clock.sleep(FLUSH_PAUSE_S)

    # -- sending -------------------------------------------------------------------------------------------------------

    def _enqueue(self, partition: TopicPartition, record: Record) -> None:
        if self.first_record_at is None:
            self.first_record_at = self._link.clock.monotonic()
        lane = self._lanes[partition]
        if not lane.batches or lane.batches[-1].closed or len(lane.batches[-1].records) >= BATCH_RECORDS:
            expires_at_s = self._link.clock.monotonic() + self._message_timeout_s
            lane.batches.append(_Batch(lane.next_sequence, expires_at_s, []))
        lane.batches[-1].records.append(record)
        lane.next_sequence += 1
        self.produced += 1
        self.queued += 1

    def _step(self) -> None:
        """Send whatever may be sent. An answer that comes while sending leads to another round."""
        self._step_again = True
        if self._stepping or not (self.queued or self.first_error):
            return
        self._stepping = True
        while self._step_again and not self._fatal and not self._discarded:
            self._step_again = False
            self._expire()
            self._add_partitions()
            for partition, lane in list(self._lanes.items()):
                if not self.transactional_id or partition in self._added:
                    self._send(partition, lane)
        self._stepping = False

    def _send(self, partition: TopicPartition, lane: _Lane) -> None:
        room = self._in_flight_max - sum(batch.sent for batch in lane.batches)
        for batch in list(lane.batches):
            if room <= 0:
                return
            if batch.sent:
                continue
            room -= 1
            batch.sent = batch.closed = True
            stamp = Stamp(*self._owner, batch.first_sequence, bool(self.transactional_id))
            self._link.post(
                "produce",
                partial(self._produce, partition, tuple(batch.records), stamp),
                partial(self._on_produced, partition, lane, batch),
                partial(self._send_again, batch),
            )

    def _produce(self, partition: TopicPartition, records: tuple[Record, ...], stamp: Stamp) -> Code:
        """At the broker."""
        now_ms = self._link.clock.now_ms()
        return _code_of(lambda: self._broker.produce(now_ms, partition, records, stamp, self.transactional_id or None))

    def _add_partitions(self) -> None:
        new = self._lanes.keys() - self._added
        if not new or self._adding or not self.transactional_id:
            return
        self._adding = True
        wanted = frozenset(new)
        self._link.post(
            "add-partitions",
            lambda: _code_of(
                lambda: self._broker.add_partitions(
                    self._link.clock.now_ms(), self.transactional_id, *self._owner, wanted
                )
            ),
            partial(self._on_added, wanted),
            partial(self._on_added, frozenset(), Code.NONE, retry=True),
        )

    # -- answers -------------------------------------------------------------------------------------------------------

    def _on_added(self, wanted: frozenset[TopicPartition], code: Code, retry: bool = False) -> None:
        self._adding = False
        if code in _RETRY or retry:
            self._plan_retry()
        elif code in _FENCED:
            self._fail_fatally(code)
        elif code is Code.NONE:
            self._added |= wanted
            self._step()
        else:
            self._give_up(code.name)

    def _on_produced(self, partition: TopicPartition, lane: _Lane, batch: _Batch, code: Code) -> None:
        if self._discarded or batch not in lane.batches:
            return  # expired, or failed with the others, meanwhile
        batch.sent = False
        last = batch.first_sequence + len(batch.records) - 1
        if code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.first_sequence > lane.acknowledged + 1:
            self._plan_retry()  # the one before it is missing there: it goes first
        elif code in (Code.NONE, Code.DUPLICATE_SEQUENCE_NUMBER) or (
            code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER and last <= lane.acknowledged
        ):
            lane.acknowledged = max(lane.acknowledged, last)
            lane.batches.remove(batch)
            self.queued -= len(batch.records)
            self._step()
        elif code in _RETRY:
            self._plan_retry()
        elif code in _FENCED:
            self._fail_fatally(code)
        else:
            self._give_up(f"{partition}: {code.name}")

    def _send_again(self, batch: _Batch) -> None:
        batch.sent = False
        self._plan_retry()

    def _plan_retry(self) -> None:
        if not self._retry_planned and not self._discarded:
            self._retry_planned = True
            self._link.after(RETRY_PAUSE_S, self._retry)

    def _retry(self) -> None:
        self._retry_planned = False
        self._step()

    # -- failing -------------------------------------------------------------------------------------------------------

    def _expire(self) -> None:
        now_s = self._link.clock.monotonic()
        if any(lane.batches and lane.batches[0].expires_at_s <= now_s for lane in self._lanes.values()):
            self._give_up("_MSG_TIMED_OUT")

    def _give_up(self, why: str) -> None:
        """A record cannot be delivered: none of the transaction's needs to be."""
        self.first_error = self.first_error or f"{self._topic}: {why}"
        self.delivery_errors += self.queued
        self.queued = 0
        for lane in self._lanes.values():
            lane.batches.clear()

    def _fail_fatally(self, code: Code) -> None:
        self._fatal = self._fatal or f"_FENCED ({code.name})"

    def _raise_fatal(self) -> None:
        if self._fatal:
            raise SinkFailed(f"sink {self._sink}, topic {self._topic}: {self._fatal}", sink=self._sink)

    def _patiently(self, name: str, request: Callable[[], T], deadline_s: float, stopping: Callable[[], bool]) -> T:
        """Repeat what waiting may cure."""
        while True:
            try:
                return self._link.call(name, request)
            except RequestRefused as refused:
                if refused.code is Code.INVALID_TRANSACTION_TIMEOUT:
                    raise SinkRefused(f"sink {self._sink}: {refused.code.name}", sink=self._sink) from refused
                if refused.code not in _RETRY:
                    raise SinkFailed(f"sink {self._sink}: {refused.code.name}", sink=self._sink) from refused
                last = refused.code.name
            except LinkLost:
                last = "no answer"
            if stopping() or self._link.clock.monotonic() > deadline_s:
                raise SinkFailed(f"sink {self._sink}: {name}: {last}", sink=self._sink)
            self._link.clock.sleep(RETRY_PAUSE_S)


def _code_of(request: Callable[[], object]) -> Code:
    try:
        request()
    except RequestRefused as refused:
        return refused.code
    return Code.NONE
