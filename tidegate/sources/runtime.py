"""A Kafka source as an operator of the slot loop: emits batches, passes unreadable records to the policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from tidegate.coordinator.types import SourcePositions
from tidegate.formats.dead_letters.frames import dead_letters_of_records
from tidegate.formats.failures import BadRecordPolicy, RecordFailure, RecordPlace
from tidegate.formats.schemas import Schemas
from tidegate.ids import OperatorName, TopicPartition
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.runtime import OperatorRuntime, Out
from tidegate.operators.spec import DEAD
from tidegate.sources.kafka import KafkaSource, SourceBatch
from tidegate.sources.tools import SOURCE_TOOLS, SourceTools

if TYPE_CHECKING:
    import polars as pl

CLOCK_INTERVAL_MS: Final = 1000
"""Interval at which the watermark of a silent source follows the clock, if configured."""

BadRecord = Callable[[OperatorName, BadRecordPolicy, RecordPlace, str, RecordFailure], None]
"""(operator, policy, place, place as text, failure)."""


class SourceRuntime(KafkaSource, OperatorRuntime):
    """A `Source` of the slot loop."""

    def __init__(
        self,
        operator: SourceOperator,
        partitions: Sequence[TopicPartition],
        restored: SourcePositions,
        group_id: str,
        wake: Callable[[], None],
        bad_record: BadRecord,
        tools: SourceTools = SOURCE_TOOLS,
        schemas: Schemas | None = None,
    ) -> None:
        super().__init__(operator, partitions, restored, group_id, wake, tools, schemas)
        self.operator = operator
        self.records = 0
        self.bytes = 0
        self.left_out = 0
        """How many of these records were omitted; see SourceBatch."""
        self.rows_taken = 0
        """As in ports.Source."""
        self._clock_at_ms = 0
        self._owes_caught_up = operator.planned.catches_up
        self._bad_record = bad_record
        self._delivery = operator.open_delivery()

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:  # noqa: ARG002  # the contract's signature
        """Raises TypeError: a source has no input."""
        raise TypeError(f"source {self.operator.name} has no input")

    @override
    def poll(self, rows_max: int, out: Out) -> bool:
        moved = self._poll(rows_max, out)
        if self._owes_caught_up and self.has_caught_up:
            self._owes_caught_up = False
            out.caught_up()
            return True
        return moved

    def _poll(self, rows_max: int, out: Out) -> bool:
        if self.watermarks is None:
            return self._emit(self.take(rows_max), out)
        batch = self.take(rows_max)
        self._ask_idle(self.watermarks)
        moved = self.watermarks.waiting
        self.watermarks.send_before(out)
        moved |= self._emit(batch, out)
        self.watermarks.send_after(out)
        return moved

    def on_time(self, now_ms: int, out: Out) -> bool:
        """Lets event time follow the clock if all partitions are idle and the file requests it: once they have answered
        that they still are.
        """
        self._clock_at_ms = now_ms + CLOCK_INTERVAL_MS
        if self.watermarks is None:
            return False
        self.watermarks.on_clock(now_ms)
        moved = self._ask_idle(self.watermarks) or self.watermarks.waiting
        self.watermarks.send_after(out)
        return moved

    @property
    @override
    def next_deadline_ms(self) -> int | None:
        advancing = self.watermarks is not None and self.watermarks.advancing
        return self._clock_at_ms if advancing else None

    @property
    def finished(self) -> bool:
        """Whether a bounded read has emitted everything. The end of event time precedes this, and so the
        last barrier.
        """
        return super().finished and (self.watermarks is None or not self.watermarks.waiting)

    @property
    def held_back_by(self) -> TopicPartition | None:
        """The partition whose watermark holds back the others, if any."""
        return None if self.watermarks is None else self.watermarks.held_back_by

    def ask_still_idle(self) -> None:
        """Begins to check whether all partitions are still idle."""
        if self.watermarks is not None:
            self.watermarks.ask_still_idle()
            self._ask_idle(self.watermarks)

    def take_still_idle(self) -> bool:
        """Returns once whether all partitions were idle when checked."""
        return self.watermarks is not None and self.watermarks.take_still_idle()

    def _emit(self, batch: SourceBatch | None, out: Out) -> bool:
        self.rows_taken = 0 if batch is None else self.rows_of(batch.records)
        if batch is None:
            return False
        self.records += batch.records
        self.bytes += batch.record_bytes
        self.left_out += batch.left_out
        for bad in batch.failures:
            where = f"source {self.operator.name}: {bad.partition} offset {bad.offset}"
            place = RecordPlace(bad.partition.topic, bad.partition.partition, bad.offset)
            self._bad_record(self.operator.name, self.operator.bad_records, place, where, bad.failure)
        letters = [
            (bad.partition.topic, bad.partition.partition, bad.offset, bad.raw, bad.failure)
            for bad in batch.failures
            if bad.raw is not None
        ]
        if letters:
            out.side(DEAD, dead_letters_of_records(self.operator.name, self.operator.cluster, letters))
        if self._delivery is None:
            out.emit(batch.frame)
            return True
        for one in self._delivery.deliver(batch.frame, out):
            place = RecordPlace(self.operator.topics[0], one.partition, one.offset)
            where = f"source {self.operator.name}: {place.topic}[{place.partition}] offset {place.offset}"
            self._bad_record(self.operator.name, self.operator.bad_records, place, where, one.failure)
        return True
