"""A prepared transaction as a value: what sinks, the journal and the clients of Kafka say about it."""

from __future__ import annotations

import msgspec

from tidegate.ids import Attempt, CheckpointId, OperatorName, ProducerId, SlotIndex, TopicPartition, TransactionalId


class WrittenRange(msgspec.Struct, frozen=True):
    """What one transaction wrote to one partition: it begins at `start_offset` and has `records` data records."""

    partition: TopicPartition
    start_offset: int
    end_offset: int
    """Offset after the last data record seen at prepare (exclusive); records of others may lie in between."""
    records: int


class Committable(msgspec.Struct, frozen=True):
    """A prepared transaction: flushed, counted, not ended. `producer_id` and `producer_epoch` lie in files and messages
    side by side; everything else uses `producer`.
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
    """Stamp of the coordinator's clock, ms since 1970: by that clock it aborts the transaction at opened_at_ms +
    timeout_ms. For people; never compared with another clock."""
    timeout_ms: int

    @property
    def producer(self) -> ProducerId:
        """Whose transaction it is: nobody else's, and this one only."""
        return ProducerId(self.producer_id, self.producer_epoch)

    @property
    def records(self) -> int:
        """Data records in the transaction."""
        return sum(part.records for part in self.written)
