"""Parts of the product that say what they do: nothing is changed, only counted, and what must never happen is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tidegate.coordinator.coordinator import Coordinator
from tidegate.coordinator.events import AckRefused, CheckpointFailure, DeclineReceived, Event, Instruction
from tidegate.coordinator.job import Job
from tidegate.coordinator.triggers import CheckpointSettings
from tidegate.daemon.metrics import TransactionResult
from tidegate.daemon.status import PipelineState

if TYPE_CHECKING:
    from tidegate.simulation.reach import Reach
    from tidegate.simulation.world import World

RECENT_MAX: Final = 3
"""Decided checkpoints that a coordinator remembers: few, so that acks can be too late for it."""


class WatchedCoordinator(Coordinator):
    """See Coordinator."""

    def __init__(self, settings: CheckpointSettings, job: Job, reach: Reach) -> None:
        super().__init__(settings, job, RECENT_MAX)
        self._reach = reach

    def handle(self, event: Event) -> tuple[Instruction, ...]:
        """See Coordinator."""
        if isinstance(event, DeclineReceived):
            self._reach.note("declines")
        instructions = super().handle(event)
        for instruction in instructions:
            if isinstance(instruction, AckRefused):
                self._reach.note(f"acks: {instruction.outcome.name.lower()}")
        return instructions


class WatchedMetrics:
    """See PipelineMetrics. Takes every figure, counts what is rare, and keeps the state."""

    def __init__(self, world: World) -> None:
        self.current_state = (PipelineState.STARTING, "")
        self._world = world

    def state(self, state: PipelineState, reason: str = "") -> None:
        """See PipelineMetrics."""
        self.current_state = (state, reason)

    def checkpoint_failed(self, reason: str) -> None:
        """See PipelineMetrics.

        Nothing that is right builds on state that is gone: the coordinator would only notice somebody else's mistake.
        """
        failure = CheckpointFailure(reason)
        self._world.reach.note(f"checkpoints given up: {failure.name.lower()}")
        if failure is CheckpointFailure.STATE_GONE:
            self._world.problems.append("a checkpoint builds on state files that no retained checkpoint lists")

    def transactions_ended(self, result: TransactionResult, seconds: Sequence[float]) -> None:
        """See PipelineMetrics."""
        if result is not TransactionResult.COMMITTED:
            self._world.reach.note(f"transactions: {result.value}", max(1, len(seconds)))

    def marker_written(self, end: str) -> None:
        """See PipelineMetrics."""
        self._world.reach.note(f"missing markers written: {end}")

    def __getattr__(self, _name: str) -> Any:
        return _ignore


def _ignore(*_values: object) -> None:
    return
