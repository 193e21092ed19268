"""How far every source partition is, in offsets and in event time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from tidegate.daemon.latency import ReadPartition
from tidegate.ids import ClusterName, OperatorName, TopicPartition

LINES_MAX: Final = 10_000


class PartitionRead(NamedTuple):
    """A partition as a slot reports it."""

    source: OperatorName
    partition: TopicPartition
    slot: int
    offset: int
    watermark_ms: int | None
    idle: bool


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
    reads: Iterable[PartitionRead],
    holders: Mapping[OperatorName, str],
    cluster_of: Callable[[OperatorName], ClusterName],
    end_of: Callable[[ReadPartition], int | None],
) -> tuple[PartitionStatus, ...]:
    """Returns the status of partitions, by source, topic and number. `holders` names the partition that each source
    waits for.
    """
    found = []
    for one in islice(reads, LINES_MAX):
        cluster, part = cluster_of(one.source), one.partition
        end = end_of((cluster, part))
        found.append(
            PartitionStatus(
                source=one.source,
                cluster=cluster,
                topic=part.topic,
                partition=part.partition,
                slot=one.slot,
                offset=one.offset,
                end_offset=end,
                lag_records=None if end is None else max(0, end - one.offset),
                watermark_ms=one.watermark_ms,
                idle=one.idle,
                holds_back=holders.get(one.source) == str(part),
            )
        )
    return tuple(sorted(found, key=attrgetter("source", "topic", "partition")))
