"""Which completed checkpoint shows that records can flow: while no broker answers, they still complete, empty.

Such a one says nothing, and nobody knows about those that were triggered between the last answer and the outage. So
what counts is the newest that was triggered before a question that a broker has answered; while they answer, the newest
of all. Seconds are of one monotonic clock.
"""

from __future__ import annotations

import math

import msgspec

from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.status import CheckpointStatus


class TimedCheckpoint(msgspec.Struct, frozen=True):
    """A completed checkpoint, by the clock of this process."""

    checkpoint: CompletedCheckpoint
    records: int
    """Whose commit it has decided."""
    triggered_at: float
    completed_at: float


class Freshness:
    """Fed with what happens, in its order."""

    def __init__(self) -> None:
        self._silent = False
        self._answering_since = -math.inf
        self._sure: TimedCheckpoint | None = None
        self._recent: list[TimedCheckpoint] = []
        """Triggered after the last question that was answered: as many as complete within two looks of the watch."""

    @property
    def newest(self) -> TimedCheckpoint | None:
        """The checkpoint to go by."""
        return self._recent[-1] if self._recent else self._sure

    def status(self, now: float) -> CheckpointStatus | None:
        """Of that checkpoint, for people."""
        newest = self.newest
        if newest is None:
            return None
        return CheckpointStatus(
            id=newest.checkpoint.id,
            age_seconds=now - newest.completed_at,
            duration_seconds=newest.completed_at - newest.triggered_at,
            size_bytes=newest.checkpoint.size_bytes,
            records_committed=newest.records,
        )

    def completed(self, one: TimedCheckpoint) -> None:
        """In the journal."""
        if not self._silent and one.triggered_at >= self._answering_since:
            self._recent.append(one)

    def answered(self, asked_at: float) -> None:
        """A broker has answered a question of then."""
        if self._silent:
            self._silent, self._answering_since = False, asked_at
        sure = [one for one in self._recent if one.triggered_at <= asked_at]
        self._sure = sure[-1] if sure else self._sure
        self._recent = self._recent[len(sure) :]

    def silent(self) -> None:
        """No broker answers."""
        self._silent = True
        self._recent.clear()
