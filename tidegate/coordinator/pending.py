"""A checkpoint that was triggered and is not decided yet (C02): the missing subtasks and the acks so far; and the
outcome of decided ones.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tidegate.committable import Committable
from tidegate.coordinator.events import AckOutcome, CheckpointFailure, CheckpointProperties, CheckpointReport
from tidegate.coordinator.story import Story
from tidegate.coordinator.types import Ack, CompletedCheckpoint, StateHandle
from tidegate.ids import Attempt, CheckpointId, OperatorName, SubtaskId

DECIDED_MAX: Final = 64
"""Decided checkpoints that are remembered. An ack for an older one counts as late."""


class PendingPhase(StrEnum):
    """Phases of a pending checkpoint. NEXT lists the allowed transitions."""

    WAITING = "waits for acks"
    ACKNOWLEDGED = "all acks are in, waits for the journal"
    APPENDING = "its journal entry is being written"
    DECIDED = "it is in the journal"
    WRITING = "a savepoint is being copied to its directory"
    WRITTEN = "it is in its directory"
    DISCARDED = "it was given up"


NEXT: dict[PendingPhase, frozenset[PendingPhase]] = {
    PendingPhase.WAITING: frozenset({PendingPhase.ACKNOWLEDGED, PendingPhase.DISCARDED}),
    PendingPhase.ACKNOWLEDGED: frozenset({PendingPhase.APPENDING, PendingPhase.WRITING, PendingPhase.DISCARDED}),
    PendingPhase.APPENDING: frozenset({PendingPhase.DECIDED, PendingPhase.DISCARDED}),
    PendingPhase.WRITING: frozenset({PendingPhase.WRITTEN, PendingPhase.DISCARDED}),
    PendingPhase.DECIDED: frozenset(),
    PendingPhase.WRITTEN: frozenset(),
    PendingPhase.DISCARDED: frozenset(),
}


class PendingCheckpoint:
    """A triggered, undecided checkpoint. Holds the three maps of C27; it is complete when `waiting` is empty."""

    def __init__(
        self,
        checkpoint: CheckpointId,
        attempt: Attempt,
        properties: CheckpointProperties,
        triggered_at_ms: int,
        waiting: frozenset[SubtaskId],
    ) -> None:
        self.id = checkpoint
        self.properties = properties
        self.triggered_at_ms = triggered_at_ms
        self.phase = PendingPhase.WAITING
        self.waiting: set[SubtaskId] = set(waiting)
        self.acks: dict[SubtaskId, Ack] = {}
        self.states: dict[OperatorName, dict[SubtaskId, tuple[StateHandle, ...]]] = {}
        self.story = Story()
        self.acknowledged_at_ms = triggered_at_ms
        self.journaled_at_ms = triggered_at_ms
        self._attempt = attempt

    def move(self, phase: PendingPhase) -> None:
        """Enters a phase. Raises ProtocolBroken if NEXT does not allow the transition."""
        if phase not in NEXT[self.phase]:
            raise self.story.broken(f"checkpoint {self.id} cannot go from {self.phase.name} to {phase.name}")
        self.story.tell(f"checkpoint {self.id}: {phase.name}")
        self.phase = phase

    def acknowledge(self, ack: Ack, now_ms: int) -> AckOutcome:
        """Records an ack (C18-C21). Any outcome other than SUCCESS changes nothing."""
        if self.phase is PendingPhase.DISCARDED:
            return AckOutcome.DISCARDED
        if ack.subtask in self.acks:
            return AckOutcome.DUPLICATE
        if ack.subtask not in self.waiting:
            return AckOutcome.UNKNOWN
        self.waiting.remove(ack.subtask)
        self.acks[ack.subtask] = ack
        for handle in ack.states:
            per_subtask = self.states.setdefault(handle.operator, {})
            per_subtask[ack.subtask] = (*per_subtask.get(ack.subtask, ()), handle)
        self.acknowledged_at_ms = now_ms
        self.story.tell(f"ack of {ack.subtask} at {now_ms}, {len(self.waiting)} missing")
        if not self.waiting:
            self.move(PendingPhase.ACKNOWLEDGED)
        return AckOutcome.SUCCESS

    @property
    def awaits_commit(self) -> bool:
        """True if this is a savepoint with all acks that waits for the commit of the output before it."""
        return self.properties.savepoint and self.phase is PendingPhase.ACKNOWLEDGED

    @property
    def can_expire(self) -> bool:
        """True if its timeout applies."""
        return self.phase is PendingPhase.WAITING or self.awaits_commit

    @property
    def loads(self) -> bool:
        """True if it counts against `checkpoints.max_concurrent`: a savepoint only until it has its acks."""
        return not self.properties.savepoint or self.phase is PendingPhase.WAITING

    @property
    def missing(self) -> str:
        """A text about what the checkpoint is waiting for."""
        if not self.waiting:
            return "no checkpoint after it has completed"
        names = ", ".join(map(str, sorted(self.waiting)[:10]))
        return f"no ack from {len(self.waiting)} subtasks: {names}"

    @property
    def handles(self) -> tuple[StateHandle, ...]:
        """All acknowledged state, ordered by operator and subtask."""
        return tuple(
            handle
            for _, per_subtask in sorted(self.states.items())
            for _, handles in sorted(per_subtask.items())
            for handle in handles
        )

    def complete(
        self, committables: tuple[Committable, ...], now_ms: int, wall_offset_ms: int = 0
    ) -> CompletedCheckpoint:
        """Returns the completed checkpoint (C03), with wall-clock timestamps.

        Raises ProtocolBroken while acks are missing.
        """
        if self.waiting:
            raise self.story.broken(f"checkpoint {self.id} is completed while {len(self.waiting)} acks are missing")
        return CompletedCheckpoint(
            id=self.id,
            attempt=self._attempt,
            triggered_at_ms=self.triggered_at_ms + wall_offset_ms,
            completed_at_ms=now_ms + wall_offset_ms,
            positions=tuple(part for _, ack in sorted(self.acks.items()) for part in ack.positions),
            states=self.handles,
            committables=committables,
            final=self.properties.final,
        )

    def report(self, completed: CompletedCheckpoint, ended_at_ms: int) -> CheckpointReport:
        """Returns figures for the log and the metrics."""
        acks = self.acks.values()
        return CheckpointReport(
            checkpoint=self.id,
            triggered_at_ms=self.triggered_at_ms,
            acknowledged_at_ms=self.acknowledged_at_ms,
            journaled_at_ms=self.journaled_at_ms,
            ended_at_ms=ended_at_ms,
            size_bytes=completed.size_bytes,
            records=sum(committable.records for committable in completed.committables),
            start_delay_ms=max((ack.start_delay_ms for ack in acks), default=0.0),
            alignment_ms=max((ack.alignment_ms for ack in acks), default=0.0),
            snapshot_ms=max((ack.snapshot_ms for ack in acks), default=0.0),
            upload_ms=max((ack.upload_ms for ack in acks), default=0.0),
            prepare_ms=max((ack.prepare_ms for ack in acks), default=0.0),
        )


class DecidedCheckpoints:
    """The newest decided checkpoints: what an ack for one of them means."""

    def __init__(self, remembered_max: int) -> None:
        self._remembered_max = remembered_max
        self._outcomes: dict[CheckpointId, AckOutcome] = {}

    def remember(self, checkpoint: CheckpointId, given_up: CheckpointFailure | None) -> None:
        """Records that a checkpoint is complete, or why it was given up."""
        self._outcomes[checkpoint] = AckOutcome.DUPLICATE if given_up is None else AckOutcome.DISCARDED
        while len(self._outcomes) > self._remembered_max:
            del self._outcomes[min(self._outcomes)]

    def outcome(self, checkpoint: CheckpointId) -> AckOutcome:
        """Returns what an ack for a checkpoint that is not pending means."""
        return self._outcomes.get(checkpoint, AckOutcome.LATE)
