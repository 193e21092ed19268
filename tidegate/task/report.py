"""A slot's report to the daemon about its work: cumulative counts of one attempt, about once a second.

Nothing is counted per record: the slot adds batch sizes. The daemon turns the counts of many attempts into counters
that only grow (`tidegate.daemon.metrics`).
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.coordinator.types import SourcePositions
from tidegate.formats.failures import FailureKind
from tidegate.ids import OperatorName, TopicPartition

PARTITIONS_MAX: Final = 10_000


class OperatorCounts(msgspec.Struct, kw_only=True):
    """What one operator of a slot has done in this attempt: counters, and gauges of event time.

    The loop updates it per batch; reports hold copies.
    """

    rows_in: int = 0
    """For a source: records, including unreadable ones."""
    rows_out: int = 0
    """For a sink: records passed to the client."""
    filtered: int = 0
    """Rows that a filter's predicate has dropped, and tombstones that a source omits."""
    failed: int = 0
    """Rows omitted because they could not be read, computed or written."""
    late: int = 0
    """Rows omitted because their window or interval was already closed."""
    before_1971: int = 0
    """For a source: rows whose event time is before 1971."""
    busy_ms: float = 0.0
    """Its own share of the loop's time, including its outputs but not the operators after it."""
    watermarks: int = 0
    """Watermarks that it has passed on (W25)."""
    watermark_ms: int | None = None
    """Gauge: the last watermark, ms since 1970; END_OF_TIME after a bounded input, None before the first."""
    idle: bool = False
    """Gauge: whether the operator is idle, so that its watermark is not waited for."""
    held_back_by: str = ""
    """Gauge, for a source: the partition that its watermark waits for."""
    gauges: dict[str, int] = {}
    """Current sizes, see OperatorRuntime."""
    blocked_ms: float = 0.0
    """Time in which the loop waited because nothing could leave the subtask; counted for the first operator only."""


class SlotReport(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a slot. Counters start at zero with the attempt and never fall within it; gauges show current
    values.

    A report without arguments is valid and means that nothing has happened yet.
    """

    records_in: dict[OperatorName, int] = {}
    """Counter: records returned by each source subtask, including bad ones."""
    bytes_in: dict[OperatorName, int] = {}
    """Counter: bytes of the keys and values of those records."""
    records_out: dict[OperatorName, int] = {}
    """Counter: records produced by each sink subtask, committed or not."""
    bytes_out: dict[OperatorName, int] = {}
    """Counter: bytes of the keys and values of those records."""
    bad_records: dict[OperatorName, dict[FailureKind, int]] = {}
    """Counter: records omitted, by operator and kind."""
    dead_letters: dict[OperatorName, dict[FailureKind, int]] = {}
    """Counter: bad records for which dead letters were written."""
    operators: dict[OperatorName, OperatorCounts] = {}
    """Every operator of the plan, in plan order."""
    busy_seconds: float = 0.0
    """Counter: time the loop spent working."""
    backpressured_seconds: float = 0.0
    """Counter: time the loop waited for room at a sink or a channel."""
    idle_seconds: float = 0.0
    """Counter: time the loop waited for input."""
    queued_batches: int = 0
    """Gauge: batches queued in the slot."""
    state_keys: dict[OperatorName, int] = {}
    """Gauge: keys held by each stateful operator."""
    newest: tuple[tuple[OperatorName, TopicPartition, int, int], ...] = ()
    """Gauge: for each source and partition, offset and timestamp (ms since 1970) of the newest record examined."""
    positions: tuple[SourcePositions, ...] = ()
    """Gauge: the next offsets and the watermarks of each source subtask, without other parts of a position.

    A subtask with more than PARTITIONS_MAX partitions reports no watermarks.
    """
    idle: dict[OperatorName, tuple[TopicPartition, ...]] = {}
    """Gauge: the idle partitions of each source subtask that reports watermarks."""
