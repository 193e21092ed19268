"""How late the pipeline is, in seconds: the lag, and the time from a record's timestamp to its commit. Pure.

Once a second, slots report the newest record that they have read of each partition (`sources/kafka.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from tidegate.coordinator.types import SourcePositions
from tidegate.ids import TopicPartition

SAMPLES_MAX: Final = 64
"""Samples per partition; beyond that, every second one is dropped."""
COMMITS_MAX: Final = 64
"""Commits remembered per partition, because a report comes a second late."""


class RecordTimes:
    """The record times of one daemon. Seconds are of a monotonic clock, milliseconds of the wall clock."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, list[tuple[int, int]]] = {}
        """Offsets and timestamps, in order, of records that no checkpoint has covered yet."""
        self._read: dict[TopicPartition, tuple[int, int]] = {}
        self._covered: dict[TopicPartition, deque[tuple[int, int]]] = {}
        """Positions and times of the last commits that advanced a partition, because reports arrive after commits."""
        self._without_lag: dict[TopicPartition, float] = {}

    def begin_attempt(self) -> None:
        """Forgets records that no checkpoint covers, because they are read again."""
        self._waiting.clear()
        self._read.clear()
        self._covered.clear()

    def read(self, newest: Iterable[tuple[TopicPartition, int, int]]) -> Iterator[tuple[TopicPartition, float]]:
        """Takes records that a slot has read: partition, offset, timestamp.

        Yields like `committed` if already committed.
        """
        for part, offset, at_ms in newest:
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

    def lag_s(self, part: TopicPartition, records: int, now_s: float, now_ms: int) -> float | None:
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

    def committed(self, positions: Iterable[SourcePositions], now_ms: int) -> Iterator[tuple[TopicPartition, float]]:
        """Takes a committed checkpoint; yields the age of the records before its positions, in seconds."""
        for one in positions:
            for part, after in one.next_offsets:
                commits = self._covered.setdefault(part, deque(maxlen=COMMITS_MAX))
                if not commits or commits[-1][0] < after:
                    commits.append((after, now_ms))
                waiting = self._waiting.get(part, [])
                covered = [at_ms for offset, at_ms in waiting if offset < after]
                if covered:
                    del waiting[: len(covered)]
                for at_ms in covered:
                    yield part, max(0.0, (now_ms - at_ms) / 1000)
