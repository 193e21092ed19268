"""Checkpoint requests: each is tracked from the request to its result (C38).

A requested checkpoint differs from others only in when it begins. The request is answered when the output is committed,
or with the reason for the failure. Up to `checkpoints.max_concurrent` may be in progress.
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
    """The requested checkpoint did not complete; the pipeline is unchanged."""

    code = "checkpoint-unavailable"
    exit_code = 1
    retriable = True


class CheckpointDone(msgspec.Struct, frozen=True):
    """Answer to a request: the checkpoint is in the journal and its output is committed."""

    checkpoint: CheckpointId
    duration_ms: int
    """Time from the trigger to the end of its transactions."""
    size_bytes: int
    """Size of the state that it lists."""


class CheckpointRequests:
    """The checkpoint requests of one attempt. `feed` passes an event to the coordinator.

    All methods are called on the daemon's loop.
    """

    def __init__(self, clock: Clock, feed: Callable[[Event], None]) -> None:
        self._clock = clock
        self._feed = feed
        self._asking: asyncio.Future[CheckpointDone] | None = None
        """The request that the coordinator is currently deciding about."""
        self._under_way: dict[CheckpointId, asyncio.Future[CheckpointDone]] = {}

    async def take(self) -> CheckpointDone:
        """Takes a checkpoint and waits until it is committed. Raises CheckpointUnavailable if it fails."""
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
        """Records that the barriers of a checkpoint have been sent."""
        if self._asking is not None:
            self._under_way[checkpoint] = self._asking

    def refused(self, refusal: TriggerRefusal) -> None:
        """Fails the request: the checkpoint was refused."""
        if self._asking is not None:
            self._asking.set_exception(CheckpointUnavailable(f"no checkpoint was begun: {refusal.value}; ask again"))

    def completed(self, report: CheckpointReport) -> bool:
        """Answers the request of a checkpoint that is complete and committed.

        Returns whether it was a requested one.
        """
        answer = self._under_way.pop(report.checkpoint, None)
        if answer is not None and not answer.done():  # otherwise the request was cancelled
            duration_ms = report.ended_at_ms - report.triggered_at_ms
            answer.set_result(CheckpointDone(report.checkpoint, duration_ms, report.size_bytes))
        return answer is not None

    def given_up(self, checkpoint: CheckpointId, why: str) -> None:
        """Answers the request of a checkpoint that failed, if there is one."""
        answer = self._under_way.pop(checkpoint, None)
        if answer is not None and not answer.done():
            answer.set_exception(CheckpointUnavailable(f"checkpoint {checkpoint} was given up: {why}"))

    def close(self, why: str) -> None:
        """Answers all pending requests, because the attempt decides nothing any more."""
        for checkpoint in list(self._under_way):
            self.given_up(checkpoint, why)
