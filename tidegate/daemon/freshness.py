"""Determines which completed checkpoint shows that records can flow.

Checkpoints complete during an outage of all brokers of a cluster as well, but they may be empty. They prove nothing,
and neither do those that were triggered between the last response and the outage. So the newest checkpoint counts that
was triggered before a probe to which a broker of every cluster has responded; while brokers respond, the newest of all.
All seconds are of one monotonic clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.status import CheckpointStatus
from tidegate.ids import ClusterName


class TimedCheckpoint(msgspec.Struct, frozen=True):
    """A completed checkpoint with times of this process's clock."""

    checkpoint: CompletedCheckpoint
    records: int
    """The number of records that it has committed."""
    triggered_at: float
    completed_at: float


class Freshness:
    """Selects the checkpoint. Its methods are called with events in the order in which they happen."""

    def __init__(self, clusters: Iterable[ClusterName]) -> None:
        self._answered = dict.fromkeys(clusters, -math.inf)
        """When a broker of each cluster was last asked and responded."""
        self._silent: set[ClusterName] = set()
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

    def answered(self, cluster: ClusterName, asked_at: float) -> None:
        """Records that a broker of the cluster responded to the probe of `asked_at`."""
        self._answered[cluster] = asked_at
        if cluster in self._silent:
            self._silent.remove(cluster)
            self._answering_since = asked_at
        if self._silent:
            return
        sure = [one for one in self._recent if one.triggered_at <= min(self._answered.values())]
        self._sure = sure[-1] if sure else self._sure
        self._recent = self._recent[len(sure) :]

    def silent(self, cluster: ClusterName) -> None:
        """Records that no broker of the cluster responds."""
        self._silent.add(cluster)
        self._recent.clear()
