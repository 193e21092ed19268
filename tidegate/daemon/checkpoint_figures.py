"""Figures about completed checkpoints: what each one contains, what was committed, and whether records flow. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from tidegate.committable import Committable
from tidegate.config.fields.counts import render_count, render_seconds, render_size
from tidegate.coordinator.ledger import Key, key_of
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.status import CheckpointStatus
from tidegate.ids import Attempt, ClusterName

PHASES: Final = ("total", "start_delay", "alignment", "snapshot", "upload", "prepare", "journal", "commit")
"""Values of the label `phase`; all but `total` are optional in `checkpoint_completed`."""


def derive_duration_s(checkpoint: CompletedCheckpoint, phases: Mapping[str, float]) -> float:
    """Returns the seconds from the trigger to the end of the commit; the checkpoint itself ends with its last ack."""
    acknowledged_s = (checkpoint.completed_at_ms - checkpoint.triggered_at_ms) / 1000
    return acknowledged_s + phases.get("journal", 0.0) + phases.get("commit", 0.0)


def derive_state_bytes(checkpoint: CompletedCheckpoint) -> dict[str, int]:
    """Returns the size of the state per operator, without rows in flight."""
    found: dict[str, int] = {}
    for handle in checkpoint.states:
        if not handle.in_flight:
            found[handle.operator] = found.get(handle.operator, 0) + handle.size_bytes
    return found


def checkpoint_line(checkpoint: CompletedCheckpoint, phases: Mapping[str, float]) -> str:
    """Renders the log line of a completed checkpoint: id, duration, phases (seconds), size, what it commits."""
    duration = derive_duration_s(checkpoint, phases)
    parts = ", ".join(f"{name.replace('_', ' ')} {render_seconds(seconds)}" for name, seconds in phases.items())
    own = [each for each in checkpoint.committables if each.checkpoint == checkpoint.id]
    carried = [each for each in checkpoint.committables if each.checkpoint != checkpoint.id]
    return (
        f"checkpoint {checkpoint.id} completed in {render_seconds(duration)}{f' ({parts})' if parts else ''}: "
        f"state {render_size(checkpoint.size_bytes)}{_inflight(checkpoint)}, commits {_content(own)}"
        f"{f' and {_content(carried)} carried over' if carried else ''}{', final' if checkpoint.final else ''}"
    )


def _inflight(checkpoint: CompletedCheckpoint) -> str:
    size_bytes = checkpoint.inflight_bytes
    return f" ({render_size(size_bytes)} of it rows in flight)" if size_bytes else ""


def _content(committables: Sequence[Committable]) -> str:
    records = sum(each.records for each in committables)
    return f"{render_count(records, 'record')} in {render_count(len(committables), 'transaction')}"


ENDED_MAX: Final = 10_000
"""Limit of remembered ended transactions: more than those of the newest checkpoint, which may be asked for again."""


class CommitAccount:
    """The account of one daemon. Its methods return the records per sink that were not counted before."""

    def __init__(self) -> None:
        self.records = 0
        """The total of all counted records."""
        self._first: Attempt | None = None
        self._counted: set[Key] = set()
        """The transactions that the newest checkpoint lists, and those committed after it."""
        self._ended: dict[Key, None] = {}
        """In the order in which they ended."""

    def begin(self, attempt: Attempt) -> None:
        """Begins an attempt of this daemon.

        Transactions that were decided before the first attempt may have been committed, and counted, by another daemon:
        Kafka gives the same answer.
        """
        if self._first is None:
            self._first = attempt

    def completed(self, checkpoint: CompletedCheckpoint) -> dict[str, int]:
        """Counts a checkpoint whose transactions are all committed.

        The checkpoint also lists transactions that the previous one decided and whose end was not seen yet; they are
        not counted again. Transactions of a checkpoint that was given up after its sinks had prepared are counted,
        because no earlier entry has decided them.
        """
        # Transactions of an older attempt were decided during that attempt or resolved by the recovery.
        found = self._count(each for each in checkpoint.committables if each.attempt == checkpoint.attempt)
        self._counted = {key_of(each) for each in checkpoint.committables}
        return found

    def ended(self, committables: Iterable[Committable]) -> dict[str, int]:
        """Counts transactions that were committed while no attempt runs."""
        first = self._first
        return self._count(each for each in committables if first is not None and each.attempt >= first)

    def end(self, committables: Iterable[Committable]) -> int:
        """Returns how many of these committed transactions were not counted before.

        Kafka reports them as committed each time it is asked: by the attempt, by the release at its end, by the next
        recovery.
        """
        new = [key for key in map(key_of, committables) if key not in self._ended]
        self._ended.update(dict.fromkeys(new))
        while len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        return len(new)

    def _count(self, committables: Iterable[Committable]) -> dict[str, int]:
        found: dict[str, int] = {}
        for each in committables:
            if key_of(each) not in self._counted:
                self._counted.add(key_of(each))
                found[each.sink] = found.get(each.sink, 0) + each.records
                self.records += each.records
        return found


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
