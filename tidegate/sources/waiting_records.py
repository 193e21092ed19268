"""Records that wait for a schema, by partition, while those of other partitions continue.

Held records were taken from the reader, and precede everything that the reader has from their partition. A waiting
partition is paused at the client, so apart from the held records only those already fetched can arrive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from tidegate.formats.contract import WaitingForSchema
from tidegate.ids import TopicPartition
from tidegate.kafka.errors import SourceUnavailable
from tidegate.sources.messages import OutOfOrder, Records
from tidegate.sources.positions import Positions
from tidegate.sources.reader import ConsumerThread, Pending


def find_last_offsets(messages: Records, positions: Positions) -> dict[TopicPartition, int]:
    """Returns the last offset of each partition.

    Raises SourceUnavailable for a record that is before the position, or not after its predecessor: the position would
    imply that others were read, and its row would overtake theirs. The next attempt reads from a checkpoint.

    Exactly-once depends on it.
    """
    offsets = messages.offsets
    try:
        parts, _, firsts, lasts = messages.origins
    except OutOfOrder as error:
        raise _refuse(messages.partition_at(error.row), offsets[error.row], positions) from error
    for part, first in zip(parts, firsts, strict=True):
        if offsets[first] < positions.next_offsets[part]:
            raise _refuse(part, offsets[first], positions)
    return {part: offsets[last] for part, last in zip(parts, lasts, strict=True)}


def _refuse(part: TopicPartition, offset: int, positions: Positions) -> SourceUnavailable:
    return SourceUnavailable(
        f"source {positions.source}: the client gave offset {offset} of {part} twice, or after a higher one; "
        "the attempt ends, and the next one reads from the last checkpoint",
        partition=str(part),
        offset=offset,
        position=positions.next_offsets[part],
    )


_LOG = logging.getLogger("tidegate.sources")

AGAIN_S: Final = 0.05
"""Seconds after which records are offered to their decoder again."""


class HeldBatch:
    """The held records of one partition."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.pending = Pending()
        self.due_s = 0.0
        self.since_s: float | None = None
        """When it began to wait; None if it may not have to."""


class HeldRecords:
    """The held records of one source, named `source`. `elapsed` returns monotonic seconds."""

    def __init__(self, source: str, elapsed: Callable[[], float]) -> None:
        self._source = source
        self._elapsed = elapsed
        self._held: dict[TopicPartition, HeldBatch] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def hold(self, pending: Pending) -> None:
        """Holds all records by partition: some of them wait."""
        self._keep(pending, only_held=False)

    def without_held(self, pending: Pending) -> Pending:
        """Returns the records of partitions that do not wait; holds the rest behind the records already held."""
        return self._keep(pending, only_held=True)

    def _keep(self, pending: Pending, *, only_held: bool) -> Pending:
        free, records = Pending(), pending.records
        rows_of: dict[TopicPartition, list[int]] = {}
        for row, part in enumerate(map(TopicPartition, records.topics, records.partitions)):
            rows_of.setdefault(part, []).append(row)
        others: list[int] = []
        for part, rows in rows_of.items():
            target = self._target(part, free, only_held=only_held)
            if target is free:
                others += rows
            else:
                _add(target, records.choose(rows))
        _add(free, records.choose(sorted(others)))
        for part, offset in pending.ends.items():
            self._target(part, free, only_held=only_held).ends[part] = offset
        for part, asked in pending.caught_up.items():
            if part not in self._held:  # a waiting partition is not caught up
                self._target(part, free, only_held=only_held).caught_up[part] = asked
        return free

    def _target(self, part: TopicPartition, free: Pending, *, only_held: bool) -> Pending:
        if only_held and part not in self._held:
            return free
        return self._held.setdefault(part, HeldBatch(part)).pending

    def due(self) -> Iterator[HeldBatch]:
        """Yields the batches to offer to the decoder now."""
        now = self._elapsed()
        yield from [one for one in self._held.values() if one.due_s <= now]

    def wait(self, held: HeldBatch, waiting: WaitingForSchema, reader: ConsumerThread) -> None:
        """Marks a batch as waiting, and pauses its partition the first time."""
        now = self._elapsed()
        held.due_s = now + AGAIN_S
        if held.since_s is None:
            held.since_s = now
            reader.pause([held.partition])
            _LOG.info("source %s: records of %s wait for %s", self._source, held.partition, waiting.wanted)

    def advance(self, held: HeldBatch, rest: Pending, reader: ConsumerThread, *, ended: bool = False) -> None:
        """Records that some of it was decoded; `rest` comes next. `ended`: no more of the partition is wanted."""
        if rest:
            held.pending = rest
            return
        del self._held[held.partition]
        if held.since_s is not None:
            if not ended:
                reader.resume([held.partition])
            seconds = self._elapsed() - held.since_s
            _LOG.info("source %s: records of %s continue, after %.1f s", self._source, held.partition, seconds)


def _add(pending: Pending, records: Records) -> None:
    pending.records = pending.records.joined(records)
    pending.size_bytes += records.size_bytes
