"""Assignment of key groups and source partitions to subtasks. Pure arithmetic, identical on every machine.

A key group, 0 .. max_parallelism - 1, is the unit in which keyed state moves between subtasks. Subtasks own contiguous
ranges of key groups according to Flink's formulas (KeyGroupRangeAssignment), so that a change of the parallelism moves
ranges instead of single groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegate.ids import SlotIndex, TopicPartition


def key_group_range(slot: SlotIndex, parallelism: int, max_parallelism: int) -> range:
    """Returns the key groups of a subtask. Raises ValueError unless 0 <= slot < parallelism <= max_parallelism."""
    if not 1 <= parallelism <= max_parallelism:
        raise ValueError(f"parallelism {parallelism} is not within 1 .. {max_parallelism}")
    if not 0 <= slot < parallelism:
        raise ValueError(f"slot {slot} is not within 0 .. {parallelism - 1}")
    first = (slot * max_parallelism + parallelism - 1) // parallelism
    last = ((slot + 1) * max_parallelism - 1) // parallelism
    return range(first, last + 1)


def overlap(one: range, other: range) -> bool:
    """Tells whether the two ranges share a key group."""
    return max(one.start, other.start) < min(one.stop, other.stop)


def assign_partitions(partitions: Iterable[TopicPartition], parallelism: int) -> tuple[tuple[TopicPartition, ...], ...]:
    """Assigns partitions, sorted by topic and number, to slots round-robin, so that counts differ by at most one.

    The result depends only on the set of partitions, not on their order. Positions are distributed anew at every
    restore, so the assignment need not survive a change of the set.
    """
    if parallelism < 1:
        raise ValueError(f"parallelism {parallelism} is below 1")
    ordered = sorted(set(partitions))
    return tuple(tuple(ordered[slot::parallelism]) for slot in range(parallelism))


def assign_added(
    current: Sequence[Sequence[TopicPartition]], found: Iterable[TopicPartition]
) -> tuple[tuple[TopicPartition, ...], ...]:
    """Assigns those of `found` that no slot has, in order, each to the slot with the fewest; returns the additions.

    Ties go to the lowest slot. No slot loses a partition, because it may be reading it.
    """
    known = {partition for partitions in current for partition in partitions}
    added: list[list[TopicPartition]] = [[] for _ in current]
    for partition in sorted(set(found) - known):
        slot = min(range(len(current)), key=lambda index: len(current[index]) + len(added[index]))
        added[slot].append(partition)
    return tuple(map(tuple, added))
