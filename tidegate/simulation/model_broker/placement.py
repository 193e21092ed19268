"""Which node leads a partition and which one coordinates an id, now and according to slightly older metadata. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from zlib import crc32

from tidegate.ids import TopicPartition

NODES: Final = (1, 2, 3)
NOBODY: Final = -1

_ALWAYS: Final = -1
"""Before every time."""


class Placement:
    """Leaders and coordinators over time in ms. Every node knows the present; what clients learn is `lag_ms` old."""

    def __init__(self) -> None:
        self.lag_ms = 0
        self._homes: dict[TopicPartition, int] = {}
        self._leaders: dict[TopicPartition, list[tuple[int, int]]] = {}
        """Times with the leader from then on, in order. Partitions without changes are led by their home node."""
        self._coordinators: list[tuple[int, int]] = []
        """Times at which all coordinators restarted, and by how many nodes each one moved."""

    def leader(self, partition: TopicPartition, now_ms: int) -> int:
        """Returns the leader, or NOBODY."""
        changes = self._leaders.get(partition)
        if changes is None:
            return self._home_of(partition)
        return next(node for since_ms, node in reversed(changes) if since_ms <= now_ms)

    def is_led(self, partition: TopicPartition, now_ms: int) -> bool:
        """Returns whether the partition has a leader."""
        return partition not in self._leaders or self.leader(partition, now_ms) != NOBODY

    def told_leader(self, partition: TopicPartition, now_ms: int) -> int:
        """Returns the leader according to metadata."""
        return self.leader(partition, now_ms - self.lag_ms)

    def move_leader(self, partition: TopicPartition, now_ms: int, until_ms: int) -> None:
        """Leaves the partition without a leader until `until_ms`, when the next node takes over."""
        changes = self._leaders.setdefault(partition, [(_ALWAYS, self._home_of(partition))])
        last = next(node for _, node in reversed(changes) if node != NOBODY)
        kept = [change for change in changes if change[0] < now_ms]
        self._leaders[partition] = [*kept, (now_ms, NOBODY), (until_ms, _behind(last, 1))]

    def leader_epoch(self, partition: TopicPartition, now_ms: int) -> int:
        """Returns how often the leader has changed, counting the loss of a leader."""
        changes = self._leaders.get(partition)
        return 0 if changes is None else sum(since_ms <= now_ms for since_ms, _ in changes) - 1

    def told_leader_epoch(self, partition: TopicPartition, now_ms: int) -> int:
        """Returns the leader epoch according to metadata."""
        return self.leader_epoch(partition, now_ms - self.lag_ms)

    def coordinator(self, key: str, now_ms: int) -> int:
        """Returns the coordinating node of a transactional id or group."""
        return _behind(_home(key), self._steps(now_ms))

    def coordinator_epoch(self, now_ms: int) -> int:
        """Returns how often the coordinators have restarted."""
        return sum(moment_ms <= now_ms for moment_ms, _ in self._coordinators)

    def told_logs(self, now_ms: int) -> list[tuple[int, int]]:
        """Returns the node and epoch of each partition of the transaction log according to metadata.

        Its leaders are the coordinators.
        """
        then_ms = now_ms - self.lag_ms
        return [(_behind(node, self._steps(then_ms)), self.coordinator_epoch(then_ms)) for node in NODES]

    def told_coordinator(self, key: str, now_ms: int) -> int:
        """Returns the coordinator as a client finds it."""
        return self.coordinator(key, now_ms - self.lag_ms)

    def restart_coordinators(self, now_ms: int, steps: int = 0) -> None:
        """Restarts all coordinators on the same node, or moves each by `steps` nodes."""
        self._coordinators.append((now_ms, steps))

    def _steps(self, now_ms: int) -> int:
        return sum(steps for moment_ms, steps in self._coordinators if moment_ms <= now_ms)

    def _home_of(self, partition: TopicPartition) -> int:
        home = self._homes.get(partition)
        if home is None:
            home = self._homes[partition] = _home(f"{partition.topic}/{partition.partition}")
        return home


@lru_cache(maxsize=4096)
def _home(key: str) -> int:
    return NODES[crc32(key.encode()) % len(NODES)]


def _behind(node: int, steps: int) -> int:
    return NODES[(NODES.index(node) + steps) % len(NODES)]
