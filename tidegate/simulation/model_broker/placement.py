"""Which node leads a partition and which one coordinates an id, and what metadata say about it a little later. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from zlib import crc32

from tidegate.ids import TopicPartition

NODES: Final = (1, 2, 3)
NOBODY: Final = -1

_ALWAYS: Final = -1
"""Before every moment."""


class Placement:
    """Moments are in ms. Every node knows the present; what clients learn about it is `lag_ms` old."""

    def __init__(self) -> None:
        self.lag_ms = 0
        self._homes: dict[TopicPartition, int] = {}
        self._leaders: dict[TopicPartition, list[tuple[int, int]]] = {}
        """Moments and who leads from then on, in order; where nothing has changed, the home leads."""
        self._coordinators: list[tuple[int, int]] = []
        """Moments at which all coordinators restarted, and by how many nodes each has moved."""

    def leader(self, partition: TopicPartition, now_ms: int) -> int:
        """The node; NOBODY while there is none."""
        changes = self._leaders.get(partition)
        if changes is None:
            return self._home_of(partition)
        return next(node for since_ms, node in reversed(changes) if since_ms <= now_ms)

    def is_led(self, partition: TopicPartition, now_ms: int) -> bool:
        """Whether somebody leads it."""
        return partition not in self._leaders or self.leader(partition, now_ms) != NOBODY

    def told_leader(self, partition: TopicPartition, now_ms: int) -> int:
        """What metadata say."""
        return self.leader(partition, now_ms - self.lag_ms)

    def move_leader(self, partition: TopicPartition, now_ms: int, until_ms: int) -> None:
        """Nobody leads it until then, then the next node."""
        changes = self._leaders.setdefault(partition, [(_ALWAYS, self._home_of(partition))])
        last = next(node for _, node in reversed(changes) if node != NOBODY)
        kept = [change for change in changes if change[0] < now_ms]
        self._leaders[partition] = [*kept, (now_ms, NOBODY), (until_ms, _behind(last, 1))]

    def leader_epoch(self, partition: TopicPartition, now_ms: int) -> int:
        """How often its leader has changed, to nobody included."""
        changes = self._leaders.get(partition, [(_ALWAYS, 0)])
        return sum(since_ms <= now_ms for since_ms, _ in changes) - 1

    def told_leader_epoch(self, partition: TopicPartition, now_ms: int) -> int:
        """What metadata say."""
        return self.leader_epoch(partition, now_ms - self.lag_ms)

    def coordinator(self, key: str, now_ms: int) -> int:
        """The node of a transactional id or a group."""
        return _behind(_home(key), self._steps(now_ms))

    def coordinator_epoch(self, now_ms: int) -> int:
        """How often the coordinators have restarted."""
        return sum(moment_ms <= now_ms for moment_ms, _ in self._coordinators)

    def told_logs(self, now_ms: int) -> list[tuple[int, int]]:
        """What metadata say of the transaction log, whose leaders are the coordinators: node and epoch of each."""
        then_ms = now_ms - self.lag_ms
        return [(_behind(node, self._steps(then_ms)), self.coordinator_epoch(then_ms)) for node in NODES]

    def told_coordinator(self, key: str, now_ms: int) -> int:
        """What whoever looks for it learns."""
        return self.coordinator(key, now_ms - self.lag_ms)

    def restart_coordinators(self, now_ms: int, steps: int = 0) -> None:
        """Each where it is, or so many nodes on."""
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
