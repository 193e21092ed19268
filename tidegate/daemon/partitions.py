"""How far every source partition is, in offsets and in event time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from tidegate.coordinator.types import SourcePositions
from tidegate.daemon.latency import ReadPartition
from tidegate.ids import ClusterName, OperatorName, TopicPartition

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
