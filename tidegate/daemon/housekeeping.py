"""Periodic work next to the attempts: lag, mirrored offsets, fencing, hanging transactions. It decides nothing.

A failed task is logged and tried again at its next turn; the pipeline does not stop for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tidegate.coordinator.recovery import merge_offsets
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.hanging_transactions import HangingCheck
from tidegate.daemon.metrics import TransactionResult
from tidegate.daemon.ownership import Ownership
from tidegate.daemon.services import Services
from tidegate.errors import Superseded, TidegateError
from tidegate.ids import Attempt, TopicPartition
from tidegate.kafka.errors import BrokerUnavailable
from tidegate.plan.graph import Plan

logger = logging.getLogger(__name__)

LAG_S: Final = 2.0
MIRROR_S: Final = 1.0
"""Also how long a daemon takes to notice that one with another directory has taken over."""
MIRROR_ALL_S: Final = 3600.0
JANITOR_S: Final = 15.0


class Housekeeping:
    """Periodic tasks that run while an attempt does."""

    def __init__(
        self, plan: Plan, services: Services, ownership: Ownership, superseded: Callable[[Superseded], None]
    ) -> None:
        """`superseded` is called when a daemon with another checkpoint directory has taken over the pipeline."""
        self._plan = plan
        self._services = services
        self._ownership = ownership
        self._superseded = superseded
        self._hanging = HangingCheck(plan, services)
        self._positions: dict[TopicPartition, int] = {}
        self._mirrored: dict[TopicPartition, int] = {}
        self._mirrored_all_at = -MIRROR_ALL_S
        self._attempt = Attempt(0)
        self._tasks: list[asyncio.Task[None]] = []
        self._told: dict[Callable[[], Awaitable[None]], str] = {}
        """The last failure of each task until it succeeds, so that it is reported once and not at every turn."""

    def resume(self, attempt: Attempt) -> None:
        """Starts the tasks for a running attempt."""
        self._attempt = attempt
        loop = asyncio.get_running_loop()
        jobs: list[tuple[float, Callable[[], Awaitable[None]]]] = [(LAG_S, self._measure_lag), (MIRROR_S, self._mirror)]
        if self._plan.exactly_once:
            jobs += [(JANITOR_S, self._fence), (LAG_S, self._hanging.check_if_due)]
        self._tasks = [loop.create_task(self._every(period, job)) for period, job in jobs]

    def completed(self, checkpoint: CompletedCheckpoint) -> None:
        """Takes the positions of a checkpoint. When the pipeline ends they are mirrored at once."""
        self._positions.update(merge_offsets(checkpoint.positions))

    def pause(self) -> None:
        """Stops the tasks: the attempt has ended."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    async def close(self) -> None:
        """Mirrors the last positions, makes sure that no committed transaction lacks its marker, and ends."""
        self.pause()
        if self._positions:
            await self._quietly(self._mirror)
        if self._plan.exactly_once:
            await self._quietly(self._hanging.check_twice)

    async def _every(self, period_s: float, job: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(period_s)
            await self._quietly(job)

    async def _quietly(self, job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except TidegateError as error:
            away = isinstance(error, BrokerUnavailable) and self._services.kafka.away
            told = away or self._told.get(job) == error.message
            self._told[job] = error.message
            logger.log(logging.DEBUG if told else logging.WARNING, "%s", error.message)
        except Exception as error:
            text = f"internal error: {type(error).__name__}: {error}"
            if self._told.get(job) != text:
                logger.exception("internal error beside the attempts: the pipeline continues, and this is tried again")
            self._told[job] = text
        else:
            self._told.pop(job, None)

    async def _measure_lag(self) -> None:
        """Measures lag against the last stable offset, which is as far as a read-committed reader could have read.

        The positions are those that the slots report, because the last checkpoint is as old as the interval.
        """
        positions, reached = dict(self._positions), self._services.metrics.reached()
        positions |= {part: max(offset, positions.get(part, offset)) for part, offset in reached.items()}
        if not positions:
            return
        ends = await self._services.kafka.stable_offsets(positions)
        lags = {part: (max(0, end - positions[part]), positions[part]) for part, end in ends.items()}
        self._services.metrics.lags(lags)

    async def _mirror(self) -> None:
        """Mirrors changed positions, and periodically all: Kafka forgets offsets that were not written for a week."""
        now = self._services.clock.monotonic()
        every = now - self._mirrored_all_at >= MIRROR_ALL_S
        positions = {
            part: offset for part, offset in self._positions.items() if every or self._mirrored.get(part) != offset
        }
        try:
            await self._ownership.record(positions)
        except Superseded as error:
            self._superseded(error)
            return
        self._mirrored.update(positions)
        self._mirrored_all_at = now if every else self._mirrored_all_at

    async def _fence(self) -> None:
        """Aborts transactions that a zombie opens on its old ids: they would block readers until they time out."""
        state = self._services.journal.state
        others = ("", *state.replaces)
        fenced = await self._services.kafka.fence_leftovers(
            self._plan.pipeline, frozenset(), self._attempt, state.journal, others, beside=True
        )
        self._services.metrics.transactions_ended(TransactionResult.ABORTED, len(fenced))
