"""How far the sources are: per partition, in records and seconds of lag, and in latency from record to commit. Pure.

Once a second, slots report the newest record that they have read of each partition (`sources/kafka.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from tidegate.coordinator.recovery import Offsets, merge_offsets
from tidegate.coordinator.types import SourcePositions
from tidegate.ids import MAIN_CLUSTER, ClusterName, OperatorName, TopicPartition

Clusters = Mapping[OperatorName, ClusterName]
"""Source or sink -> its cluster."""
NO_CLUSTERS: Final[Clusters] = {}
ReadPartition = tuple[ClusterName, TopicPartition]
"""A partition of a cluster: topics of several clusters may have the same name."""

SAMPLES_MAX: Final = 64
"""Samples per partition; beyond that, every second one is dropped."""
COMMITS_MAX: Final = 64
"""Commits remembered per partition, because a report comes a second late."""


class RecordTimes:
    """The record times of one daemon. Seconds are of a monotonic clock, milliseconds of the wall clock.

    `clusters` has the cluster of every source; one that is missing is in `kafka`.
    """

    def __init__(self, clusters: Clusters = NO_CLUSTERS) -> None:
        self._clusters = clusters
        self._waiting: dict[ReadPartition, list[tuple[int, int]]] = {}
        """Offsets and timestamps, in order, of records that no checkpoint has covered yet."""
        self._read: dict[ReadPartition, tuple[int, int]] = {}
        self._covered: dict[ReadPartition, deque[tuple[int, int]]] = {}
        """Positions and times of the last commits that advanced a partition, because reports arrive after commits."""
        self._without_lag: dict[ReadPartition, float] = {}

    def cluster_of(self, source: OperatorName) -> ClusterName:
        """Returns the cluster of a source."""
        return self._clusters.get(source, MAIN_CLUSTER)

    def begin_attempt(self) -> None:
        """Forgets records that no checkpoint covers, because they are read again."""
        self._waiting.clear()
        self._read.clear()
        self._covered.clear()

    def read(
        self, newest: Iterable[tuple[OperatorName, TopicPartition, int, int]]
    ) -> Iterator[tuple[ReadPartition, float]]:
        """Takes records that a slot has read: source, partition, offset, timestamp.

        Yields like `committed` if already committed.
        """
        for source, partition, offset, at_ms in newest:
            part = (self._clusters.get(source, MAIN_CLUSTER), partition)
            if offset <= self._read.get(part, (-1, 0))[0]:
                continue
            self._read[part] = (offset, at_ms)
            commits = (ended_ms for after, ended_ms in self._covered.get(part, ()) if offset < after)
            ended_ms = next(commits, None)
            if ended_ms is not None:
                yield part, max(0.0, (ended_ms - at_ms) / 1000)
                continue
            waiting = self._waiting.setdefault(part, [])
            if len(waiting) >= SAMPLES_MAX:
                del waiting[1::2]
            waiting.append((offset, at_ms))

    def merge_in(self, cluster: ClusterName, positions: Iterable[SourcePositions]) -> Offsets:
        """Returns the positions of the sources in a cluster, as in `merge_offsets`."""
        return merge_offsets(tuple(one for one in positions if self._clusters.get(one.source, MAIN_CLUSTER) == cluster))

    def lag_s(self, part: ReadPartition, records: int, now_s: float, now_ms: int) -> float | None:
        """Returns how old the oldest unread record may be; None if unknown.

        It arrived after the newest record that was read, and after the last moment without lag; the later of the two
        counts.
        """
        if records == 0:
            self._without_lag[part] = now_s
            return 0.0
        since = [now_s - self._without_lag[part]] if part in self._without_lag else []
        if part in self._read:
            since.append((now_ms - self._read[part][1]) / 1000)
        return max(0.0, min(since)) if since else None

    def committed(self, positions: Iterable[SourcePositions], now_ms: int) -> Iterator[tuple[ReadPartition, float]]:
        """Takes a committed checkpoint; yields the age of the records before its positions, in seconds."""
        for one in positions:
            cluster = self._clusters.get(one.source, MAIN_CLUSTER)
            for partition, after in one.next_offsets:
                part = (cluster, partition)
                commits = self._covered.setdefault(part, deque(maxlen=COMMITS_MAX))
                if not commits or commits[-1][0] < after:
                    commits.append((after, now_ms))
                waiting = self._waiting.get(part, [])
                covered = [at_ms for offset, at_ms in waiting if offset < after]
                if covered:
                    del waiting[: len(covered)]
                for at_ms in covered:
                    yield part, max(0.0, (now_ms - at_ms) / 1000)


LINES_MAX: Final = 10_000


class PartitionReport(NamedTuple):
    """What a slot reads, as in its last report."""

    slot: int
    positions: tuple[SourcePositions, ...]
    idle: Mapping[OperatorName, tuple[TopicPartition, ...]]


class PartitionStatus(msgspec.Struct, frozen=True):
    """A partition that a source reads in the current attempt."""

    source: OperatorName
    cluster: ClusterName
    topic: str
    partition: int
    slot: int
    """The slot that reads it."""
    offset: int
    """The next offset to read."""
    end_offset: int | None
    """How far a reader of committed records can read, measured every 2 s; null before that."""
    lag_records: int | None
    """How many offsets are between the two."""
    watermark_ms: int | None
    """Its watermark, ms since 1970; null without event time, or before its first record."""
    idle: bool
    """Whether the watermark of the source does not wait for it."""
    holds_back: bool
    """Whether the watermark of the source waits for this partition more than for the others."""


class PartitionsAnswer(msgspec.Struct, frozen=True):
    """The partitions of all sources, at most LINES_MAX."""

    partitions: tuple[PartitionStatus, ...]


def derive_partitions(
    reports: Iterable[PartitionReport],
    holders: Mapping[OperatorName, str],
    cluster_of: Callable[[OperatorName], ClusterName],
    ends: Mapping[ReadPartition, int],
) -> tuple[PartitionStatus, ...]:
    """Returns the status of partitions, by source, topic and number. `holders` names the partition that each source
    waits for.
    """
    found = chain.from_iterable(_read(report, holders, cluster_of, ends) for report in reports)
    return tuple(sorted(islice(found, LINES_MAX), key=attrgetter("source", "topic", "partition")))


def _read(
    report: PartitionReport,
    holders: Mapping[OperatorName, str],
    cluster_of: Callable[[OperatorName], ClusterName],
    ends: Mapping[ReadPartition, int],
) -> Iterator[PartitionStatus]:
    for one in report.positions:
        cluster, holder = cluster_of(one.source), holders.get(one.source)
        idle, marks = frozenset(report.idle.get(one.source, ())), dict(one.watermarks)
        for part, offset in one.next_offsets:
            end = ends.get((cluster, part))
            yield PartitionStatus(
                source=one.source,
                cluster=cluster,
                topic=part.topic,
                partition=part.partition,
                slot=report.slot,
                offset=offset,
                end_offset=end,
                lag_records=None if end is None else max(0, end - offset),
                watermark_ms=marks.get(part),
                idle=part in idle,
                holds_back=holder == str(part),
            )
