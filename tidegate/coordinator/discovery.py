"""Changes of topics while an attempt runs: new partitions, a topic that was deleted, or one that was created anew.

Pure. A partition that appears while a source runs is read from offset 0, whatever `start` is, because even its first
record is new. A later attempt that finds it without a position does the same (`recovery.py`), so the result does not
depend on whether a checkpoint completed in between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from tidegate.errors import BEGIN_ANEW, REPLACED_TOPIC, AttemptFailed, PipelineStopped
from tidegate.ids import OperatorName, SlotIndex, TopicPartition
from tidegate.plan.assignment import assign_added

FIRST_OFFSET = 0
"""Starting offset of a partition that was created after its source started."""

MISSING_CHECKS_MAX: Final = 3
"""Consecutive checks without a topic before it counts as gone. A broker that has just started may omit it once."""

Assigned = Mapping[OperatorName, Sequence[Sequence[TopicPartition]]]
"""Source -> slot -> its partitions."""


class TopicReplaced(PipelineStopped):
    """A topic was deleted and created again while the pipeline ran: the old offsets have no meaning in the new one."""

    code = "topic-replaced"


class ClusterReplaced(PipelineStopped):
    """Another Kafka cluster answers at an address while the pipeline runs."""

    code = "cluster-replaced"


class TopicGone(PipelineStopped):
    """A topic was deleted while the pipeline ran."""

    code = "topic-gone"


class TopicFound(AttemptFailed):
    """A source has a new topic. The next attempt reads it, once the journal has its id and its starting offsets."""

    code = "topic-found"


class Addition(msgspec.Struct, frozen=True):
    """Partitions that one slot must also read, from `FIRST_OFFSET`."""

    slot: SlotIndex
    source: OperatorName
    partitions: tuple[TopicPartition, ...]


def decide_same_cluster(before: str, now: str, place: str) -> None:
    """Compares the ids of a cluster; `place` is its address. Raises ClusterReplaced."""
    if now != before:
        raise ClusterReplaced(
            f"another Kafka cluster answers at {place} while the pipeline runs (id {before}, now {now}); positions and "
            f"transactions are not valid there: correct the address and start again, or start with {BEGIN_ANEW}",
            old=before,
            new=now,
        )


def decide_same_topics(before: Mapping[str, str], now: Mapping[str, str], where: str = "") -> None:
    """Checks topic name -> id. Raises TopicReplaced if an id changed; topics that are not reported now are ignored.

    `where` follows the topic in messages: its cluster, if there are several.
    """
    for topic, old in sorted(before.items()):
        new = now.get(topic, old)
        if new != old:
            raise TopicReplaced(
                f"topic {topic}{where} was deleted and created again while the pipeline ran (id {old}, now {new}); its "
                f"offsets start over and the positions of the checkpoint are not valid there. {REPLACED_TOPIC}",
                topic=topic,
                old=old,
                new=new,
            )


def decide_missing(
    wanted: Collection[str], found: Collection[str], before: Mapping[str, int], where: str = ""
) -> dict[str, int]:
    """Returns topic -> consecutive checks that missed it, counting on from `before`. `where` is as above.

    Raises TopicGone at MISSING_CHECKS_MAX.
    """
    missing = {topic: before.get(topic, 0) + 1 for topic in sorted(set(wanted) - set(found))}
    gone = [topic for topic, checks in missing.items() if checks >= MISSING_CHECKS_MAX]
    if gone:
        raise TopicGone(
            f"topic {', '.join(gone)}{where} no longer exists, or may no longer be described: {MISSING_CHECKS_MAX} "
            "checks in a row did not find it. If it exists, grant DESCRIBE. If it was deleted, what the pipeline had "
            f"not read of it, or had written to it, is lost. {REPLACED_TOPIC}",
            topics=gone,
        )
    return missing


def decide_additions(assigned: Assigned, topics: Mapping[OperatorName, Mapping[str, int]]) -> tuple[Addition, ...]:
    """Decides which slots read which new partitions, ordered by source and slot; usually none.

    `topics` is source -> topic -> number of partitions. Sources without an entry in `assigned` are left alone: a
    bounded read ends where its topics ended when it began.
    """
    return tuple(
        Addition(SlotIndex(slot), source, partitions)
        for source, slots in sorted(assigned.items())
        for slot, partitions in enumerate(assign_added(slots, _partitions(topics.get(source, {}))))
        if partitions
    )


def derive_assigned(assigned: Assigned, additions: Sequence[Addition]) -> Assigned:
    """Returns the assignment with the additions in it."""
    after = {source: [tuple(partitions) for partitions in slots] for source, slots in assigned.items()}
    for one in additions:
        after[one.source][one.slot] += one.partitions
    return after


def _partitions(topics: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
