"""A Kafka source of one subtask: decoded batches for the loop, and the positions behind them (F04, F08).

All methods are for the loop's thread and return at once, except `wait_ready` and `close`. The reading itself is in
`reader.py`, the meaning of offsets in `positions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import starmap
from typing import Any

import confluent_kafka as ck
import msgspec
import polars as pl

from tidegate.coordinator.types import SourcePositions
from tidegate.datatypes import FIRST_MOMENT, LAST_MOMENT
from tidegate.formats.bisection import evaluate_rows, internal_failure
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind, RecordFailure, gather_failures
from tidegate.formats.json_reader import JsonDecoder
from tidegate.formats.raw import RAW_SCHEMA
from tidegate.ids import TopicPartition
from tidegate.operators.kinds.kafka_source import SourceOperator
from tidegate.sources.positions import Positions
from tidegate.sources.reader import Pending, Reader
from tidegate.sources.tools import SOURCE_TOOLS, SourceTools
from tidegate.task.elements import BYTES_MAX

_CLOSE_SECONDS = 10.0
# The library's types allow None, which only messages without a broker have: narrowed once, not per record.
_PARTITION: Callable[[ck.Message], Hashable] = ck.Message.partition
_OFFSET: Callable[[ck.Message], int] = ck.Message.offset  # type: ignore[assignment]  # see above


class UnreadableRecord(msgspec.Struct, frozen=True):
    """A record that the format refused, and where it is; the failure's `row` counts in what one poll returned."""

    partition: TopicPartition
    offset: int
    failure: RecordFailure


class SourceBatch(msgspec.Struct, frozen=True):
    """What one poll returned. `records` and `size_bytes` (of values) count all records, unreadable ones included."""

    frame: pl.DataFrame
    records: int
    size_bytes: int
    failures: list[UnreadableRecord]


