"""Reads the records of lost transactions back from the log and prepares them again in new transactions.

Only the header of a batch identifies the producer of its records (`TransactionClient.data_ranges`). librdkafka reads
the records themselves, because it supports every codec. Nothing is committed here. `salvage.py` decides what may be
salvaged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import confluent_kafka as ck

from tidegate.committable import Committable
from tidegate.ids import CheckpointId, OperatorName, SlotIndex, TopicPartition
from tidegate.kafka.channel import PAUSE_S
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused, SinkRefused
from tidegate.kafka.facts import TopicLimits
from tidegate.kafka.log_reader import SCAN_TIMEOUT_S
from tidegate.kafka.properties import derive_producer_properties
from tidegate.kafka.tls import RENEWAL_S, names_tls_files
from tidegate.kafka.tools import KAFKA_TOOLS, KafkaConsumer, KafkaTools
from tidegate.sinks.proof import Flushed, decide_committable, decide_first_sequences, decide_flushed
from tidegate.sinks.salvage import (
    Group,
    SalvageOrder,
    decide_found,
    decide_whole,
    derive_groups,
    merge_ranges,
    refuse_old,
)

if TYPE_CHECKING:
    from tidegate.kafka.facts import LoggedRange
    from tidegate.kafka.transactions import TransactionClient
    from tidegate.kafka.writer import TransactionWriter

logger = logging.getLogger(__name__)

FLUSH_S_MAX: Final = 120.0
SILENCE_S: Final = 30.0
"""How long a partition may deliver nothing before the salvage fails."""
READ_AT_ONCE: Final = 1000
WAIT_S: Final = 1.0

_READING: Final[Mapping[str, str | bool]] = {
    "isolation.level": "read_uncommitted",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": "20",
}
_PREFETCH: Final[Mapping[str, str]] = {"queued.max.messages.kbytes": "16384"}
"""Overridden by the pipeline's properties, with which they have been compared."""

Ranges = dict[TopicPartition, list["LoggedRange"]]


