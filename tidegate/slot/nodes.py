"""Sources and sinks as the slot loop sees them, with their counts. Only in the slot process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import starmap
from typing import TYPE_CHECKING

from tidegate.coordinator.types import Committable, SourcePositions
from tidegate.formats.bisection import evaluate_rows, internal_failure
from tidegate.formats.failures import BadRecordPolicy, RecordFailure, gather_failures
from tidegate.formats.records import RecordEncoder
from tidegate.ids import CheckpointId, OperatorName, TopicPartition, TransactionalId
from tidegate.operators.kinds.kafka_sink import SinkOperator
from tidegate.operators.kinds.kafka_source import SourceOperator
from tidegate.operators.runtime import Out, Runtime
from tidegate.task.ports import Prepared

if TYPE_CHECKING:
    import polars as pl

    from tidegate.sinks.kafka import KafkaSink
    from tidegate.sources.kafka import KafkaSource

BadRecord = Callable[[OperatorName, BadRecordPolicy, str, RecordFailure], None]
"""(operator, policy, where, failure)."""


class SourceNode(Runtime):
    """A Kafka source: frames for the loop, unreadable records to the policy."""

    def __init__(self, operator: SourceOperator, source: KafkaSource, bad_record: BadRecord) -> None:
        self.operator = operator
        self.records = 0
        self.bytes = 0
        self._source = source
        self._bad_record = bad_record

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:  # noqa: ARG002  # the contract's signature
        """Nothing arrives at a source."""
        raise TypeError(f"source {self.operator.name} has no input")

    def poll(self, rows_max: int, out: Out) -> bool:
        """See OperatorRuntime. Raises when a record is unreadable and the policy is to fail."""
        batch = self._source.poll(rows_max)
        if batch is None:
            return False
        self.records += batch.records
        self.bytes += batch.size_bytes
        for bad in batch.failures:
            where = f"source {self.operator.name}: {bad.partition} offset {bad.offset}"
            self._bad_record(self.operator.name, self.operator.bad_records, where, bad.failure)
        out.emit(batch.frame)
        return True

    def wait_ready(self, seconds: float) -> None:
        """Until the positions are known: a barrier may come at once."""
        self._source.wait_ready(seconds)

    def positions(self) -> SourcePositions:
        """See ports.Source."""
        return self._source.positions()

    def add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """See ports.Source."""
        self._source.add_partitions(partitions)

    @property
    def finished(self) -> bool:
        """See ports.Source."""
        return self._source.finished

    def close(self) -> None:
        """See ports.Source."""
        self._source.close()


class SinkNode(Runtime):
    """A Kafka sink: encodes frames, counts them."""

    def __init__(self, operator: SinkOperator, sink: KafkaSink) -> None:
        self.operator = operator
        self.records = 0
        self.bytes = 0
        self._sink = sink
        self._encoder = RecordEncoder(operator.format, operator.columns, operator.key, operator.timestamp)

    @property
    def room(self) -> int:
        """See ports.Sink."""
        return self._sink.room

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:  # noqa: ARG002  # one input
        """See OperatorRuntime. Rows that Kafka cannot store are left out."""
        limits = self._sink.record_limits
        parts, raising = evaluate_rows(batch.height, lambda start, end: self._encoder.encode(batch[start:end], limits))
        for _, encoded in parts:
            self.records += len(encoded)
            self.bytes += encoded.size_bytes
            self._sink.write(encoded)
        found = ((start, encoded.failures) for start, encoded in parts)
        if failures := gather_failures(starmap(internal_failure, raising), found):
            out.fail(batch, failures)

    def turn(self) -> bool:
        """See ports.Sink."""
        return self._sink.turn()

    def prepare(self, checkpoint: CheckpointId) -> None:
        """See ports.Sink."""
        self._sink.prepare(checkpoint)

    def poll_prepared(self) -> Sequence[Prepared]:
        """See ports.Sink."""
        return self._sink.poll_prepared()

    def unconfirmed(self) -> Sequence[Committable]:
        """See ports.Sink."""
        return self._sink.unconfirmed()

    def completed(self, checkpoint: CheckpointId, released: frozenset[TransactionalId]) -> None:
        """See ports.Sink."""
        self._sink.completed(checkpoint, released)

    def aborted(self, checkpoint: CheckpointId) -> None:
        """See ports.Sink."""
        self._sink.aborted(checkpoint)

    @property
    def oldest_age_ms(self) -> int | None:
        """See ports.Sink."""
        return self._sink.oldest_age_ms

    def close(self) -> None:
        """See ports.Sink."""
        self._sink.close()
