"""A Kafka source of one subtask: decoded batches for the loop, and the positions after them (F04, F08).

All methods are for the loop's thread and return at once, except `wait_ready` and `close`. `reader.py` does the reading;
`positions.py` defines the meaning of offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import starmap
from typing import Final

import msgspec
import polars as pl

from tidegate.coordinator.types import SourcePositions
from tidegate.formats.bisection import evaluate_rows, internal_failure
from tidegate.formats.contract import Decoded, Decoder, WaitingForSchema
from tidegate.formats.dead_letters.frames import RawRecord
from tidegate.formats.failures import BadRecordPolicy, RecordFailure, gather_failures
from tidegate.formats.row_kinds import BEFORE, ROW_KIND, UPDATE_AFTER, UPDATE_BEFORE
from tidegate.formats.schemas import Schemas, known_schemas
from tidegate.ids import TopicPartition
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.lateness import measure_behind
from tidegate.sources.event_times import EventTimes, Rows, choose
from tidegate.sources.messages import Records
from tidegate.sources.positions import Due, Positions
from tidegate.sources.reader import ConsumerThread, Pending
from tidegate.sources.record_parts import PartsDecoder, derive_skipped_values, open_decoder
from tidegate.sources.tools import SOURCE_TOOLS, SourceTools
from tidegate.sources.waiting_records import HeldRecords, find_last_offsets
from tidegate.sources.watermarks import SourceWatermarks
from tidegate.task.elements import BYTES_MAX

_LOG = logging.getLogger("tidegate.sources")

_CLOSE_SECONDS = 10.0
NEWEST_LOOK_S: Final = 1.0
"""Seconds between two checks of the time of a partition's newest record.

Examining every record would cost as much as decoding it in some formats.
"""


class UnreadableRecord(msgspec.Struct, frozen=True):
    """A record that the format rejected, and its place; the failure's `row` is its index in the records of one poll."""

    partition: TopicPartition
    offset: int
    failure: RecordFailure
    raw: RawRecord | None = None
    """Set if a dead letter is written about it."""


class SourceBatch(msgspec.Struct, frozen=True):
    """The result of one poll. `records` and `record_bytes` count all records, including unreadable and skipped ones."""

    frame: pl.DataFrame
    records: int
    record_bytes: int
    """Bytes of keys, values and headers."""
    failures: list[UnreadableRecord]
    left_out: int = 0
    """Tombstones and header lines that the source omits."""