class Salvager:
    """The executor of one order. `kafka` are the pipeline's connection properties, `sinks` those of each sink's
    producers.
    """

    def __init__(
        self,
        client: TransactionClient,
        kafka: Mapping[str, str],
        sinks: Mapping[OperatorName, Mapping[str, str]],
        order: SalvageOrder,
        tools: KafkaTools = KAFKA_TOOLS,
        *,
        accept_gone: CheckpointId | None = None,
    ) -> None:
        """`accept_gone` is the checkpoint for which the user has decided that records which are gone count as
        committed.
        """
        self._client = client
        self._kafka = kafka
        self._sinks = sinks
        self._order = order
        self._tools = tools
        self._clock = tools.clock
        self._accept_gone = accept_gone

    def check(self) -> None:
        """Checks that all records are in the log. Raises TransactionLost if not."""
        for group in derive_groups(self._order):
            self._find(group)

    def prepare(self) -> tuple[Committable, ...]:
        """Prepares new transactions that hold every record of the lost ones; blocks. Returns them unended.

        Finds everything before it writes anything. Raises TransactionLost if records are missing or now too old for
        their topic; SinkFailed, KafkaRefused and BrokerUnavailable as a sink does.
        """
        groups = derive_groups(self._order)
        found = [self._find(group) for group in groups]
        return tuple(self._write(group, ranges) for group, ranges in zip(groups, found, strict=True) if ranges)

    def _find(self, group: Group) -> Ranges:
        by_partition: dict[TopicPartition, list[list[LoggedRange]]] = {}
        for one in group.lost:
            owner = one.committable
            for part in owner.written:
                if part.partition.topic != group.topic:
                    continue
                ranges = self._client.data_ranges(part, owner.producer, SCAN_TIMEOUT_S)
                gone = decide_found(
                    one, part.partition, part.records, ranges, self._order.listed_by, accept_gone=self._accept_gone
                )
                if gone:
                    logger.warning(
                        "counted as committed, as --accept-gone %d says: %d of %d records of %s in %s, which are gone",
                        self._order.listed_by,
                        gone,
                        part.records,
                        owner.transactional_id,
                        part.partition,
                    )
                if ranges:
                    by_partition.setdefault(part.partition, []).append(ranges)
        return {partition: merge_ranges(found) for partition, found in sorted(by_partition.items())}

    def _write(self, group: Group, found: Ranges) -> Committable:
        # A sink removed from the file has no settings of its own any more, so those of the connection apply.
        settings = self._sinks.get(group.name.sink, self._kafka)
        properties = derive_producer_properties(settings, group.name.transactional_id, self._order.timeout_ms)
        topics = {group.topic: self._client.topic_limits(group.topic)}
        writer = self._tools.writer(group.name.sink, topics, properties)
        oldest_ms = self._clock.now_ms()
        try:
            writer.open(self._client, _never)
            for partition, ranges in found.items():
                for message in self._read(partition, ranges):
                    writer.repeat(message)
                    if (stamp_ms := message.timestamp()[1]) > 0:
                        oldest_ms = min(oldest_ms, stamp_ms)
            left = writer.flush(FLUSH_S_MAX, _never)
            committable = self._prove(group, writer, left)
        except SinkRefused as refused:
            limits = topics[group.topic]
            if writer.stamps_refused and (limits.before_ms is not None or limits == TopicLimits()):  # or not visible
                raise refuse_old(group, oldest_ms, limits.before_ms) from refused
            raise
        finally:
            writer.discard()
        decide_whole(committable, {part: sum(one.records for one in ranges) for part, ranges in found.items()})
        return committable

    def _prove(self, group: Group, writer: TransactionWriter, left: int) -> Committable:
        flushed = Flushed(
            sink=group.name.sink,
            subtask=SlotIndex(0),
            attempt=self._order.attempt,
            checkpoint=self._order.checkpoint,
            transactional_id=writer.transactional_id,
            producer=writer.producer,
            produced=writer.produced,
            undelivered=left,
            delivery_errors=writer.delivery_errors,
            first_error=writer.first_error,
            refused=writer.refused,
            cluster=group.lost[0].committable.cluster,
        )
        decide_flushed(flushed)
        committable = decide_committable(flushed, self._client.prepared_view(writer.transactional_id, writer.producer))
        starts = {part.partition: part.start_offset for part in committable.written}
        decide_first_sequences(flushed, self._client.first_sequences(starts, writer.producer))
        return committable

    def _read(self, partition: TopicPartition, ranges: Sequence[LoggedRange]) -> Iterator[ck.Message]:
        """Yields the messages in the ranges, in order; records of other producers between them are skipped."""
        consumer = self._open_consumer()
        try:
            position = ranges[0].first_offset
            consumer.assign([ck.TopicPartition(partition.topic, partition.partition, position)])
            wanted = sum(one.records for one in ranges)
            left = iter(ranges)
            current = next(left)
            heard, problem = self._clock.monotonic(), "no record"
            while wanted:
                # A request for many waits for all of them until the timeout.
                messages = consumer.consume(1, WAIT_S)
                for message in messages and [*messages, *consumer.consume(READ_AT_ONCE - 1, 0)]:
                    offset, error = message.offset(), message.error()
                    if not wanted:
                        break  # records after the last wanted one are not examined
                    if error is not None or offset is None:
                        # The raw headers prove that the records are there: resume at the same position.
                        problem = "no offset" if error is None else error.str()
                        consumer.assign([ck.TopicPartition(partition.topic, partition.partition, position)])
                        break
                    heard, position = self._clock.monotonic(), offset + 1
                    while wanted and offset >= current.next_offset:
                        following = next(left, None)
                        if following is None:  # the next attempt checks again and reports what is missing
                            raise BrokerUnavailable(f"{partition} lost {wanted} records while they were read")
                        current = following
                    if wanted and offset >= current.first_offset:
                        wanted -= 1
                        yield message
                if wanted and self._clock.monotonic() - heard > SILENCE_S:
                    raise BrokerUnavailable(
                        f"{partition} delivered no record for {SILENCE_S:g} s ({problem}), {wanted} are missing"
                    )
        finally:
            consumer.close()

    def _open_consumer(self) -> KafkaConsumer:
        """Opens a consumer; waits while certificate files are being replaced. Raises KafkaRefused."""
        config: dict[str, Any] = {**_PREFETCH, **self._kafka, **_READING, "group.id": self._order.pipeline}
        patient_until = self._clock.monotonic() + (RENEWAL_S if names_tls_files(self._kafka) else 0.0)
        while True:
            try:
                return self._tools.consumer(config)
            except (ck.KafkaException, TypeError, ValueError) as error:
                if self._clock.monotonic() >= patient_until:
                    text = (
                        f"lost records cannot be read again: the Kafka client rejects the settings in `kafka:`: {error}"
                    )
                    raise KafkaRefused(text) from error
            self._clock.sleep(PAUSE_S)


def _never() -> bool:
    return False
