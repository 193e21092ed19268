"""One partition: batches, control markers, the leader's producer state, and what each reader may see. Pure.

The rules for sequences and epochs are those of Kafka's ProducerStateManager: a repeated batch is recognised among the
last five, and a producer that the leader does not know may begin with any sequence (KAFKA-15591, ADR 3).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from tidegate.ids import NO_PRODUCER, ProducerId
from tidegate.kafka.batches import BatchHeader
from tidegate.simulation.model_broker.codes import Code, RequestRefused

REMEMBERED_BATCHES: Final = 5
NO_SEQUENCE: Final = -1
RECORD_OVERHEAD_BYTES: Final = 20


class Record(msgspec.Struct, frozen=True):
    """One data record."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size_bytes(self) -> int:
        """Approximate size in a batch."""
        return len(self.key or b"") + len(self.value or b"") + RECORD_OVERHEAD_BYTES


class Stamp(msgspec.Struct, frozen=True):
    """The producer of a batch, and its sequence."""

    producer_id: int
    epoch: int
    base_sequence: int
    transactional: bool


class ProducerEntry(msgspec.Struct):
    """The leader's state of a producer id."""

    epoch: int
    last_sequence: int = NO_SEQUENCE
    recent: tuple[tuple[int, int], ...] = ()
    """First and last sequences of the newest batches."""
    open_since: int | None = None
    """First offset of the open transaction."""
    coordinator_epoch: int = -1
    """Coordinator epoch of the last marker; -1 without one."""


class FetchedBatches(msgspec.Struct, frozen=True):
    """The answer to a fetch: records with their offsets, and where to continue (after markers and aborted records)."""

    records: list[tuple[int, Record]]
    next_offset: int


class _Batch(msgspec.Struct, frozen=True):
    header: BatchHeader
    records: tuple[Record, ...]
    marked_at_ms: int = 0


