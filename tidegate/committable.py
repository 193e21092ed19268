"""A prepared transaction as a value, shared by sinks, the journal and the Kafka clients."""

from __future__ import annotations

import msgspec

from tidegate.ids import (
    MAIN_CLUSTER,
    Attempt,
    CheckpointId,
    ClusterName,
    OperatorName,
    ProducerId,
    SlotIndex,
    TopicPartition,
    TransactionalId,
)


class WrittenRange(msgspec.Struct, frozen=True):
    """The data that one transaction wrote to one partition: `records` data records from `start_offset` on."""

    partition: TopicPartition
    start_offset: int
    end_offset: int
    """Offset after the last data record seen at prepare (exclusive); records of other writers may lie in between."""
    records: int


class Committable(msgspec.Struct, frozen=True):
    """A prepared transaction: flushed, counted, not ended.

    Files and messages store `producer_id` and `producer_epoch` separately; everything else uses `producer`.
    """

    sink: OperatorName
    subtask: SlotIndex
    attempt: Attempt
    checkpoint: CheckpointId
    transactional_id: TransactionalId
    producer_id: int
    producer_epoch: int
    written: tuple[WrittenRange, ...]
    opened_at_ms: int
    """Timestamp of the coordinator's clock, ms since 1970; by it, the coordinator aborts the transaction at
    opened_at_ms + timeout_ms. For display only; never compared with another clock.
    """
    timeout_ms: int
    cluster: ClusterName = MAIN_CLUSTER
    """The cluster of the sink, by its name when the transaction was prepared (`coordinator/clusters.py`)."""

    @property
    def producer(self) -> ProducerId:
        """The producer of the transaction, which it shares with no other."""
        return ProducerId(self.producer_id, self.producer_epoch)

    @property
    def records(self) -> int:
        """Data records in the transaction."""
        return sum(part.records for part in self.written)
