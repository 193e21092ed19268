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
    """Moments are in ms. Every node knows the present; what clients are told about it is `lag_ms` old."""

    def __init__(self) -> None:
        self.lag_ms = 0
        self._homes: dict[TopicPartition, int] = {}
        self._leaders: dict[TopicPartition, list[tuple[int, int]]] = {}
        """Moments and who leads from then on, in order; where nothing has changed, the home leads."""
        self._moves: list[int] = []
        """Of all coordinators, each to its next node."""

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
        """How often it has got another leader."""
        changes = self._leaders.get(partition, [(_ALWAYS, 0)])
        return sum(since_ms <= now_ms and node != NOBODY for since_ms, node in changes) - 1

    def coordinator(self, key: str, now_ms: int) -> int:
        """The node of a transactional id or a group."""
        return _behind(_home(key), self.coordinator_epoch(now_ms))

    def coordinator_epoch(self, now_ms: int) -> int:
        """How often the coordinators have moved."""
        return sum(moment_ms <= now_ms for moment_ms in self._moves)

    def told_coordinator(self, key: str, now_ms: int) -> int:
        """What whoever looks for it is told."""
        return self.coordinator(key, now_ms - self.lag_ms)

    def move_coordinators(self, now_ms: int) -> None:
        """Each to its next node."""
        self._moves.append(now_ms)

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