class PartitionLog:
    """The log of one partition at its leader. Everything appended is replicated at once."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self.producers: dict[int, ProducerEntry] = {}
        self._batches: list[_Batch] = []
        self._bases: list[int] = []
        self._aborted: dict[int, list[tuple[int, int]]] = defaultdict(list)

    @property
    def stable_offset(self) -> int:
        """The end for read-committed readers: the first offset of the oldest open transaction."""
        starts = [entry.open_since for entry in self.producers.values() if entry.open_since is not None]
        return max(self.start_offset, min(starts, default=self.end_offset))

    def append(self, stamp: Stamp | None, records: Sequence[Record]) -> int:
        """Appends a batch and returns its base offset.

        Raises RequestRefused (DUPLICATE_SEQUENCE_NUMBER: it is already there).
        """
        header = self._header(stamp, len(records))
        if stamp is not None:
            entry = self._check(stamp, len(records))
            entry.last_sequence = stamp.base_sequence + len(records) - 1
            entry.recent = (*entry.recent, (stamp.base_sequence, entry.last_sequence))[-REMEMBERED_BATCHES:]
            if stamp.transactional and entry.open_since is None:
                entry.open_since = self.end_offset
        self._add(_Batch(header, tuple(records)))
        return header.base_offset

    def append_marker(
        self, producer_id: int, epoch: int, commits: bool, coordinator_epoch: int = 0, now_ms: int = 0
    ) -> None:
        """Ends the transaction of a producer id in this partition.

        An epoch newer than that of the data fences the older one.
        """
        entry = self.producers.setdefault(producer_id, ProducerEntry(epoch))
        if entry.epoch != epoch:
            entry.epoch, entry.last_sequence, entry.recent = epoch, NO_SEQUENCE, ()
        if entry.open_since is not None and not commits:
            self._aborted[producer_id].append((entry.open_since, self.end_offset))
        entry.open_since, entry.coordinator_epoch = None, coordinator_epoch
        offset = self.end_offset
        self._add(
            _Batch(
                BatchHeader(offset, offset, ProducerId(producer_id, epoch), NO_SEQUENCE, 1, True, commits), (), now_ms
            )
        )

    def delete_before(self, offset: int) -> None:
        """Moves the start of the log to `offset`, for retention or a deletion of records."""
        self.start_offset = max(self.start_offset, min(offset, self.end_offset))

    def forget_producers(self) -> None:
        """Forgets producers without an open transaction."""
        self.producers = {known: entry for known, entry in self.producers.items() if entry.open_since is not None}

    def offset_at(self, at_ms: int, *, committed: bool) -> int | None:
        """Returns the offset of the first record that is not older, including aborted records and markers."""
        end = self.stable_offset if committed else self.end_offset
        for batch in self._from(self.start_offset):
            times_ms = [record.timestamp_ms for record in batch.records] or [batch.marked_at_ms]
            for offset, time_ms in enumerate(times_ms, batch.header.base_offset):
                if time_ms >= at_ms and self.start_offset <= offset < end:
                    return offset
        return None

    def headers(self, offset: int) -> Iterator[BatchHeader]:
        """Yields every batch that ends at or after `offset`. Raises RequestRefused."""
        for batch in self._from(offset):
            yield batch.header

    def read(self, offset: int, *, committed: bool, limit: int) -> FetchedBatches:
        """Reads up to about `limit` records from `offset` on (whole batches). Raises RequestRefused."""
        end = self.stable_offset if committed else self.end_offset
        found: list[tuple[int, Record]] = []
        for batch in self._from(offset):
            header = batch.header
            if header.base_offset >= end or len(found) >= limit:
                break
            if header.commits is None and not (committed and self._is_aborted(header)):
                first = header.base_offset
                found += [(first + i, record) for i, record in enumerate(batch.records) if first + i >= offset]
            offset = max(offset, header.last_offset + 1)
        return FetchedBatches(found, offset)

    def _from(self, offset: int) -> Iterator[_Batch]:
        if not self.start_offset <= offset <= self.end_offset:
            raise RequestRefused(Code.OFFSET_OUT_OF_RANGE)
        for index in range(max(0, bisect_right(self._bases, offset) - 1), len(self._batches)):
            if self._batches[index].header.last_offset >= offset:
                yield self._batches[index]

    def _add(self, batch: _Batch) -> None:
        self._batches.append(batch)
        self._bases.append(batch.header.base_offset)
        self.end_offset = batch.header.last_offset + 1

    def _header(self, stamp: Stamp | None, records: int) -> BatchHeader:
        last = self.end_offset + records - 1
        if stamp is None:
            return BatchHeader(self.end_offset, last, NO_PRODUCER, NO_SEQUENCE, records, False, None)
        owner = ProducerId(stamp.producer_id, stamp.epoch)
        return BatchHeader(self.end_offset, last, owner, stamp.base_sequence, records, stamp.transactional, None)

    def _check(self, stamp: Stamp, records: int) -> ProducerEntry:
        """Returns the producer entry that a batch advances, if it may be appended. Raises RequestRefused."""
        entry = self.producers.get(stamp.producer_id)
        if entry is None:
            self.producers[stamp.producer_id] = entry = ProducerEntry(stamp.epoch)
            return entry  # any first sequence is accepted: the trap of ADR 3
        if stamp.epoch < entry.epoch:
            raise RequestRefused(Code.INVALID_PRODUCER_EPOCH)
        if stamp.epoch > entry.epoch:
            if stamp.base_sequence != 0:
                raise RequestRefused(Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
            entry.epoch, entry.last_sequence, entry.recent = stamp.epoch, NO_SEQUENCE, ()
            return entry
        if (stamp.base_sequence, stamp.base_sequence + records - 1) in entry.recent:
            raise RequestRefused(Code.DUPLICATE_SEQUENCE_NUMBER)
        if stamp.base_sequence != entry.last_sequence + 1:
            raise RequestRefused(Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
        return entry

    def _is_aborted(self, header: BatchHeader) -> bool:
        if not header.transactional:
            return False
        return any(first <= header.base_offset < marker for first, marker in self._aborted[header.producer.id])
