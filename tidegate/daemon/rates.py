"""Helpers for the metrics: counts that restart with every attempt, rates over a window, bounded labels.

Pure: time is passed as an argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Final

from tidegate.coordinator.types import SourcePositions
from tidegate.ids import OperatorName, TopicPartition

SAMPLE_SECONDS: Final = 0.25
RATE_WINDOW_SECONDS: Final = 5.0
OTHER: Final = "other"


class ReportCounts:
    """The highest value seen of every count of one slot in one attempt, and its positions."""

    def __init__(self) -> None:
        self.positions: tuple[SourcePositions, ...] = ()
        """The positions that it last reported."""
        self.idle: Mapping[OperatorName, tuple[TopicPartition, ...]] = {}
        """The idle partitions that it last reported, by source."""
        self._seen: dict[Hashable, float] = {}

    def advance(self, name: Hashable, value: float) -> float:
        """Returns what `value` adds to the highest value seen so far: never negative."""
        before = self._seen.get(name, 0)
        self._seen[name] = max(before, value)
        return max(0, value - before)


class CounterWindow:
    """A growing total and its rate over the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.total: float = 0
        self._seconds = seconds
        self._samples: deque[tuple[float, float]] = deque(maxlen=int(seconds / SAMPLE_SECONDS) + 2)

    def observe(self, now: float) -> None:
        """Samples the total at `now`, unless the last sample is less than SAMPLE_SECONDS old."""
        if not self._samples or now - self._samples[-1][0] >= SAMPLE_SECONDS:
            self._samples.append((now, self.total))

    def rate(self, now: float) -> float:
        """Returns units per second since the newest sample that is at least a window old, or since the oldest one."""
        while len(self._samples) > 1 and now - self._samples[1][0] >= self._seconds:
            self._samples.popleft()
        if not self._samples:
            return 0.0
        since, before = self._samples[0]
        return (self.total - before) / max(now - since, SAMPLE_SECONDS)


class LabelBound:
    """Passes the first `limit` values of a label; all later ones become `other`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def of(self, value: str) -> str:
        """Returns the label value to export for `value`."""
        if value in self._known:
            return value
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(value)
        return value