class KafkaSource:
    """Reads `partitions` (all those of this subtask, maybe none) from `restored`."""

    def __init__(
        self,
        operator: SourceOperator,
        partitions: Sequence[TopicPartition],
        restored: SourcePositions,
        group_id: str,
        wake: Callable[[], None],
        tools: SourceTools = SOURCE_TOOLS,
    ) -> None:
        self._operator = operator
        self._group_id = group_id
        self._tools = tools
        self._wake = wake
        self.batch_bytes_max = BYTES_MAX
        """Of the values of one batch, but for one record."""
        self._decode = _decoder_of(operator)
        self._single = len(operator.topics) == 1
        self._key = _PARTITION if self._single else _topic_and_partition
        self._partitions = self._by_key(partitions)
        self._positions: Positions | None = None
        self._paused: set[TopicPartition] = set()
        self._reader: Reader | None = None
        self._empty_bounded = not partitions and operator.until != "never"
        if partitions:
            self._reader = self._make_reader(partitions, restored)
            self._reader.start()
        else:
            self._positions = Positions(operator.name, {})

    def _make_reader(self, partitions: Sequence[TopicPartition], restored: SourcePositions) -> Reader:
        return Reader(self._operator, partitions, restored, self._group_id, self._wake, self._tools)

    @property
    def ready(self) -> bool:
        """Whether the positions are known; until then nothing is read. Raises SourceFailed, SourceUnavailable."""
        if self._positions is None and self._reader is not None:
            self._positions = self._reader.initial()
        return self._positions is not None

    def wait_ready(self, seconds: float) -> None:
        """Block until `ready`. Raises SourceFailed, and SourceUnavailable when the time is over."""
        if self._positions is None and self._reader is not None:
            self._positions = self._reader.wait_initial(seconds)

    def positions(self) -> SourcePositions:
        """Where to continue behind everything that `poll` has returned. Only when `ready`."""
        if self._positions is None:
            raise RuntimeError(f"source {self._operator.name}: positions were asked for before they are known")
        return self._positions.snapshot()

    def add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these, too, from their first offset; `positions` has them at once. Only when `ready`, and unbounded."""
        if self._positions is None:
            raise RuntimeError(f"source {self._operator.name}: partitions were added before the first positions")
        self._positions.add(partitions)
        self._partitions |= self._by_key(partitions)
        if self._reader is None:
            self._reader = self._make_reader((), SourcePositions(self._operator.name, ()))
            self._reader.start()
        self._reader.add(partitions)

    @property
    def finished(self) -> bool:
        """A bounded read has returned everything; a subtask without partitions has nothing to wait for."""
        return self._empty_bounded or (self._positions is not None and self._positions.finished)

    def poll(self, rows_max: int) -> SourceBatch | None:
        """The next batch of at most so many records, None when nothing waits.

        Raises SourceFailed, SourceUnavailable.
        """
        if self._reader is None or not self.ready or self.finished:
            return None
        pending = self._reader.take(rows_max, self.batch_bytes_max)
        if pending is None:
            return None
        assert self._positions is not None
        batch = self._batch(pending, self._positions)
        if self._positions.bounded:
            self._pause_finished(self._reader, self._positions)
        return batch

    def close(self) -> None:
        """End the reading thread within a bounded time."""
        if self._reader is not None:
            self._reader.close(_CLOSE_SECONDS)

    def _batch(self, pending: Pending, positions: Positions) -> SourceBatch | None:
        messages, size_bytes = pending.messages, pending.size_bytes
        origins, offsets = list(map(self._key, messages)), list(map(_OFFSET, messages))
        # Inside a partition records come in offset order: the last one counts.
        behind = {self._partitions[key]: last + 1 for key, last in dict(zip(origins, offsets, strict=True)).items()}
        if positions.crosses_end(behind):
            messages = [m for m in messages if positions.within(self._part(m), _OFFSET(m))]
            origins, offsets = list(map(self._key, messages)), list(map(_OFFSET, messages))
            size_bytes = sum(map(len, messages))
        positions.move(behind)
        positions.move(pending.ends)
        if not messages:
            return None
        frame, bad = _decode_each(self._decode, messages)
        numbers = origins if self._single else list(map(ck.Message.partition, messages))
        frame = _with_provenance(frame, numbers, offsets, bad)
        failures = [UnreadableRecord(self._part(messages[f.row]), offsets[f.row], f) for f in bad]
        return SourceBatch(frame, len(messages), size_bytes, failures)

    def _by_key(self, partitions: Sequence[TopicPartition]) -> dict[Hashable, TopicPartition]:
        return {part.partition if self._single else (part.topic, part.partition): part for part in partitions}

    def _part(self, message: ck.Message) -> TopicPartition:
        return self._partitions[self._key(message)]

    def _pause_finished(self, reader: Reader, positions: Positions) -> None:
        reached = positions.ended - self._paused
        if reached:
            self._paused |= reached
            reader.pause(sorted(reached))


Decode = Callable[[list[ck.Message]], tuple[pl.DataFrame, list[RecordFailure]]]


def _decode_each(decode: Decode, messages: list[ck.Message]) -> tuple[pl.DataFrame, list[RecordFailure]]:
    """The good rows; a record that makes the decoder raise is bad like the others."""
    parts, raising = evaluate_rows(len(messages), lambda start, end: decode(messages[start:end]))
    if not raising and len(parts) == 1:
        return parts[0][1]
    failures = gather_failures(starmap(internal_failure, raising), ((start, found) for start, (_, found) in parts))
    frames = [frame for _, (frame, _) in parts] or [decode([])[0]]
    return pl.concat(frames), failures


def _decoder_of(operator: SourceOperator) -> Decode:
    if operator.format == "json":
        decoder = JsonDecoder(operator.schema, operator.output)
        return lambda messages: decoder.decode(list(map(ck.Message.value, messages)))
    if operator.format == "raw":
        names = [name for name, _ in operator.output]
        return lambda messages: _raw_rows(messages, names)
    raise ValueError(f"source {operator.name}: unknown format {operator.format!r}")


def _topic_and_partition(message: ck.Message) -> Hashable:
    return message.topic(), message.partition()


def _raw_rows(messages: list[ck.Message], names: Sequence[str]) -> tuple[pl.DataFrame, list[RecordFailure]]:
    """Kafka takes any timestamp, and producers that mean other units than milliseconds write years behind 9999."""
    if "timestamp" not in names:
        return _raw_frame(messages, names), []
    outside = [
        RecordFailure(
            row, FailureKind.OUT_OF_RANGE, f"the record's timestamp is {instant_us // 1000} ms, after the year 9999"
        )
        for row, instant_us in enumerate(map(_instant_us, messages))
        if instant_us is not None and not FIRST_MOMENT <= instant_us <= LAST_MOMENT
    ]
    if outside:
        rows = {failure.row for failure in outside}
        messages = [message for row, message in enumerate(messages) if row not in rows]
    return _raw_frame(messages, names), outside


def _raw_frame(messages: list[ck.Message], names: Sequence[str]) -> pl.DataFrame:
    kinds = dict(RAW_SCHEMA)
    columns = []
    for name in names:
        values = [_instant_us(m) for m in messages] if name == "timestamp" else [getattr(m, name)() for m in messages]
        columns.append(pl.Series(name, values, dtype=polars_type(kinds[name])))
    return pl.DataFrame(columns) if columns else pl.DataFrame(height=len(messages))


def _instant_us(message: ck.Message) -> int | None:
    kind, instant_ms = message.timestamp()
    return None if kind == ck.TIMESTAMP_NOT_AVAILABLE else instant_ms * 1000


def _with_provenance(
    frame: pl.DataFrame, partitions: list[Any], offsets: list[int], bad: list[RecordFailure]
) -> pl.DataFrame:
    """Add `__partition` and `__offset` of the good records."""
    if bad:
        rows = {failure.row for failure in bad}
        partitions = [value for row, value in enumerate(partitions) if row not in rows]
        offsets = [value for row, value in enumerate(offsets) if row not in rows]
    return frame.hstack(
        [pl.Series("__partition", partitions, dtype=pl.Int32), pl.Series("__offset", offsets, dtype=pl.Int64)]
    )
