"""Which subtask has which key groups and which source partitions. Pure arithmetic, the same on every machine.

A key group, 0 .. max_parallelism - 1, is the unit in which keyed state moves between subtasks. Subtasks get contiguous
ranges of them by Flink's formulas (KeyGroupRangeAssignment), so that a change of the parallelism moves ranges, not
single groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegate.ids import SlotIndex, TopicPartition


def key_group_range(slot: SlotIndex, parallelism: int, max_parallelism: int) -> range:
    """The key groups of a subtask. Raises ValueError unless 0 <= slot < parallelism <= max_parallelism."""
    if not 1 <= parallelism <= max_parallelism:
        raise ValueError(f"parallelism {parallelism} is not within 1 .. {max_parallelism}")
    if not 0 <= slot < parallelism:
        raise ValueError(f"slot {slot} is not within 0 .. {parallelism - 1}")
    first = (slot * max_parallelism + parallelism - 1) // parallelism
    last = ((slot + 1) * max_parallelism - 1) // parallelism
    return range(first, last + 1)


def overlap(one: range, other: range) -> bool:
    """Whether some key group is in both."""
    return max(one.start, other.start) < min(one.stop, other.stop)


def assign_partitions(partitions: Iterable[TopicPartition], parallelism: int) -> tuple[tuple[TopicPartition, ...], ...]:
    """Partitions per slot: sorted by topic and number, dealt out in turn, so that no slot has two more than another.

    Depends on the set of partitions alone, not on their order. Positions are re-distributed at every restore, so the
    assignment need not survive a change of the set.
    """
    if parallelism < 1:
        raise ValueError(f"parallelism {parallelism} is below 1")
    ordered = sorted(set(partitions))
    return tuple(tuple(ordered[slot::parallelism]) for slot in range(parallelism))


def assign_added(
    current: Sequence[Sequence[TopicPartition]], found: Iterable[TopicPartition]
) -> tuple[tuple[TopicPartition, ...], ...]:
    """What each slot gets in addition: those of `found` that nobody has, in order, each to the slot with the fewest.

    Of equally loaded slots the first one is taken. Nothing is taken away from a slot: it may be reading it.
    """
    known = {partition for partitions in current for partition in partitions}
    added: list[list[TopicPartition]] = [[] for _ in current]
    for partition in sorted(set(found) - known):
        slot = min(range(len(current)), key=lambda index: len(current[index]) + len(added[index]))
        added[slot].append(partition)
    return tuple(map(tuple, added))