class KafkaSource:
    """The source of one subtask: reads `partitions` (all those of the subtask, possibly none) from `restored`."""

    def __init__(
        self,
        operator: SourceOperator,
        partitions: Sequence[TopicPartition],
        restored: SourcePositions,
        group_id: str,
        wake: Callable[[], None],
        tools: SourceTools = SOURCE_TOOLS,
        schemas: Schemas | None = None,
    ) -> None:
        """`schemas` are the known schemas of the registry; None for those named in the file."""
        self._operator = operator
        self._group_id = group_id
        self._tools = tools
        self._wake = wake
        self.batch_bytes_max = BYTES_MAX
        """Limit for the values of one batch, except that one record is always taken."""
        self._decoder = open_decoder(operator, known_schemas(operator.options) if schemas is None else schemas)
        event_time, bounded = operator.timing, operator.until != "never"
        self._times = None if event_time is None else EventTimes(event_time, operator)
        self._delay_ms = 0 if event_time is None else event_time.delay_ms
        self.watermarks: SourceWatermarks | None = None
        """None if no downstream operator needs event time."""
        if event_time is not None and operator.carries_time:
            restored_ms = _watermarks_by(event_time.text, restored)
            self.watermarks = SourceWatermarks(event_time, partitions, restored_ms, bounded=bounded)
        self._held = HeldRecords(operator.name, tools.clock.monotonic)
        self.newest = NewestRecords(tools.clock.monotonic)
        self._splits_updates = operator.splits_rows()
        """Whether updates become two rows each."""
        self._skipped = derive_skipped_values(operator)
        self._positions: Positions | None = None
        self._paused: set[TopicPartition] = set()
        self._reader: ConsumerThread | None = None
        self._empty_bounded = not partitions and bounded
        if partitions:
            self._reader = self._make_reader(partitions, restored)
            self._reader.start()
        else:
            self._positions = Positions(operator.name, {})

    def _make_reader(self, partitions: Sequence[TopicPartition], restored: SourcePositions) -> ConsumerThread:
        return ConsumerThread(self._operator, partitions, restored, self._group_id, self._wake, self._tools)

    @property
    def ready(self) -> bool:
        """Whether the positions are known; until then nothing is read. Raises SourceFailed, SourceUnavailable."""
        if self._positions is None and self._reader is not None:
            self._begin(self._reader.initial())
        return self._positions is not None

    def wait_ready(self, seconds: float) -> None:
        """Blocks until `ready`. Raises SourceFailed, and SourceUnavailable on a timeout."""
        if self._positions is None and self._reader is not None:
            self._begin(self._reader.wait_initial(seconds))

    def _begin(self, positions: Positions | None) -> None:
        self._positions = positions
        if positions is not None and self._reader is not None:
            self._note_ended(self._reader, positions)

    def positions(self) -> SourcePositions:
        """Returns where to continue after everything that `take` has returned. Only when `ready`."""
        if self._positions is None:
            raise RuntimeError(f"source {self._operator.name}: positions were requested before they were known")
        found = self._positions.snapshot()
        if self.watermarks is None:
            return found
        event_time = self.watermarks.event_time.text
        return msgspec.structs.replace(found, watermarks=self.watermarks.snapshot(), event_time=event_time)

    @property
    def reached(self) -> dict[TopicPartition, int]:
        """Next offset of each partition after everything that `take` has returned; empty until known. Safe from any
        thread.
        """
        positions = self._positions
        return {} if positions is None else dict(positions.next_offsets)

    def add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """Also reads these partitions, from their first offset, and includes them in `positions` at once.

        Only when `ready`, and only on an unbounded read.
        """
        if self._positions is None:
            raise RuntimeError(f"source {self._operator.name}: partitions were added before the first positions")
        self._positions.add(partitions)
        if self.watermarks is not None:
            self.watermarks.on_added(partitions)
        if self._reader is None:
            self._reader = self._make_reader((), SourcePositions(self._operator.name, ()))
            self._reader.start()
        self._reader.add(partitions)

    @property
    def before_1971(self) -> int:
        """Rows so far whose event time is before 1971."""
        return 0 if self._times is None else self._times.before_1971

    @property
    def finished(self) -> bool:
        """Whether a bounded read has returned everything; a subtask without partitions has nothing to wait for."""
        return self._empty_bounded or (self._positions is not None and self._positions.finished)

    @property
    def has_caught_up(self) -> bool:
        """Whether `take` has returned everything that the topics held at the start, if the plan needs it."""
        return self._positions is not None and self._positions.caught_up

    def take(self, rows_max: int) -> SourceBatch | None:
        """Returns the next batch of at most `rows_max` rows, but at least one record.

        Returns None if there are no records, or all of them wait for schemas. With 0 it takes no record, and only notes
        the known ends before the next record.

        Raises SourceFailed, SourceUnavailable.
        """
        if self._reader is None or not self.ready or self.finished:
            return None
        assert self._positions is not None
        if self._held and rows_max:
            batch = self._take_held(self._reader, self._positions, rows_max)
            if batch is not None:
                return batch
        pending = self._reader.take(self._records_for(rows_max), self.batch_bytes_max)
        if pending is not None and self._held:
            pending = self._held.without_held(pending)
        if not pending:
            return None
        found = self._advance(self._reader, self._positions, pending)
        if not isinstance(found, WaitingForSchema):
            return found
        self._held.hold(pending)
        return self._take_held(self._reader, self._positions, rows_max)

    def release(self) -> bool:
        """Lets the next `take` return records that were read and gather. Returns whether it otherwise would not."""
        return self._reader is not None and self._reader.release()

    def rows_of(self, records: int) -> int:
        """Returns the largest row limit for which no more than `records` records are taken."""
        return records * 2 + 1 if self._splits_updates else records

    def close(self) -> None:
        """Ends the reading thread within a bounded time."""
        if self._reader is not None:
            self._reader.close(_CLOSE_SECONDS)

    def _records_for(self, rows_max: int) -> int:
        """Returns the number of records that make at most this many rows; at least one."""
        return max(1, rows_max // 2) if self._splits_updates and rows_max else rows_max

    def _take_held(self, reader: ConsumerThread, positions: Positions, rows_max: int) -> SourceBatch | None:
        """Takes records of one partition that have waited for a schema."""
        for held in self._held.due():
            first, rest = held.pending.split(self._records_for(rows_max), self.batch_bytes_max)
            batch = self._advance(reader, positions, first)
            if isinstance(batch, WaitingForSchema):
                self._held.wait(held, batch, reader)
                continue
            self._held.advance(held, rest, reader, ended=held.partition in self._paused)
            if batch is not None:
                return batch
        return None

    def _advance(
        self, reader: ConsumerThread, positions: Positions, pending: Pending
    ) -> SourceBatch | WaitingForSchema | None:
        """Processes `pending` as read, unless it waits for a schema."""
        batch = self._decode(pending, positions)
        if not isinstance(batch, WaitingForSchema):
            self._note_ended(reader, positions)
            self._note_caught_up(reader, positions, pending)
        return batch

    def _decode(self, pending: Pending, positions: Positions) -> SourceBatch | WaitingForSchema | None:
        """Decodes a batch and moves the positions past it; a batch that waits counts as unread."""
        last = find_last_offsets(pending.records, positions)
        next_offsets = {part: offset + 1 for part, offset in last.items()}
        messages = pending.records
        if positions.crosses_end(next_offsets):
            messages = _before_end(messages, positions)
        batch = self._decode_records(messages, last) if len(messages) else None
        if isinstance(batch, WaitingForSchema):
            return batch
        self.newest.observe(pending.records)
        positions.move(next_offsets)
        positions.move(pending.ends)
        return batch

    def _decode_records(self, messages: Records, read: Iterable[TopicPartition]) -> SourceBatch | WaitingForSchema:
        """Decodes at least one record. `read` are the partitions of the batch, even if all their records are past the
        end of a bounded read.
        """
        records, record_bytes, skipped = len(messages), messages.record_bytes, self._skipped
        if skipped and not skipped.isdisjoint(messages.values):
            messages = messages.choose([row for row, value in enumerate(messages.values) if value not in skipped])
        decoded = _decode_each(self._decoder, messages)
        if isinstance(decoded, WaitingForSchema):
            return decoded
        frame, found = self._rows(decoded, messages, read)
        lettered = self._operator.bad_records is BadRecordPolicy.DEAD_LETTER
        failures = [
            UnreadableRecord(
                messages.partition_at(one.row),
                messages.offsets[one.row],
                one,
                messages.raw(one.row) if lettered else None,
            )
            for one in found
        ]
        frame = spread_updates(frame) if self._splits_updates else frame
        return SourceBatch(frame, records, record_bytes, failures, records - len(messages))

    def _rows(
        self, decoded: Decoded, messages: Records, read: Iterable[TopicPartition]
    ) -> tuple[pl.DataFrame, Sequence[RecordFailure]]:
        """Returns the good rows with the system columns, and the bad records; advances the watermarks of the partitions
        that were `read`.
        """
        good = _good_rows(decoded, len(messages))
        if self._times is None:
            return self._with_provenance(decoded.frame, messages, good), decoded.failures
        decoded, good, times = self._times.read(decoded, messages, good)
        frame = self._with_provenance(decoded.frame, messages, good)
        if self.watermarks is not None:
            marks = {part: self.watermarks.marks[part] for part in read}
            origins = messages.origins
            own = [marks[part] for part in origins.partitions]
            behind = measure_behind(times, choose(origins.numbers, good), own, self._delay_ms)
            if self.watermarks.event_time.arrival:
                times, behind = times + behind, behind * 0
            frame = frame.hstack([times, behind])
            self.watermarks.on_records(marks | dict(zip(origins.partitions, own, strict=True)))
        return frame, decoded.failures

    def _with_provenance(self, frame: pl.DataFrame, messages: Records, good: Rows) -> pl.DataFrame:
        """Adds the partition and the offset of the good records, and their topic and cluster if these vary."""
        places = [messages.partition_column, messages.offset_column]
        if self._operator.names_topic:
            names = self._operator.topics
            topics = names * len(messages) if len(names) == 1 else messages.topics
            places.append(pl.Series("__tidegate_topic", topics, dtype=pl.String))
        if self._operator.names_cluster:
            clusters = [self._operator.cluster] * len(messages)
            places.append(pl.Series("__tidegate_cluster", clusters, dtype=pl.String))
        return frame.hstack(places if good is None else [column.gather(list(good)) for column in places])

    def _ask_idle(self, watermarks: SourceWatermarks) -> bool:
        """Asks the broker whether idle partitions still are, before a watermark passes them. Returns whether there was
        anything to ask.
        """
        questions = watermarks.take_questions()
        if questions and self._reader is not None and self._positions is not None:
            nexts = self._positions.next_offsets
            self._reader.ask({part: Due(nexts[part], question) for part, question in questions})
        return bool(questions)

    def _note_ended(self, reader: ConsumerThread, positions: Positions) -> None:
        reached = positions.ended - self._paused
        if reached:
            self._paused |= reached
            reader.pause(sorted(reached))
            if self.watermarks is not None:
                self.watermarks.on_end(sorted(reached))

    def _note_caught_up(self, reader: ConsumerThread, positions: Positions, pending: Pending) -> None:
        """Reports caught-up partitions, unless records after an answer or an end have moved the position past it."""
        if self.watermarks is None or not self.watermarks.watches:
            return
        for part, asked in pending.caught_up.items():
            if positions.next_offsets[part] == asked.offset:
                self.watermarks.on_caught_up(part, asked.question)
        for part, at in pending.ends.items():
            if positions.next_offsets[part] != at:
                continue
            question = self.watermarks.question_of(part)
            if question:
                reader.ask({part: Due(at, question)})
            else:
                reader.watch({part: at})


def _watermarks_by(text: str, restored: SourcePositions) -> dict[TopicPartition, int]:
    """Returns the stored watermarks, unless the event time is now read from another field."""
    if restored.watermarks and restored.event_time != text:
        _LOG.warning(
            "source %s: its event time is now %s and was %s: its watermarks start anew",
            restored.source,
            text or "the Kafka timestamp",
            restored.event_time or "the Kafka timestamp",
        )
        return {}
    return dict(restored.watermarks)


def _before_end(messages: Records, positions: Positions) -> Records:
    """Returns the messages of a bounded read that are before the end of their partition."""
    origins = messages.origins
    places = zip(map(origins.partitions.__getitem__, origins.numbers), messages.offsets, strict=True)
    return messages.choose([row for row, (part, at) in enumerate(places) if positions.within(part, at)])


def _decode_each(decoder: Decoder | PartsDecoder, messages: Records) -> Decoded | WaitingForSchema:
    """Decodes the good rows; a record that makes the decoder raise is bad like the others."""
    parts, raising = evaluate_rows(len(messages), lambda start, end: decoder.decode(messages.part(start, end)))
    decoded: list[tuple[int, Decoded]] = []
    for start, part in parts:
        if isinstance(part, WaitingForSchema):
            return part
        decoded.append((start, part))
    if not raising and len(decoded) == 1:
        return decoded[0][1]
    failures = gather_failures(starmap(internal_failure, raising), ((start, part.failures) for start, part in decoded))
    if not decoded:
        return Decoded(_no_rows(decoder, messages), failures)
    return Decoded(pl.concat([part.frame for _, part in decoded]), failures)


def _no_rows(decoder: Decoder | PartsDecoder, messages: Records) -> pl.DataFrame:
    """Returns an empty frame. The decoder has decoded no messages before, so it does not wait."""
    decoded = decoder.decode(messages.part(0, 0))
    assert isinstance(decoded, Decoded)
    return decoded.frame


def _good_rows(decoded: Decoded, messages: int) -> Rows:
    if not decoded.failures:
        return None
    bad = {failure.row for failure in decoded.failures}
    return [row for row in range(messages) if row not in bad]


def spread_updates(frame: pl.DataFrame) -> pl.DataFrame:
    """Splits updates of a table's rows into two rows: the old one, retracted, and the new one.

    Both rows of an update carry the metadata and the system columns of its record.
    """
    old = [name for name in frame.columns if name.startswith(BEFORE)]
    updates = (frame[ROW_KIND] == UPDATE_AFTER).arg_true()
    rest = frame.drop(old)
    if updates.is_empty():
        return rest
    taken = frame[updates]
    before = rest[updates].with_columns(
        pl.lit(UPDATE_BEFORE, pl.Int8).alias(ROW_KIND),
        *(taken[f"{BEFORE}{name}"].alias(name) for name in rest.columns if f"{BEFORE}{name}" in old),
    )
    places = [pl.int_range(frame.height, eager=True) * 2 + 1, updates.cast(pl.Int64) * 2]
    return pl.concat([rest, before])[pl.concat(places).arg_sort()]


class NewestRecords:
    """The time of the newest record read from each partition, for lag in seconds and latency.

    Written by the loop's thread; any thread may copy `found`.
    """

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self.found: dict[TopicPartition, tuple[int, int]] = {}
        """Offset and Kafka timestamp, ms since 1970. Records without a timestamp are omitted."""
        self._elapsed = elapsed
        self._due: dict[TopicPartition, float] = {}

    def observe(self, messages: Records) -> None:
        """Notes the times of a batch that was read, except of partitions checked less than `NEWEST_LOOK_S` ago."""
        now_s, origins = self._elapsed(), messages.origins
        for part, row in zip(origins.partitions, origins.lasts, strict=True):
            if now_s < self._due.get(part, 0.0):
                continue
            self._due[part] = now_s + NEWEST_LOOK_S
            at_ms = messages.part(row, row + 1).timestamps_ms[0]
            if at_ms is not None:
                self.found[part] = (messages.offsets[row], at_ms)
