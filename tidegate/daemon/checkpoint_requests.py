"""Checkpoints that somebody asks for: from the order to what became of it (C38).

Such a checkpoint is like any other but for when it begins. Whoever asks is answered when its output is committed, or
with the reason why there is none; several may be under way, as many as `checkpoints.max_concurrent` allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from tidegate.clock import Clock, monotonic_ms
from tidegate.coordinator.events import CheckpointReport, Event, TriggerRefusal, TriggerRequested
from tidegate.errors import TidegateError
from tidegate.ids import CheckpointId


class CheckpointUnavailable(TidegateError):
    """The checkpoint that was asked for did not come about; the pipeline is as it was."""

    code = "checkpoint-unavailable"
    exit_code = 1
    retriable = True


class CheckpointDone(msgspec.Struct, frozen=True):
    """Answer to an order: the checkpoint is in the journal and its output is committed."""

    checkpoint: CheckpointId
    duration_ms: int
    """From the trigger to the end of its transactions."""
    size_bytes: int
    """Of the state that it lists."""


class CheckpointRequests:
    """One per attempt. `feed` gives the coordinator an event; all calls on the daemon's loop."""

    def __init__(self, clock: Clock, feed: Callable[[Event], None]) -> None:
        self._clock = clock
        self._feed = feed
        self._asking: asyncio.Future[CheckpointDone] | None = None
        """The order that the coordinator is deciding about right now."""
        self._under_way: dict[CheckpointId, asyncio.Future[CheckpointDone]] = {}

    async def take(self) -> CheckpointDone:
        """Raises CheckpointUnavailable when there will be none."""
        answer: asyncio.Future[CheckpointDone] = asyncio.get_running_loop().create_future()
        self._asking = answer
        try:
            self._feed(TriggerRequested(monotonic_ms(self._clock)))
        finally:
            self._asking = None
        if not answer.done() and answer not in self._under_way.values():
            raise CheckpointUnavailable("no checkpoint was begun: the attempt has just ended; ask again")
        return await answer

    # -- what the coordinator answers ------------------------------------------------------------------------------

    def begun(self, checkpoint: CheckpointId) -> None:
        """Its barriers are on their way."""
        if self._asking is not None:
            self._under_way[checkpoint] = self._asking

    def refused(self, refusal: TriggerRefusal) -> None:
        """It was not begun."""
        if self._asking is not None:
            self._asking.set_exception(CheckpointUnavailable(f"no checkpoint was begun: {refusal.value}; ask again"))

    def completed(self, report: CheckpointReport) -> bool:
        """A checkpoint is complete and committed. Returns whether it was one of ours."""
        answer = self._under_way.pop(report.checkpoint, None)
        if answer is not None and not answer.done():  # else nobody waits for it any more
            duration_ms = report.ended_at_ms - report.triggered_at_ms
            answer.set_result(CheckpointDone(report.checkpoint, duration_ms, report.size_bytes))
        return answer is not None

    def given_up(self, checkpoint: CheckpointId, why: str) -> None:
        """A checkpoint failed; perhaps it was one of ours."""
        answer = self._under_way.pop(checkpoint, None)
        if answer is not None and not answer.done():
            answer.set_exception(CheckpointUnavailable(f"checkpoint {checkpoint} was given up: {why}"))

    def close(self, why: str) -> None:
        """Nothing is decided any more."""
        for checkpoint in list(self._under_way):
            self.given_up(checkpoint, why)
