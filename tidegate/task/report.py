"""What a slot reports to the daemon about its work: cumulative counts of one attempt, about once a second.

Nothing is counted per record for it: the slot adds batch sizes. The daemon turns the counts of many attempts into
counters that only grow (tidegate.daemon.metrics).
"""

from __future__ import annotations

import msgspec

from tidegate.coordinator.types import SourcePositions
from tidegate.formats.failures import FailureKind
from tidegate.ids import OperatorName, TopicPartition


class OperatorCounts(msgspec.Struct, kw_only=True):
    """What one operator of a slot has done in this attempt: counters, and gauges of event time.

    The loop adds to it, a batch at a time; reports hold copies.
    """

    rows_in: int = 0
    """Of a source: records, unreadable ones included."""
    rows_out: int = 0
    """Of a sink: records handed to the client."""
    filtered: int = 0
    """Rows that a filter has dropped by its predicate, and tombstones that a source leaves out."""
    failed: int = 0
    """Rows left out because they could not be read, computed or written."""
    late: int = 0
    """Rows left out because what they belong to was closed already."""
    before_1971: int = 0
    """Of a source: rows whose event time is before 1971."""
    busy_ms: float = 0.0
    """Its own share of the loop's time, that of its outputs included, that of the operators after it not."""
    watermarks: int = 0
    """Watermarks that it has passed on (W25)."""
    watermark_ms: int | None = None
    """Gauge: the last of them, ms since 1970; END_OF_TIME after a bounded input, None before the first."""
    idle: bool = False
    """Gauge: nobody waits for its watermark."""
    held_back_by: str = ""
    """Gauge, of a source: the partition that its watermark waits for."""
    gauges: dict[str, int] = {}
    """What it holds now, see OperatorRuntime."""
    blocked_ms: float = 0.0
    """Time in which the loop waited, because nothing could leave the subtask of which this is the first operator."""


class SlotReport(msgspec.Struct, frozen=True, kw_only=True):
    """All counts start at zero with the attempt and never fall within it; gauges say how it is now.

    A report without arguments is valid and says that nothing has happened yet.
    """

    records_in: dict[OperatorName, int] = {}
    """Counter: records returned by each source subtask, bad ones included."""
    bytes_in: dict[OperatorName, int] = {}
    """Counter: bytes of the keys and values of those records."""
    header_names_cut: dict[OperatorName, int] = {}
    """Counter: names of their headers that the Kafka client has cut off at a NUL, as far as it can be seen."""
    records_out: dict[OperatorName, int] = {}
    """Counter: records produced by each sink subtask, committed or not."""
    bytes_out: dict[OperatorName, int] = {}
    """Counter: bytes of the keys and values of those records."""
    bad_records: dict[OperatorName, dict[FailureKind, int]] = {}
    """Counter: records left out, by operator and kind."""
    dead_letters: dict[OperatorName, dict[FailureKind, int]] = {}
    """Counter: those of them that letters were written about."""
    operators: dict[OperatorName, OperatorCounts] = {}
    """Every operator of the plan, in its order."""
    busy_seconds: float = 0.0
    """Counter: time the loop spent working."""
    backpressured_seconds: float = 0.0
    """Counter: time it waited for room at a sink or a channel."""
    idle_seconds: float = 0.0
    """Counter: time it waited for input."""
    queued_batches: int = 0
    """Gauge: batches waiting in the slot's queues."""
    state_keys: dict[OperatorName, int] = {}
    """Gauge: keys held by each stateful operator."""
    newest: tuple[tuple[TopicPartition, int, int], ...] = ()
    """Gauge: of each partition the newest record that was looked at: its offset and its timestamp, ms since 1970."""
    positions: tuple[SourcePositions, ...] = ()
    """Gauge: the next offsets of each source subtask, without anything else of a position."""
