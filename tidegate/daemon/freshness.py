"""Determines which completed checkpoint shows that records can flow.

Checkpoints complete during an outage of all brokers as well, but they are empty. They prove nothing, and neither do
those that were triggered between the last response and the outage. So the newest checkpoint counts that was triggered
before a probe to which a broker has responded; while brokers respond, the newest of all. All seconds are of one
monotonic clock.
"""

from __future__ import annotations

import math

import msgspec

from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.status import CheckpointStatus


class TimedCheckpoint(msgspec.Struct, frozen=True):
    """A completed checkpoint with times of this process's clock."""

    checkpoint: CompletedCheckpoint
    records: int
    """The number of records that it has committed."""
    triggered_at: float
    completed_at: float


class Freshness:
    """Selects the checkpoint. Its methods are called with events in the order in which they happen."""

    def __init__(self) -> None:
        self._silent = False
        self._answering_since = -math.inf
        self._sure: TimedCheckpoint | None = None
        self._recent: list[TimedCheckpoint] = []
        """Checkpoints triggered after the last probe with a response: as many as complete within two probes."""

    @property
    def newest(self) -> TimedCheckpoint | None:
        """The checkpoint that shows whether records flow."""
        return self._recent[-1] if self._recent else self._sure

    def status(self, now: float) -> CheckpointStatus | None:
        """Describes that checkpoint for the status."""
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
        """Takes a checkpoint that is in the journal."""
        if not self._silent and one.triggered_at >= self._answering_since:
            self._recent.append(one)

    def answered(self, asked_at: float) -> None:
        """Records that a broker responded to the probe of `asked_at`."""
        if self._silent:
            self._silent, self._answering_since = False, asked_at
        sure = [one for one in self._recent if one.triggered_at <= asked_at]
        self._sure = sure[-1] if sure else self._sure
        self._recent = self._recent[len(sure) :]

    def silent(self) -> None:
        """Records that no broker responds."""
        self._silent = True
        self._recent.clear()
