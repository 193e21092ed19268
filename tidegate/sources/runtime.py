"""A Kafka source as an operator of the slot loop: batches for it, unreadable records to the policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidegate.coordinator.types import SourcePositions
from tidegate.formats.failures import BadRecordPolicy, RecordFailure
from tidegate.ids import OperatorName, TopicPartition
from tidegate.operators.kinds.kafka_source import SourceOperator
from tidegate.operators.runtime import Out, Runtime
from tidegate.sources.kafka import KafkaSource
from tidegate.sources.tools import SOURCE_TOOLS, SourceTools

if TYPE_CHECKING:
    import polars as pl

BadRecord = Callable[[OperatorName, BadRecordPolicy, str, RecordFailure], None]
"""(operator, policy, where, failure)."""


class SourceRuntime(KafkaSource, Runtime):
    """See ports.Source."""

    def __init__(
        self,
        operator: SourceOperator,
        partitions: Sequence[TopicPartition],
        restored: SourcePositions,
        group_id: str,
        wake: Callable[[], None],
        bad_record: BadRecord,
        tools: SourceTools = SOURCE_TOOLS,
    ) -> None:
        super().__init__(operator, partitions, restored, group_id, wake, tools)
        self.operator = operator
        self.records = 0
        self.bytes = 0
        self._bad_record = bad_record

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:  # noqa: ARG002  # the contract's signature
        """Nothing arrives at a source."""
        raise TypeError(f"source {self.operator.name} has no input")

    def poll(self, rows_max: int, out: Out) -> bool:
        """See OperatorRuntime. Raises when a record is unreadable and the policy is to fail."""
        batch = self.take(rows_max)
        if batch is None:
            return False
        self.records += batch.records
        self.bytes += batch.size_bytes
        for bad in batch.failures:
            where = f"source {self.operator.name}: {bad.partition} offset {bad.offset}"
            self._bad_record(self.operator.name, self.operator.bad_records, where, bad.failure)
        out.emit(batch.frame)
        return True
